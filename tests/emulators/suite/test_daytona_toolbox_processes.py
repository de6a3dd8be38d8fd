"""Commands and code through the SDK, against processes that really run in the sandbox's box."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from daytona import CodeRunParams, Sandbox
from daytona.common.errors import (
    DaytonaBadRequestError,
    DaytonaNotFoundError,
    DaytonaProcessExecutionTimeoutError,
)
from daytona_toolbox_api_client.exceptions import BadRequestException

from tests.emulators.suite.daytona_toolbox_world import Place, place, until


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("daytona")) as here:
        yield here


@pytest.fixture(scope="module")
def sandbox(emulator: Place) -> Sandbox:
    return emulator.client().create(timeout=60)


def test_exec_answers_both_streams_in_the_order_in_which_they_were_written(
    sandbox: Sandbox,
) -> None:
    answer = sandbox.process.exec("echo out; sleep 0.1; echo err >&2; sleep 0.1; echo end; exit 3")
    assert (answer.exit_code, answer.result) == (3, "out\nerr\nend\n")
    assert answer.artifacts is not None
    assert answer.artifacts.stdout == "out\nerr\nend\n"


def test_exec_runs_in_the_directory_and_with_the_variables_that_it_is_given(
    emulator: Place, sandbox: Sandbox
) -> None:
    answer = sandbox.process.exec("pwd; echo $FOO > seen; echo $HOME", cwd="/tmp", env={"FOO": "7"})
    assert answer.result == "/tmp\n/home/daytona\n"
    assert emulator.host(sandbox, "/tmp/seen").read_text() == "7\n"
    assert sandbox.process.exec("pwd").result == "/home/daytona\n"


# What of its process a program may look at; `_` names it, as far as its shell knows it.
WORLD = (
    'import os, sys; fds = sorted(os.listdir("/proc/self/fd"))[:4];'
    'print(sorted((key, os.environ[key]) for key in os.environ if key != "_"), os.getcwd(),'
    ' sys.argv, fds, [os.readlink(f"/proc/self/fd/{one}")[:6] for one in (0, 2)],'
    " os.getsid(0) == os.getpid(), os.getppid())"
)


@pytest.mark.parametrize(
    "command",
    [
        f"exec python3 -c '{WORLD}' a 'b c' 'it'\"'\"'s' </dev/null 2>/dev/null",
        f"exec python3 -I -S -c '{WORLD}'",
        "exec python3 -c 'import sys; print(1); sys.exit(3)' >/dev/null",
        "exec python3 -c 'raise ValueError(7)' 2>/dev/null",
        "exec python3 -c 'import os; os.kill(os.getpid(), 15)'",
        "exec python3.0 -c 0",
        "exec python3 /no/such/file",
    ],
)
def test_a_program_is_run_as_by_the_shell_that_would_become_it(
    sandbox: Sandbox, command: str
) -> None:
    given = {"cwd": "/tmp", "env": {"FOO": "7", "PATH": "/opt/none:/usr/local/bin:/usr/bin"}}
    found, by_shell = [
        sandbox.process.exec(one, **given)
        for one in (command, command.replace(" ", "  ", 1))  # which is not known to be the same
    ]
    assert (found.exit_code, found.result) == (by_shell.exit_code, by_shell.result)


def test_exec_waits_for_a_child_that_keeps_the_output_open_and_for_no_other(
    emulator: Place, sandbox: Sandbox
) -> None:
    assert sandbox.process.exec("(sleep 0.3; echo late) & echo soon").result == "soon\nlate\n"
    sandbox.process.exec("sleep 86401 > /dev/null 2>&1 &")
    until(lambda: "sleep 86401" in emulator.commands(sandbox), "the sleep")
    sandbox.process.exec("kill $(pidof sleep)")


def test_a_command_that_takes_too_long_is_killed_with_its_children(
    emulator: Place, sandbox: Sandbox
) -> None:
    with pytest.raises(DaytonaProcessExecutionTimeoutError) as caught:
        sandbox.process.exec("sh -c 'setsid sleep 86402'; echo never > never", timeout=1)
    error = caught.value
    assert (error.status_code, error.code) == (408, "PROCESS_EXECUTION_TIMEOUT")
    assert str(error) == "Failed to execute command: command execution timeout"
    until(lambda: "sleep 86402" not in emulator.commands(sandbox), "the end of the sleep")
    assert not emulator.host(sandbox, "never").exists()


def test_exit_codes_are_those_of_a_shell(sandbox: Sandbox) -> None:
    assert sandbox.process.exec("no-such-program-here").exit_code == 127
    assert sandbox.process.exec("kill -9 $$").exit_code == 137
    assert sandbox.process.exec("exit 42").exit_code == 42


def test_a_command_that_cannot_be_run_is_a_bad_request(sandbox: Sandbox) -> None:
    with pytest.raises(DaytonaBadRequestError) as caught:
        sandbox.process.exec("")
    assert caught.value.code == "INVALID_REQUEST_BODY"
    assert "'ExecuteRequest.Command'" in str(caught.value)
    with pytest.raises(DaytonaBadRequestError, match="no such file or directory"):
        sandbox.process.exec("true", cwd="/nowhere")


def test_long_commands_and_outputs_pass_whole(sandbox: Sandbox) -> None:
    text = "x" * 120_000
    assert sandbox.process.exec(f"echo {text} | wc -c").result.strip() == "120001"
    assert len(sandbox.process.exec("head -c 3000000 /dev/zero | tr '\\0' y").result) == 3_000_000


def test_code_runs_with_its_arguments_and_variables(emulator: Place, sandbox: Sandbox) -> None:
    code = "import os, sys\nprint(sys.argv[1:], os.environ['Z'])\nopen('made', 'w').write('here')"
    answer = sandbox.process.code_run(code, CodeRunParams(argv=["a", "b"], env={"Z": "z"}))
    assert (answer.exit_code, answer.result) == (0, "['a', 'b'] z\n")
    assert emulator.host(sandbox, "made").read_text() == "here"
    big = sandbox.process.code_run(f"text = {'y' * 300_000!r}\nprint(len(text))")
    assert big.result == "300000\n"
    assert not list(emulator.host(sandbox, "/tmp").glob("daytona_*")), "the code was left behind"


def test_code_that_fails_says_why(sandbox: Sandbox) -> None:
    failed = sandbox.process.code_run("import sys\nsys.stderr.write('E\\n')\nraise SystemExit(4)")
    assert (failed.exit_code, failed.result) == (4, "E\n")
    assert "SyntaxError" in sandbox.process.code_run("def incomplete(").result
    with pytest.raises(DaytonaProcessExecutionTimeoutError):
        _coded(sandbox, "import time\ntime.sleep(60)", timeout=1)


def test_code_of_other_languages_runs_too(sandbox: Sandbox) -> None:
    process = sandbox.process
    before = process._language
    try:
        process._language = "javascript"
        assert process.code_run("console.log(41 + 1)").result == "42\n"
        process._language = "typescript"
        assert process.code_run("const x: number = 5; console.log(x)").result == "5\n"
        process._language = "cobol"
        with pytest.raises(BadRequestException) as caught:
            process.code_run("print(1)")
    finally:
        process._language = before
    assert '"source":"DAYTONA_DAEMON"' in str(caught.value.body)
    assert '"code":"BAD_REQUEST"' in str(caught.value.body)


# What a chart needs of matplotlib, without the forty megabytes: enough for the code below.
_DRAWING = {
    "matplotlib/__init__.py": "def use(name): pass",
    "matplotlib/container.py": "class BarContainer: pass",
    "matplotlib/patches.py": "class Wedge: pass",
    "matplotlib/axes.py": "class Axes:\n    def bxp(self, stats): pass",
    "matplotlib/pyplot.py": """
class Line:
    def get_label(self): return "speed"
    def get_xydata(self): return [(0, 1), (1, 4)]
class Label:
    def get_text(self): return "0"
class Axes:
    patches, containers, collections, lines = (), (), (), (Line(),)
    def get_title(self): return "fast"
    def get_xlabel(self): return "s"
    get_ylabel = get_xlabel
    def get_xticks(self): return [0, 1]
    get_yticks = get_xticks
    def get_xticklabels(self): return [Label()]
    get_yticklabels = get_xticklabels
    def get_xscale(self): return "linear"
    get_yscale = get_xscale
class Figure:
    axes = (Axes(),)
    def savefig(self, file, format): file.write(b"\\x89PNG\\r\\n\\x1a\\n" + bytes(8))
def get_fignums(): return [1]
def figure(number): return Figure()
def close(which): pass
def show(): raise AssertionError("not replaced")
""",
}


def test_a_figure_that_is_shown_comes_back_as_a_chart_and_not_as_output(sandbox: Sandbox) -> None:
    for path, text in _DRAWING.items():
        sandbox.fs.upload_file(text.encode(), f"/tmp/lib/{path}")
    answer = sandbox.process.code_run(
        "import matplotlib.pyplot as plt\nprint('before')\nplt.show()\nprint('after')",
        CodeRunParams(env={"PYTHONPATH": "/tmp/lib"}),
    )
    assert (answer.exit_code, answer.result) == (0, "before\nafter\n")
    assert answer.artifacts is not None and answer.artifacts.charts is not None
    (chart,) = answer.artifacts.charts
    assert (chart.type, chart.title) == ("line", "fast")
    assert (chart.png or "").startswith("iVBORw0KGgo")
    assert chart.x_ticks == [0, 1]
    assert [element.points for element in chart.elements] == [[[0, 1], [1, 4]]]


def test_entrypoint_is_the_sandboxes_own_and_cannot_be_taken(sandbox: Sandbox) -> None:
    session = sandbox.process.get_entrypoint_session()
    assert session.session_id == "entrypoint"
    (command,) = session.commands
    assert (command.id, command.command) == ("entrypoint_command", "'sleep' 'infinity'")
    assert sandbox.process.get_entrypoint_logs().output == ""
    with pytest.raises(DaytonaNotFoundError):
        sandbox.process.get_session_command("entrypoint", "entrypoint_command")


def _coded(sandbox: Sandbox, code: str, *, timeout: int) -> None:
    """`code_run` lets the generated client's errors through; `exec` shows what they mean."""
    from daytona._utils.errors import intercept_errors

    intercept_errors()(sandbox.process.code_run)(code, timeout=timeout)

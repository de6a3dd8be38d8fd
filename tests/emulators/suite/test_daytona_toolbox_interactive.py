"""Terminals and the code interpreter through the SDK."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from daytona import Daytona, PtySize, Sandbox
from daytona.common.errors import (
    DaytonaBadRequestError,
    DaytonaConflictError,
    DaytonaConnectionError,
    DaytonaError,
    DaytonaGoneError,
    DaytonaProcessNotFoundError,
    DaytonaTimeoutError,
)
from daytona.handle.pty_handle import PtyHandle

from tests.emulators.daytona.toolbox import contexts
from tests.emulators.suite.daytona_toolbox_world import PATIENCE_S, Place, place, until


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("daytona")) as here:
        yield here


@pytest.fixture(scope="module")
def client(emulator: Place) -> Daytona:
    return emulator.client()


@pytest.fixture(scope="module")
def sandbox(client: Daytona) -> Sandbox:
    return client.create(timeout=60)


def read_until(handle: PtyHandle, text: str) -> str:
    """What the terminal shows up to and with `text`."""
    shown = ""
    for data in handle:
        shown += data.decode(errors="replace")
        if text in shown:
            return shown
    raise AssertionError(f"the terminal ended without {text!r}: {shown!r}")


def test_a_terminal_is_a_terminal_of_the_size_that_it_is_given(
    emulator: Place, sandbox: Sandbox
) -> None:
    handle = sandbox.process.create_pty_session(
        "sized", cwd="/tmp", envs={"WORD": "hello"}, pty_size=PtySize(rows=30, cols=100)
    )
    handle.send_input('echo "$(stty size) $TERM $WORD" > seen; echo do""ne\n')
    read_until(handle, "done")
    assert emulator.host(sandbox, "/tmp/seen").read_text() == "30 100 xterm-256color hello\n"
    handle.resize(PtySize(rows=40, cols=132))
    handle.send_input("stty size > seen; echo agai''n\n")
    read_until(handle, "again")
    assert emulator.host(sandbox, "/tmp/seen").read_text() == "40 132\n"
    handle.kill()


def test_what_is_typed_and_what_is_printed_both_show(sandbox: Sandbox) -> None:
    handle = sandbox.process.create_pty_session("echoing")
    handle.send_input("echo SEC''OND\n")
    shown = read_until(handle, "SECOND\r\n")
    assert "echo SEC''OND" in shown
    handle.kill()


def test_a_terminal_tells_the_exit_code_of_its_shell(sandbox: Sandbox) -> None:
    handle = sandbox.process.create_pty_session("exiting")
    handle.send_input("exit 5\n")
    ended = handle.wait(timeout=PATIENCE_S)
    assert (ended.exit_code, ended.error) == (5, None)
    assert sandbox.process.get_pty_session_info("exiting").active is False
    with pytest.raises(DaytonaGoneError):
        sandbox.process.resize_pty_session("exiting", PtySize(rows=1, cols=1))
    late = sandbox.process.connect_pty_session("exiting")
    assert late.wait(timeout=PATIENCE_S).exit_code == 5


def test_a_killed_terminal_ends_with_what_ran_in_it(emulator: Place, sandbox: Sandbox) -> None:
    handle = sandbox.process.create_pty_session("killed")
    handle.send_input("sleep 86407\n")
    until(lambda: "sleep 86407" in emulator.commands(sandbox), "the sleep")
    sandbox.process.kill_pty_session("killed")
    ended = handle.wait(timeout=PATIENCE_S)
    assert (ended.exit_code, ended.error) == (137, "SIGKILL")
    until(lambda: "sleep 86407" not in emulator.commands(sandbox), "the end of the sleep")
    with pytest.raises(DaytonaProcessNotFoundError):
        sandbox.process.get_pty_session_info("killed")


def test_a_terminal_outlives_its_connection_and_takes_several(
    emulator: Place, sandbox: Sandbox
) -> None:
    first = sandbox.process.create_pty_session("shared")
    first.send_input("A=kept; echo read''y\n")
    read_until(first, "ready")
    first.disconnect()
    second, third = (sandbox.process.connect_pty_session("shared") for _ in range(2))
    second.send_input("echo is $A\n")
    assert "is kept" in read_until(second, "is kept")
    assert "is kept" in read_until(third, "is kept")
    sandbox.process.kill_pty_session("shared")


def test_terminals_are_listed_and_their_names_are_taken(sandbox: Sandbox) -> None:
    handle = sandbox.process.create_pty_session("named", pty_size=PtySize(rows=24, cols=80))
    (info,) = [one for one in sandbox.process.list_pty_sessions() if one.id == "named"]
    assert (info.rows, info.cols, info.cwd) == (24, 80, "/home/daytona")
    assert (info.active, info.lazy_start, info.envs["TERM"]) == (True, False, "xterm-256color")
    assert info.created_at.endswith("Z")
    with pytest.raises(DaytonaConflictError):
        sandbox.process.create_pty_session("named")
    with pytest.raises(DaytonaError):
        sandbox.process.connect_pty_session("unnamed")
    handle.kill()


def test_ctrl_c_reaches_the_program_and_not_the_shell(emulator: Place, sandbox: Sandbox) -> None:
    handle = sandbox.process.create_pty_session("interrupted")
    handle.send_input("sleep 86408\n")
    until(lambda: "sleep 86408" in emulator.commands(sandbox), "the sleep")
    handle.send_input("\x03")
    handle.send_input("echo co''de $?\n")
    assert "code 130" in read_until(handle, "code 130")
    handle.kill()


def test_variables_stay_in_a_context_and_do_not_leave_it(sandbox: Sandbox) -> None:
    interpreter = sandbox.code_interpreter
    context = interpreter.create_context()
    interpreter.run_code("import math\nx = 10\ndef twice(y): return 2 * y", context=context)
    inside = interpreter.run_code("print(twice(x), math.floor(1.5))", context=context)
    assert (inside.stdout, inside.stderr, inside.error) == ("20 1\n", "", None)
    outside = interpreter.run_code("print(x)")
    assert outside.error is not None
    assert (outside.error.name, outside.stdout) == ("NameError", "")
    interpreter.run_code("z = 'default'")
    assert interpreter.run_code("print(z)").stdout == "default\n"


def test_a_context_is_listed_until_it_is_deleted_and_its_process_with_it(
    emulator: Place, sandbox: Sandbox
) -> None:
    interpreter = sandbox.code_interpreter
    context = interpreter.create_context(cwd="/tmp")
    assert (context.cwd, context.language, context.active) == ("/tmp", "python", True)
    pid = interpreter.run_code(
        "import os\nopen('by-context', 'w').write(os.getcwd())\nprint(os.getpid())", context=context
    ).stdout
    assert emulator.host(sandbox, "/tmp/by-context").read_text() == "/tmp"
    assert context.id in [one.id for one in interpreter.list_contexts()]
    interpreter.delete_context(context)
    assert context.id not in [one.id for one in interpreter.list_contexts()]
    gone = f"test -e /proc/{pid.strip()}"
    until(lambda: sandbox.process.exec(gone).exit_code == 1, "the end of the process")
    with pytest.raises(DaytonaError):
        interpreter.delete_context(context)
    with pytest.raises(DaytonaConnectionError, match="context not found"):
        interpreter.run_code("1", context=context)
    with pytest.raises(DaytonaBadRequestError, match="does not exist"):
        interpreter.create_context(cwd="/nowhere")


def test_output_and_errors_arrive_while_the_code_runs(emulator: Place, sandbox: Sandbox) -> None:
    seen: list[str] = []
    first = threading.Event()

    def on_stdout(message: object) -> None:
        seen.append(getattr(message, "output", ""))
        first.set()

    code = "import os, time, sys\nprint('early')\nsys.stderr.write('problem')\n"
    code += "while not os.path.exists('/tmp/seen-early'): time.sleep(0.02)\nprint('late')"
    results: list[object] = []
    thread = threading.Thread(
        target=lambda: results.append(
            sandbox.code_interpreter.run_code(code, on_stdout=on_stdout, envs={"A": "1"})
        )
    )
    thread.start()
    assert first.wait(PATIENCE_S)
    assert "late" not in "".join(seen), "all came at the end"
    emulator.host(sandbox, "/tmp/seen-early").touch()
    thread.join(PATIENCE_S)
    (result,) = results
    assert (getattr(result, "stdout", ""), getattr(result, "stderr", "")) == (
        "early\nlate\n",
        "problem",
    )


def test_an_exception_comes_back_with_its_name_value_and_lines(sandbox: Sandbox) -> None:
    result = sandbox.code_interpreter.run_code("def f():\n    raise ValueError('bad')\nf()")
    assert result.error is not None
    assert (result.error.name, result.error.value) == ("ValueError", "bad")
    assert "line 2, in f" in result.error.traceback
    assert "interpreter_worker" not in result.error.traceback
    wrong = sandbox.code_interpreter.run_code("if:")
    assert wrong.error is not None and wrong.error.name == "SyntaxError"


def test_environment_and_child_processes_are_those_of_one_run(sandbox: Sandbox) -> None:
    run = sandbox.code_interpreter.run_code
    code = "import os, subprocess\nprint(os.environ.get('ONCE'))\nsubprocess.run(['echo', 'child'])"
    assert sorted(run(code, envs={"ONCE": "yes"}).stdout.split()) == ["child", "yes"]
    assert sorted(run(code).stdout.split()) == ["None", "child"]


def test_code_that_takes_too_long_is_interrupted_and_its_context_goes_on(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "INTERRUPT_GRACE_S", PATIENCE_S)  # the machine may be busy
    run = sandbox.code_interpreter.run_code
    run("kept = 7")
    with pytest.raises(DaytonaTimeoutError, match="Execution timed out"):
        run("import time\ntime.sleep(600)", timeout=1)
    assert run("print(kept)").stdout == "7\n"


def test_code_that_will_not_be_interrupted_loses_its_variables(
    emulator: Place, sandbox: Sandbox
) -> None:
    context = sandbox.code_interpreter.create_context()
    stubborn = (
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nkept = 1\n"
        "time.sleep(600)"
    )
    with pytest.raises(DaytonaTimeoutError):
        sandbox.code_interpreter.run_code(stubborn, context=context, timeout=1)
    after = sandbox.code_interpreter.run_code("print(kept)", context=context)
    assert after.error is not None and after.error.name == "NameError"


def test_an_interpreter_that_dies_is_said_to_have(sandbox: Sandbox) -> None:
    context = sandbox.code_interpreter.create_context()
    with pytest.raises(DaytonaConnectionError, match="ended unexpectedly"):
        sandbox.code_interpreter.run_code("import os\nos._exit(3)", context=context)
    assert sandbox.code_interpreter.run_code("print('new')", context=context).stdout == "new\n"

"""Python tasks in a remote sandbox, and sandboxes that take one run after another."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetctl.guest.ship.assemble import remote_source
from tests.living import alive
from tests.unit.guest.remote_world import Box, Story, wait_for

COUNTS = "n = globals().get('n', 0) + 1\nSUBMIT(n=n)"
WAITS = "import time\nprint('begun')\ntime.sleep(600)"


def begun(story: Story) -> bool:
    return b"begun" in story.log


def python_order(box: Box, code: str, **changes: Any) -> dict[str, Any]:
    return box.order(mode="python", argv=[], code=code, linger_s=600.0, **changes)


@pytest.fixture
def box(python_box: Box) -> Box:
    return python_box


def test_a_python_task_is_told_from_its_start_to_its_result(box: Box) -> None:
    code = "print('x is', x)\nreport(loss=0.5)\nSUBMIT(double=x * 2)"
    story = box.python(code, params={"x": 21})
    assert story.code == 0
    assert (story.kinds[0], story.kinds[-1]) == ("started", "eof")
    assert story.log == b"x is 21\n"
    seen = story.parsed
    assert seen.result == '{"double":42}'
    assert [(one.name, one.value) for one in seen.metrics] == [("loss", 0.5)]
    assert seen.ending is not None
    assert (seen.ending.ok, seen.ending.reason, seen.ending.exit_code) == (True, "Completed", 0)


def test_an_exception_is_told_with_the_frames_of_the_task_alone(box: Box) -> None:
    story = box.python("def half(x):\n    return x / 0\nhalf(4)")
    assert (story.ended["ok"], story.ended["reason"], story.ended["exit"]) == (False, "Error", 1)
    assert story.ended["message"].endswith("ZeroDivisionError: division by zero")
    assert b"return x / 0" in story.log
    assert story.log.count(b"File ") == 2


@pytest.mark.parametrize(
    ("code", "reason", "exit_code"),
    [
        ("import sys; sys.exit(3)", "ExitCode:3", 3),
        ("import sys; sys.exit(0)", "Completed", 0),
        ("import os; os._exit(9)", "ExitCode:9", 9),
        ("import os; os.kill(os.getpid(), 11)", "Signal:SEGV", 139),
        ("x =", "Error", 1),
        ("SUBMIT(a={1})", "Completed", 0),
        ("SUBMIT(a='x' * 300_000)", "ResultInvalid", 1),
    ],
)
def test_the_end_of_a_python_task_is_told_exactly(
    box: Box, code: str, reason: str, exit_code: int
) -> None:
    ended = box.python(code).ended
    assert (ended["reason"], ended["exit"], ended["infra"]) == (reason, exit_code, False)


def test_a_task_finds_what_is_installed_and_its_own_modules(box: Box, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "task.py").write_text("here = 'mine'")
    (tmp_path / "code" / "fleetctl.py").write_text("here = 'mine too'")
    code = "import hypothesis, task, fleetctl, sys\nSUBMIT(a=task.here, b=fleetctl.here)"
    story = box.python(code, source={"dir": str(tmp_path / "code")})
    assert story.parsed.result == '{"a":"mine","b":"mine too"}'


def test_a_task_may_start_processes_of_its_own(box: Box) -> None:
    code = (
        "import multiprocessing as mp, subprocess, sys\n"
        "with mp.get_context('fork').Pool(2) as pool:\n    a = pool.map(abs, [-1, -2])\n"
        "b = subprocess.check_output([sys.executable, '-c', 'print(1)'], text=True)\n"
        "SUBMIT(a=a, b=b)"
    )
    assert box.python(code).parsed.result == '{"a":[1,2],"b":"1\\n"}'


def test_volumes_secrets_and_variables_reach_a_python_task(box: Box, tmp_path: Path) -> None:
    (tmp_path / "mount").mkdir()
    volume = {"name": "v", "mount": f"{tmp_path}/mount", "links": [], "read_only": False}
    volume["variable"] = "FLEETCTL_VOLUME_V"
    code = (
        "import os\nsave_to_volume('a.txt', 'kept')\n"
        "SUBMIT(s=os.environ['TOKEN'], v=os.environ['FLEETCTL_VOLUME_V'], p=os.environ['TASK_X'])"
    )
    order = python_order(
        box, code, volumes=[volume], params={"x": 1}, secret_names=["TOKEN"], reusable=False
    )
    seen = box.told(order, env={"TOKEN": "value"}).parsed
    assert seen.result == f'{{"p":"1","s":"value","v":"{tmp_path}/mount"}}'
    assert (tmp_path / "mount" / "a.txt").read_text() == "kept"


@pytest.mark.parametrize(
    ("url", "given", "expected"),
    [
        ("http://127.0.0.1:1", {}, "127.0.0.1,localhost,::1"),
        ("http://127.0.0.1:1", {"no_proxy": "a.org, localhost"}, "a.org,localhost,127.0.0.1,::1"),
        ("http://127.0.0.1:1", {"NO_PROXY": "*"}, "*"),
        ("", {}, None),
    ],
)
def test_calls_of_a_task_go_past_its_proxy(
    box: Box, url: str, given: dict[str, str], expected: str | None
) -> None:
    code = "import os\nSUBMIT([os.environ.get(it) for it in ('NO_PROXY', 'no_proxy')])"
    env = {"HTTP_PROXY": "http://10.0.0.1:3128", **given}
    secrets = {"FLEETCTL_LLM_URL": url} if url else {}
    order = python_order(box, code, env=env, secret_names=sorted(secrets))
    seen = box.told(order, env=secrets).parsed
    assert json.loads(str(seen.result)) == {"output": [expected] * 2}


def test_output_of_python_and_of_its_children_is_in_order_and_utf_8(box: Box) -> None:
    code = "import os\nprint('ü\\udcff')\nos.system('echo child')\nprint('end', end='')"
    assert box.python(code).log == "ü\\udcff\nchild\nend".encode()


def test_a_task_that_says_too_much_at_once_fails_and_the_supervisor_lives(box: Box) -> None:
    code = "import os\nos.write(3, b'x' * 3_000_000)"
    ended = box.python(code).ended
    assert (ended["ok"], ended["reason"]) == (False, "ResultInvalid")


def test_nonsense_on_the_channel_is_dropped(box: Box) -> None:
    nonsense = [b"\xff", b"[]", b'{"e":"error"}', b'{"e":"metric"}', b'{"e":5}', b"{", b"7" * 9999]
    code = f"import os\nfor line in {nonsense}:\n    os.write(3, line + b'\\n')\nSUBMIT(a=1)"
    seen = box.python(code).parsed
    assert seen.result == '{"a":1}'
    assert seen.garbage_lines == 0


def test_a_fault_of_the_guest_itself_ends_the_run_as_infrastructure(box: Box) -> None:
    attached = box.attach(python_order(box, WAITS))
    attached.until(begun)
    with socket.socket(socket.AF_UNIX) as line, contextlib.chdir(box.directory):
        line.connect("sock")
        line.sendall(b'{"op": "stop"}\n')
    ended = attached.rest().ended
    assert (ended["ok"], ended["infra"], ended["reason"]) == (False, True, "GuestFailed")
    wait_for(lambda: "KeyError" in (box.directory / "supervisor.log").read_text())


@pytest.mark.parametrize(("memory", "reason"), [(None, "Error"), (10**12, "OOMKilled")])
def test_a_memory_error_is_the_limits_only_where_there_is_one(
    box: Box, memory: int | None, reason: str
) -> None:
    assert box.python("raise MemoryError", memory=memory).ended["reason"] == reason


def test_a_run_above_its_memory_is_ended(box: Box) -> None:
    code = "import time\nx = bytearray(200_000_000)\nprint('begun')\ntime.sleep(600)"
    ended = box.python(code, memory=100_000_000).ended
    assert (ended["ok"], ended["reason"]) == (False, "OOMKilled")


# Sandboxes in turn


def test_globals_persist_between_the_runs_of_a_sandbox(box: Box) -> None:
    first = box.told(python_order(box, COUNTS, reusable=True))
    assert (first.parsed.result, first.ended["open"]) == ('{"n":1}', True)
    second = box.told(python_order(box, COUNTS, run="run-1", reusable=True))
    assert (second.parsed.result, second.ended["open"]) == ('{"n":2}', True)
    third = box.told(python_order(box, COUNTS, run="run-2", reusable=False))
    assert (third.parsed.result, third.ended["open"]) == ('{"n":3}', False)


def test_each_run_of_a_sandbox_has_its_own_order_secrets_and_output(box: Box) -> None:
    code = "import os\nprint(name, os.environ['TOKEN'], os.environ['FLEETCTL_RUN'])"
    changes = {"secret_names": ["TOKEN"], "reusable": True}
    for index, (name, token) in enumerate((("a", "one"), ("b", "two"))):
        order = python_order(box, code, run=f"run-{index}", params={"name": name}, **changes)
        story = box.told(order, env={"TOKEN": token})
        assert story.log.decode() == f"{name} {token} run-{index}\n"
    order = python_order(box, "import os\nprint('TOKEN' in os.environ)", run="run-2", reusable=True)
    assert box.told(order).log == b"False\n"
    for path in box.directory.rglob("*"):
        assert not path.is_file() or b"two" not in path.read_bytes() or path.suffix == ".log"


def test_an_error_leaves_the_sandbox_open_and_a_death_closes_it(box: Box) -> None:
    code = "import os\nif kind == 'error': 1 / 0\nif kind == 'death': os._exit(9)"
    order = python_order(box, code, params={"kind": "error"}, reusable=True)
    assert box.told(order).ended["open"]
    order = python_order(box, code, run="run-1", params={"kind": "death"}, reusable=True)
    ended = box.told(order).ended
    assert (ended["reason"], ended["open"]) == ("ExitCode:9", False)
    unbegun = box.told(python_order(box, "print(1)", run="run-2", reusable=True))
    assert (unbegun.ended["infra"], unbegun.ended["reason"]) == (True, "SandboxClosed")
    assert unbegun.log == b""


def test_a_worker_that_dies_between_two_runs_closes_the_sandbox(box: Box) -> None:
    code = "import os\nSUBMIT(pid=os.getpid())"
    first = box.told(python_order(box, code, reusable=True))
    assert first.ended["open"]
    os.kill(_number(first), signal.SIGKILL)
    journal = box.directory / "runs" / "run-0.jsonl"
    wait_for(lambda: b'"closed"' in journal.read_bytes())
    unbegun = box.told(python_order(box, code, run="run-1", reusable=True))
    assert unbegun.ended["reason"] == "SandboxClosed"


def test_a_stop_of_the_last_run_closes_an_open_sandbox(box: Box) -> None:
    code = "import os\nSUBMIT(pid=os.getpid())"
    first = box.told(python_order(box, code, reusable=True))
    box.stop(grace_s=0)
    wait_for(lambda: not alive(_number(first)))
    assert not _open(box)
    assert box.told(python_order(box, code, run="run-1")).ended["reason"] == "SandboxClosed"


def test_a_busy_sandbox_takes_no_second_run(box: Box) -> None:
    attached = box.attach(python_order(box, WAITS, reusable=True))
    attached.until(begun)
    other = box.told(python_order(box, "print(1)", run="run-1", reusable=True))
    assert (other.ended["infra"], other.ended["reason"]) == (True, "SandboxClosed")
    assert alive(box.supervisor)
    box.stop(grace_s=0)
    assert attached.rest().ended["reason"] == "Stopped"


def test_a_timeout_in_an_open_sandbox_closes_it(box: Box) -> None:
    first = box.told(python_order(box, "n = 1", reusable=True))
    assert first.ended["open"]
    order = python_order(box, WAITS, run="run-1", reusable=True, timeout_s=0.3, grace_s=0.1)
    ended = box.told(order).ended
    assert (ended["reason"], ended["open"]) == ("Timeout", False)


def test_an_open_sandbox_that_gets_no_more_runs_closes_by_itself(box: Box) -> None:
    order = {**python_order(box, COUNTS, reusable=True), "linger_s": 0.2}
    assert box.told(order).ended["open"]
    supervisor = box.supervisor
    wait_for(lambda: not alive(supervisor))
    assert not _open(box)


def test_a_latch_that_is_raced_in_an_open_sandbox_begins_once(box: Box) -> None:
    box.told(python_order(box, "n = 0", reusable=True))
    order = python_order(box, "n += 1\nprint(n)", run="run-1", reusable=True)
    stories = [one.rest() for one in [box.attach(order) for _ in range(4)]]
    assert [story.log for story in stories] == [b"1\n"] * 4


def test_a_supervisor_that_is_told_to_end_says_that_it_was_not_the_task(box: Box) -> None:
    attached = box.attach(python_order(box, WAITS))
    attached.until(begun)
    os.kill(box.supervisor, signal.SIGTERM)
    ended = attached.rest().ended
    assert (ended["infra"], ended["reason"]) == (True, "SandboxEnded")


def test_an_order_may_come_on_stdin(box: Box) -> None:
    argv = [*box.program, "attach", "--dir", str(box.directory), "--run", "run-0", "--order", "-"]
    order = json.dumps(box.order(argv=["echo", "hi"]))
    told = subprocess.run(argv, input=order.encode(), stdout=subprocess.PIPE, check=True).stdout
    assert told.endswith(b'{"e":"eof"}\n')


# The file


def test_the_guest_is_one_text_that_needs_nothing_of_ours(tmp_path: Path) -> None:
    assert remote_source.__wrapped__() == remote_source.__wrapped__()
    (tmp_path / "guest.py").write_text(remote_source())
    argv = [sys.executable, "-I", "-S", "-X", "importtime", str(tmp_path / "guest.py"), "attach"]
    argv += ["--dir", str(tmp_path / "state"), "--run", "x"]
    imported = subprocess.run(argv, capture_output=True).stderr.decode()
    assert "fleetctl.guest.remote.verbs" in imported
    for dear in ("typing", " re\n", " json\n", " socket\n", "hashlib", "subprocess"):
        assert dear not in imported


def _interpreters() -> list[str]:
    """Other versions of Python on this machine; the guest compiles itself for them."""
    found = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
    wanted = [str(path) for path in found if int(path.parts[-3].split(".")[1]) >= 9]
    return [sys.executable, *wanted]


@pytest.mark.parametrize("python", _interpreters())
def test_the_guest_runs_under_every_python_of_the_machine(tmp_path: Path, python: str) -> None:
    (tmp_path / "guest.py").write_text(remote_source())
    box = Box((python, "-I", "-S", str(tmp_path / "guest.py")), tmp_path / "state")
    first = box.told(python_order(box, COUNTS, reusable=True))
    assert (first.parsed.result, first.ended["open"]) == ('{"n":1}', True)
    second = box.told(python_order(box, COUNTS, run="run-1"))
    assert second.parsed.result == '{"n":2}'
    box.clean_up()


def _number(story: Story) -> int:
    return int("".join(c for c in story.parsed.result or "" if c.isdigit()))


def _open(box: Box) -> bool:
    ending = box.attach().rest().parsed.ending
    assert ending is not None
    return (
        ending.sandbox_open
        and b"closed" not in (box.directory / "runs" / "run-0.jsonl").read_bytes()
    )


def test_term_unwinds_a_task_and_ends_its_forks_at_once(box: Box) -> None:
    code = (
        "import os, signal, time\n"
        "if (pid := os.fork()) == 0:\n"
        "    print('fork', signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)\n"
        "    time.sleep(600)\n"
        "os.kill(pid, signal.SIGTERM)\n"
        "print('ended by', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(600)\n"
        "finally:\n"
        "    print('saved', end='')"
    )
    story = box.python(code)
    assert b"ended by -15\nsaved" in story.log
    assert (story.ended["reason"], story.ended["exit"]) == ("Signal:TERM", 143)

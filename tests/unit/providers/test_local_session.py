"""Sessions on this machine: what they see, and that nothing of them stays, however they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl import Interpreter, InterpreterError
from fleetctl.common.errors import Refused, Unavailable
from fleetctl.guest.ship.assemble import driver_source
from fleetctl.guest.supervision.processes import list_processes
from fleetctl.providers.contract.sandbox_access import SessionRequest
from fleetctl.providers.local import supervisor_locks
from fleetctl.providers.local.local_session import open_session
from fleetctl.providers.local.supervisor.run import procs

TIERS = ("namespaces", "process")
# Programs that try to stay: another session, a fork of a fork, deaf to signals.
LENGTH = str(900_000_000 + os.getpid())  # of a sleep, by which this test run knows its own
CLING = (
    "import os, signal, subprocess, sys, time\n"
    f"subprocess.Popen(['sleep', '{LENGTH}'], start_new_session=True)\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    f"        os.execvp('sleep', ['sleep', '{LENGTH}'])\n"
    "    os._exit(0)\n"
)
HOST = (
    "import sys\n"
    "from fleetctl import Interpreter\n"
    "interpreter = Interpreter(provider='local')\n"
    "interpreter.execute(sys.argv[1])\n"
    "{then}\n"
)
WAIT_S = 120.0


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("FLEETCTL_LOCAL_TIER", request.param)
    yield request.param
    assert clinging() == []


def clinging() -> list[int]:
    """The processes of CLING that there are on this machine."""
    found = []
    for pid in list_processes():
        if _words(pid)[:2] == [b"sleep", LENGTH.encode()]:
            found.append(pid)
    return found


def wait_until(count: int) -> None:
    """Until so many of them are there."""
    patience = threading.Event()
    for _ in range(int(WAIT_S / 0.05)):
        if len(clinging()) == count:
            return
        patience.wait(0.05)
    raise AssertionError(f"not {count} but {clinging()}")


def wait_until_unlocked(home: Path) -> None:
    """Until the guards are gone too, which hold the locks of their rooms."""
    patience = threading.Event()
    for _ in range(int(WAIT_S / 0.05)):
        if all(supervisor_locks.lock_is_free(room) for room in rooms(home)):
            return
        patience.wait(0.05)
    raise AssertionError("a guard stayed")


def rooms(home: Path) -> list[Path]:
    return [one for one in (home / "local" / "sessions").glob("*") if one.is_dir()]


def host(then: str) -> subprocess.Popen[str]:
    program = HOST.format(then=then)
    return subprocess.Popen(
        [sys.executable, "-c", program, CLING], stdout=subprocess.PIPE, text=True
    )


def test_shutdown_ends_whatever_code_has_started(tier: str, tmp_path: Path) -> None:
    with Interpreter(provider="local") as interpreter:
        interpreter.execute(CLING)
        wait_until(2)
    left = clinging()
    for pid in left:  # what would be left must not be the next test's
        os.kill(pid, signal.SIGKILL)
    assert left == []
    assert rooms(tmp_path / "home") == []


def test_a_host_that_is_killed_leaves_no_process(tier: str, tmp_path: Path) -> None:
    with host("import time; print('ready', flush=True); time.sleep(600)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        wait_until(2)
        process.kill()
    wait_until(0)
    wait_until_unlocked(tmp_path / "home")
    with Interpreter(provider="local"):
        # What it left on disk goes when the next session opens.
        assert len(rooms(tmp_path / "home")) == 1
    assert rooms(tmp_path / "home") == []


@pytest.mark.parametrize("then", ["sys.exit(3)", "raise LookupError", "del interpreter", ""])
def test_a_host_that_just_ends_leaves_nothing(then: str, tmp_path: Path) -> None:
    with host(then) as process:
        process.communicate(timeout=WAIT_S)
    assert clinging() == []
    assert rooms(tmp_path / "home") == []


def test_an_interrupted_host_leaves_nothing(tmp_path: Path) -> None:
    then = (
        # Code that heeds the interrupt late, on a busy machine, would lose its sandbox.
        "from fleetctl.interpreter.session import conversation\n"
        "conversation.INTERRUPT_S = 60.0\n"
        "interpreter.tools = {'begin': lambda: print('ready', flush=True)}\n"
        "with interpreter:\n"
        "    try:\n"
        "        interpreter.execute('x = 1; begin(); import time; time.sleep(600)')\n"
        "    except KeyboardInterrupt:\n"
        "        print(interpreter.execute('print(x)'), end='')\n"
    )
    with host(then) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        try:
            said, _ = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()  # what hangs fails here, and does not hang the tests
    assert said == "1\n"
    assert clinging() == []
    assert rooms(tmp_path / "home") == []


def test_a_fork_of_the_host_does_not_keep_a_session_alive(tier: str) -> None:
    then = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    interpreter = None\n"
        "    time.sleep(600)\n"
        "print('ready', flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    process = host(then)
    try:
        process.wait(WAIT_S)
        wait_until(0)
    finally:
        for pid in list_processes():
            if _words(pid)[-1:] == [CLING.encode()] and not procs.is_zombie(pid):
                os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=WAIT_S)


def test_a_fork_of_the_host_gets_a_sandbox_of_its_own() -> None:
    then = (
        "interpreter.execute('x = 1')\n"
        "import os\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    print('NameError' in interpreter.execute('print(x)'), flush=True)\n"
        "    interpreter.shutdown()\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "print(interpreter.execute('print(x)'), end='')\n"
    )
    with host(then) as process:
        said, _ = process.communicate(timeout=WAIT_S)
    assert said == "True\n1\n"


def test_a_guard_that_is_killed_takes_its_session_along(tier: str, tmp_path: Path) -> None:
    with Interpreter(provider="local") as interpreter:
        interpreter.execute("x = 1")
        guard = guard_of(tmp_path / "home")
        if tier == "process":
            # Only namespaces let the kernel end more than the driver itself.
            os.kill(guard, signal.SIGKILL)
        else:
            interpreter.execute(CLING)
            os.kill(guard, signal.SIGKILL)
            wait_until(0)
        patience = threading.Event()
        while "NameError" not in _executed(interpreter, "print(x)"):
            patience.wait(0.01)  # it may be dying


def test_the_lifetime_holds_while_the_host_does_nothing(tier: str) -> None:
    # The session's start and the code take a part of it, which is large on a busy machine.
    with Interpreter(provider="local", timeout=20.0) as interpreter:
        interpreter.execute(CLING)
        wait_until(0)


def test_a_volume_is_at_its_path_until_the_last_session_that_uses_it_ends(
    tier: str, tmp_path: Path
) -> None:
    shared = tmp_path / "mounted"

    def session() -> Interpreter:
        return Interpreter(provider="local", volume_name="v", volume_mount_path=str(shared))

    with session() as one:
        with session() as two:
            said = two.execute(f"print(save_to_volume('a', 'b'), open('{shared}/a').read())")
            assert said == f"{shared}/a b\n"
        assert one.execute(f"print(open('{shared}/a').read())") == "b\n"
    assert not os.path.lexists(shared)


def test_two_volumes_at_one_path_never_mix(tier: str, tmp_path: Path) -> None:
    shared = tmp_path / "mounted"
    with Interpreter(provider="local", volume_name="v", volume_mount_path=str(shared)) as one:
        one.execute("save_to_volume('a', 'of v')")
        other = Interpreter(provider="local", volume_name="w", volume_mount_path=str(shared))
        if tier == "namespaces":
            said = other.execute("print(load_from_volume('a'))")
            assert said == f"[file not found: {shared}/a]\n"
            other.shutdown()
        else:
            with pytest.raises(Refused, match="leads to another volume"):
                other.start()
    with other:
        assert other.execute(f"import os; print(os.listdir('{shared}'))") == "[]\n"


def test_a_path_that_cannot_be_made_is_told_and_the_helpers_work(
    tier: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Nothing can be made there, not even by root.
    with Interpreter(provider="local", volume_name="v", volume_mount_path="/sys/v") as one:
        said = one.execute(
            "import os\n"
            "print(save_to_volume('a', 'b'), load_from_volume('a'),"
            " open(os.environ['FLEETCTL_VOLUME_V'] + '/a').read())"
        )
    assert said == "/sys/v/a b b\n"
    assert ("a volume is not at its path" in caplog.text) == (tier == "process")


def test_code_sees_neither_our_environment_nor_our_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    monkeypatch.setenv("FLEETCTL_LOCAL_TIER", "namespaces")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "state").write_text("hidden")
    code = (
        "import os, subprocess\n"
        "seen = subprocess.run(['ps', '-ef'], capture_output=True).stdout.count(b'\\n')\n"
        f"print('MY_TOKEN' in os.environ, os.path.exists({str(tmp_path / 'home' / 'state')!r}))\n"
        "open('/fleetctl-new', 'w')"
    )
    with Interpreter(provider="local") as interpreter:
        said = interpreter.execute(code)
    assert said.startswith("False False\n")
    assert "Read-only file system" in said or "Permission denied" in said
    assert not Path("/fleetctl-new").exists()


def test_a_tier_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEETCTL_LOCAL_TIER", "best")
    with pytest.raises(Refused, match="FLEETCTL_LOCAL_TIER is `best`"):
        Interpreter(provider="local").start()
    assert rooms(tmp_path / "home") == []


def test_a_driver_that_cannot_run_is_told_with_its_last_words(tmp_path: Path) -> None:
    async def story() -> str:
        order = SessionRequest(name="one", driver="import sys; sys.exit('no luck')", lifetime_s=60)
        session = await open_session(tmp_path / "home", order)
        assert [line async for line in session.lines()] == []
        await session.stop()
        await session.stop()
        with pytest.raises(Unavailable):
            for _ in range(100):
                await session.send("x" * 100_000)
        return session.ending()

    said = asyncio.run(story())
    assert said == "its process exited with code 1; its last words: no luck"
    assert rooms(tmp_path / "home") == []


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_the_driver_runs_under_the_pythons_that_are_here(version: str) -> None:
    if not list(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
        compile(driver_source(), "driver.py", "exec")  # then its text must do
        return
    with Interpreter(provider="local", image_python_version=version) as interpreter:
        code = "import sys\nSUBMIT(version='.'.join(map(str, sys.version_info[:2])))"
        assert interpreter.execute(code).version == version
        assert "division" in interpreter.execute("1/0")


def guard_of(home: Path) -> int:
    """The process that holds a room's lock and is not this one."""
    for pid in list_processes():
        try:
            held = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if pid != os.getpid() and any(one.startswith(f"{home}/local/sessions/") for one in held):
            return pid
    raise AssertionError("no guard")


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return []


def _executed(interpreter: Interpreter, code: str) -> str:
    """What is returned or raised: the loss may be noticed before the code is sent, or by it."""
    try:
        return str(interpreter.execute(code))
    except InterpreterError as error:
        return str(error)

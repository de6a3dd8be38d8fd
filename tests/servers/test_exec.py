"""`fleetctl exec`: a command beside a task that runs, at every provider."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import secrets
import signal
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fleetctl.controllers.model import Resource
from fleetctl.specs.blocks.template import Template
from tests.contracts.provider_worlds import eventually, python, script
from tests.servers.verb_worlds import ON_TWO, PROVIDERS, VerbWorld, play, service
from tests.unit.cli.terminals import Terminal

WORK = script("echo mine > here.txt; echo begun; exec sleep 600", env={"COLOUR": "red"})


@pytest.fixture(scope="module", params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Iterator[str]:
    with service(request.param):
        yield request.param


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


async def begun(world: VerbWorld) -> None:
    """One task runs, and the store knows it."""
    ref = await world.start(WORK, run="run-0")
    world.record(ref, spec={"template": {"script": "...", "env": {"COLOUR": "red"}}})
    await world.log_holds(ref, b"begun")


@ON_TWO
def test_a_command_finds_files_and_variables_and_gives_its_exit_code(
    home: Path, provider: str
) -> None:
    async def tale(world: VerbWorld) -> None:
        await begun(world)
        message = 'cat here.txt; echo "$COLOUR $JOB_COMPLETION_INDEX"; echo aside >&2; exit 7'
        code, out, said = await world.fleetctl("exec", "job/job", "--", "sh", "-c", message)
        assert (code, out) == (7, "mine\nred 0\n"), said
        assert "aside" in said
        assert (await world.fleetctl("exec", "job/job", "--", "true"))[:2] == (0, "")
        code, _, said = await world.fleetctl("exec", "job/job", "--", "no-such-command")
        assert code == 127, said

    play(home, provider, tale)


@ON_TWO
def test_standard_input_arrives_whole(
    home: Path, provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = "".join(f"line {number}\n" for number in range(20_000))
    (tmp_path / "input").write_text(sent)

    async def tale(world: VerbWorld) -> None:
        await begun(world)
        with (tmp_path / "input").open() as file:
            monkeypatch.setattr("sys.stdin", file)
            code, out, said = await world.fleetctl("exec", "job/job", "-i", "--", "cat")
        assert code == 0, said
        assert out == sent

    play(home, provider, tale)


def test_what_has_ended_is_refused_and_what_is_not_clear_is_asked(home: Path) -> None:
    async def tale(world: VerbWorld) -> None:
        assert (await world.fleetctl("exec", "job/job", "--", "ls"))[0] == 4
        await begun(world)
        assert (await world.fleetctl("exec", "job/job"))[0] == 2
        assert (await world.fleetctl("exec", "job/job", "--index", "5", "--", "ls"))[0] == 4
        second = await world.start(WORK, run="run-1", uid="uid-1", index=1)
        world.record(second, index=1, resource=False)
        code, _, said = await world.fleetctl("exec", "job/job", "--", "ls")
        assert code == 2 and "2 tasks" in said and "--index 0" in said
        await world.provider.stop(second, grace_s=0.0)
        await world.ended(second)
        code, _, said = await world.fleetctl("exec", "job/job", "--index", "1", "--", "ls")
        assert code == 3 and "does not run" in said

    play(home, "local", tale)


def test_a_command_ends_with_its_task(home: Path) -> None:
    async def tale(world: VerbWorld) -> None:
        await begun(world)
        seconds = unlike_others()
        waits = f"echo $$; exec sleep {seconds}"
        asked = asyncio.ensure_future(world.fleetctl("exec", "job/job", "--", "sh", "-c", waits))
        await eventually(lambda: sleeping(seconds), "the command ran")
        ref = world.refs["run-0"]
        await world.provider.stop(ref, grace_s=0.0)
        code, _, said = await asked
        assert code in (1, 137), said
        await eventually(lambda: awake(seconds), "the command ended")

    play(home, "local", tale)


def test_a_command_ends_with_who_asked_and_the_task_goes_on(home: Path) -> None:
    async def tale(world: VerbWorld) -> None:
        await begun(world)
        seconds = unlike_others()
        words = ["exec", "job/job", "--", "sleep", str(seconds)]
        asking = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fleetctl.cli.main", *words
        )
        await eventually(lambda: sleeping(seconds), "the command ran")
        asking.send_signal(signal.SIGINT)
        assert await asking.wait() == 130
        await eventually(lambda: awake(seconds), "the command ended")
        await world.alive(world.refs["run-0"])

    play(home, "local", tale)


def test_a_command_gets_a_terminal_of_the_size_of_ours(home: Path, provider: str) -> None:
    message = (
        "test -t 0 && test -t 1 && stty size && read word && echo got-$word && cat here.txt; exit 5"
    )

    async def tale(world: VerbWorld) -> None:
        await begun(world)
        code, shown = await asyncio.to_thread(
            typed, ["exec", "job/job", "-it", "--", "sh", "-c", message], b"x\r"
        )
        assert code == 5, shown
        assert "33 99" in shown and "got-x" in shown and "mine" in shown
        # Neither a prompt nor what started the command is seen.
        assert "exec sh" not in shown and shown.lstrip("x\r\n").startswith("33 99"), shown

    play(home, provider, tale)


# Modal tells a command nothing of a window that changes.
@pytest.mark.parametrize("place", ["local", "daytona"])
def test_a_command_learns_that_the_window_has_changed(home: Path, place: str) -> None:
    message = "trap 'stty size' WINCH; echo ready; while [ ! -e go ]; do sleep 0.05; done"

    async def tale(world: VerbWorld) -> None:
        await begun(world)
        await asyncio.to_thread(resized, ["exec", "job/job", "-it", "--", "sh", "-c", message])
        await world.fleetctl("exec", "job/job", "--", "touch", "go")

    with service(place):
        play(home, place, tale)


def resized(words: list[str]) -> None:
    environ = {**os.environ}
    argv = [sys.executable, "-m", "fleetctl.cli.main", *words]
    with Terminal(argv, environ, Path.cwd()) as terminal:
        terminal.shows("ready")
        terminal.resize(41, 77)
        terminal.shows("41 77")


SECRET = "line 1\nline 2 with $HOME and 'quotes'"


@ON_TWO
@pytest.mark.parametrize(
    "work",
    [script("echo begun; exec sleep 600"), python("import time; print('begun'); time.sleep(600)")],
    ids=["script", "python"],
)
def test_secrets_are_among_the_variables_and_in_no_command_line(
    home: Path, provider: str, work: Template
) -> None:
    async def tale(world: VerbWorld) -> None:
        secret = Resource("s", "Secret", "key", 1, 0, '{"fromEnv": ["API_KEY"]}', "", {}, {}, 5.0)
        with world.store.transaction():
            world.store.resources.put(secret, expected_version=None)
        ref = await world.start(work, run="run-0", secrets={"API_KEY": SECRET})
        world.record(ref, spec={"template": {"script": "...", "secrets": ["key"]}})
        await world.log_holds(ref, b"begun")
        message = (
            'printf "%s\\n" "$API_KEY"; sleep 0.3; cat /proc/[0-9]*/cmdline | tr "\\0" " " >&2'
        )
        code, out, said = await world.fleetctl("exec", "job/job", "--", "sh", "-c", message)
        assert (code, out) == (0, f"{SECRET}\n"), said
        assert "API_KEY" in said and "line 2 with" not in said

    play(home, provider, tale)


def typed(words: list[str], keys: bytes) -> tuple[int, str]:
    """The command on a terminal of 33 by 99, with these keys pressed; its exit code and screen."""
    pid, screen = pty.fork()
    if pid == 0:
        # Here, before anything asks for it.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        os.execv(sys.executable, [sys.executable, "-m", "fleetctl.cli.main", *words])
    os.write(screen, keys)
    shown = b""
    with suppress(OSError):  # how a terminal ends
        while data := os.read(screen, 4096):
            shown += data
    os.close(screen)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def unlike_others() -> int:
    """Seconds that no other process of this machine sleeps, not even this test's twin elsewhere."""
    return 10**15 + secrets.randbelow(10**15)


async def sleeping(seconds: int) -> bool:
    """Returns whether any process of this machine is `sleep SECONDS`."""
    wanted = f"sleep\0{seconds}\0".encode()
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and Path(f"/proc/{name}/cmdline").read_bytes() == wanted:
                return True
        except OSError:
            continue
    return False


async def awake(seconds: int) -> bool:
    return not await sleeping(seconds)

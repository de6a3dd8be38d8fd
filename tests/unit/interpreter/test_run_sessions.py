"""Sessions that are runs, on machines: a real OpenSSH server and a real Slurm. What they do in code
is what all do; here is what their lines and their runs add.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetctl import Interpreter, InterpreterError
from fleetctl.common.errors import Refused
from fleetctl.common.state_paths import find_state_dir
from fleetctl.guest.ship.assemble import driver_source
from fleetctl.providers.contract.sandbox_access import Session, SessionRequest
from fleetctl.wiring.account_registry import session_opener
from fleetctl.wiring.interpreters import sweep_interpreters
from tests.interpreters import MACHINE_PARAMS, Place
from tests.unit.interpreter.conftest import Make

DEADLINE_S = 240.0
# Its holder waits for a shorter time than one whose program lives.
PROGRAM = """
import sys, time
from fleetctl import Interpreter
from fleetctl.providers.remote.runs import run_session
run_session.ALONE_S = 45.0
with Interpreter(provider=sys.argv[1]) as interpreter:
    print(interpreter.execute("print(1)"), end="", flush=True)
    time.sleep(3600)
"""
pytestmark = pytest.mark.parametrize("place", MACHINE_PARAMS, indirect=True)


def await_that(holds: Callable[[], bool], what: str) -> None:
    give_up_at_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < give_up_at_s, f"it never happened that {what}"
        time.sleep(0.05)


def find_processes(place: Place, words: str) -> list[int]:
    """The processes of this place's drivers whose command line ends with these words."""
    machine = str(Path(place.variables["FLEETCTL_HOME"]).parent)
    found = []
    for about in Path("/proc").glob("[0-9]*"):
        try:
            line = (about / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if len(line) > 4 and line[4].startswith(machine) and words in line:
            found.append(int(about.name))
    return found


def test_code_keeps_its_state_submits_and_asks_a_model_from_an_idle_run(
    make: Make, place: Place
) -> None:
    interpreter = make(sub_lm=str.upper)
    interpreter.execute("kept = [1]")
    result = interpreter.execute("SUBMIT(kept=kept * 2, said=llm_query_batched(['a', 'b']))")
    assert (result.kept, result.said) == ([1, 1], ["A", "B"])
    assert interpreter.execute("print(len(kept))") == "1\n"
    assert place.sandboxes() == 1
    interpreter.shutdown()
    assert place.sandboxes() == 0


def test_a_line_that_breaks_is_made_again_and_nothing_is_lost_or_twice(
    make: Make, place: Place
) -> None:
    interpreter = make()
    called: list[int] = []
    cut = threading.Event()

    def count(number: int) -> int:
        called.append(number)
        if number in (20, 60, 130):
            cut.set()
        return number

    interpreter.tools["count"] = count
    interpreter.execute("kept = 1")

    def kill_lines() -> None:
        for _ in range(3):
            assert cut.wait(DEADLINE_S)
            cut.clear()
            for pid in find_processes(place, "connect"):
                os.kill(pid, signal.SIGKILL)

    killing = threading.Thread(target=kill_lines)
    killing.start()
    result = interpreter.execute("SUBMIT(all=[count(n) for n in range(200)], kept=kept)")
    killing.join()
    assert (result.all, result.kept, called) == ([*range(200)], 1, [*range(200)])


def test_a_driver_that_ends_says_why_and_frees_its_machine(make: Make, place: Place) -> None:
    interpreter = make()
    with pytest.raises(InterpreterError, match="exited with code 3"):
        interpreter.execute("import os; os._exit(3)")
    assert place.sandboxes() == 0
    assert interpreter.execute("print(1)") == "1\n"


def test_a_driver_of_a_killed_program_ends_by_itself(place: Place) -> None:
    env = {**os.environ, **place.variables}
    words = [sys.executable, "-c", PROGRAM, place.name]
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "1\n"
        assert find_processes(place, "-u")
        program.kill()
    await_that(lambda: not find_processes(place, "-u"), "the driver ended")
    ended = asyncio.run(sweep_interpreters(find_state_dir()))
    assert [run.provider for run in ended] == [place.name]
    assert place.sandboxes() == 0


def test_a_session_of_the_same_name_is_adopted_with_its_driver(place: Place) -> None:
    async def adopt() -> None:
        first = await _open("same", place)
        assert "hello" in await _next(first)
        await first.send('{"op": "sync", "id": 1}')
        assert '"id": 1' in await _next(first)
        second = await _open("same", place)
        assert place.sandboxes() == 1
        assert "hello" in await _next(second)  # which nobody had confirmed
        assert '"id": 1' in await _next(second)
        await second.send('{"op": "sync", "id": 2}')
        assert '"id": 2' in await _next(second)
        await second.stop()
        await first.stop()

    asyncio.run(adopt())
    assert place.sandboxes() == 0


def test_what_a_machine_cannot_give_is_refused_before_there_is_a_run(place: Place) -> None:
    for options in ({"secrets": ["kept"]}, {"image": object()}):
        with pytest.raises(Refused, match=f"this interpreter runs on `{place.name}`"):
            Interpreter(provider=place.name, **options).start()  # type: ignore[arg-type]
    assert place.sandboxes() == 0


async def _open(name: str, place: Place) -> Session:
    home = find_state_dir()
    request = SessionRequest(name=name, driver=driver_source(), lifetime_s=600.0)
    return await session_opener(place.name, home)(home, request)


async def _next(session: Session) -> str:
    lines: Any = session.lines()
    async with asyncio.timeout(DEADLINE_S):
        return str(await anext(lines))

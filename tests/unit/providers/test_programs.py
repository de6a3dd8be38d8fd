"""Programs that the provider asks: answered, late, or no longer wanted."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from fleetctl.providers.programs import run_program
from tests.living import alive

# A program that starts another one, tells both numbers, and waits for longer than any test.
PAIR = "sleep 600 & echo $$ $! > pids; wait"


async def told(directory: Path) -> list[int]:
    while not (pids := (directory / "pids")).exists() or len(pids.read_text().split()) < 2:
        await asyncio.sleep(0.01)
    return [int(word) for word in pids.read_text().split()]


def all_gone(pids: list[int]) -> bool:
    until_s = time.monotonic() + 60
    while any(map(alive, pids)) and time.monotonic() < until_s:
        time.sleep(0.01)
    return not any(map(alive, pids))


def test_a_program_answers_with_its_code_and_both_outputs() -> None:
    answer = asyncio.run(run_program(["sh", "-c", "echo out; echo wrong >&2; exit 3"]))
    assert (answer.code, answer.out, answer.errors) == (3, b"out\n", b"wrong\n")


def test_a_program_that_is_not_there_is_an_error_of_the_system() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(run_program(["fleetctl-no-such-program"]))


def test_output_goes_to_a_log_when_one_is_given(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        answer = asyncio.run(
            run_program(["sh", "-c", "echo out; echo wrong >&2"], log=log.fileno())
        )
    assert (answer.out, answer.errors) == (b"", b"")
    assert (tmp_path / "log").read_bytes() == b"out\nwrong\n"


def test_a_program_that_is_late_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    async def late() -> list[int]:
        with pytest.raises(TimeoutError):
            # Late, but not before it has told the numbers, however busy the machine is.
            await run_program(["sh", "-c", PAIR], deadline_s=10.0, cwd=tmp_path)
        return await told(tmp_path)

    assert all_gone(asyncio.run(late()))


def test_a_program_that_nobody_waits_for_any_more_is_ended_with_all_that_it_started(
    tmp_path: Path,
) -> None:
    async def cancelled() -> list[int]:
        asking = asyncio.ensure_future(run_program(["sh", "-c", PAIR], cwd=tmp_path))
        pids = await told(tmp_path)
        assert all(os.path.exists(f"/proc/{pid}") for pid in pids)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        return pids

    assert all_gone(asyncio.run(cancelled()))


def test_a_program_is_ended_whenever_its_asker_is_cancelled(tmp_path: Path) -> None:
    async def cancelled(steps: int) -> None:
        asking = asyncio.ensure_future(run_program(["sh", "-c", PAIR], cwd=tmp_path))
        for _ in range(steps):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asking, 300)

    async def at_every_step() -> None:
        for steps in range(40):
            await cancelled(steps)

    asyncio.run(at_every_step())
    assert all_gone(working_in(tmp_path))


def working_in(directory: Path) -> list[int]:
    found = []
    for cwd in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if cwd.readlink() == directory:
                found.append(int(cwd.parent.name))
        except OSError:
            continue  # it ended, or is somebody else's
    return found

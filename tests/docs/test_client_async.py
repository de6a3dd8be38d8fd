"""The async client: the same methods, written from those of Fleet, on a real controller."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from fleetctl import AsyncFleet, BatchJob, GoalMissed
from fleetctl.cli.command.verbs import VERBS
from fleetctl.client.fleet import Fleet as Client
from fleetctl.common.errors import NotFound
from tests.docs import python_client
from tests.docs.fleet import Fleet

WAIT_S = 600


def in_event_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Returns the test to run in a loop of its own."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


@pytest.fixture
def started(empty: Fleet) -> Fleet:
    empty.start_controller()
    return empty


def job(name: str, python: str, **spec: object) -> BatchJob:
    return BatchJob(name, template={"python": python}, **spec)


def test_each_method_has_a_twin_and_the_written_files_are_of_now() -> None:
    assert python_client.TWIN.read_text("utf-8") == python_client.render_twin(), "make reference"
    assert python_client.PAGE.read_text("utf-8") == python_client.render_page(), "make reference"
    public = {it for it in vars(AsyncFleet) if not it.startswith("_")}
    assert public == {it.name for it in python_client.methods()} - python_client.NOT_IN_TWIN


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_a_method_or_has_a_reason_for_none(verb: str) -> None:
    method, reason = python_client.method_of(verb), python_client.NO_METHOD.get(verb, "")
    assert bool(method) != bool(reason), f"{verb}: {method or 'no method'}, {reason or 'no reason'}"
    assert not method or callable(getattr(Client, method))


def test_no_reason_is_of_a_verb_that_is_gone() -> None:
    assert {*python_client.NO_METHOD, *python_client.METHODS_OF_VERBS} <= set(VERBS)


@in_event_loop
async def test_many_objects_are_waited_for_at_once(started: Fleet) -> None:
    names = [f"n{number}" for number in range(8)]
    async with AsyncFleet(started.home) as fleet:
        await fleet.apply(*(job(it, f"print('I am {it}')\nSUBMIT(a='{it}')") for it in names))
        ended = await asyncio.gather(*(fleet.wait(f"job/{it}", timeout_s=WAIT_S) for it in names))
        assert [it.phase for it in ended] == ["Succeeded"] * len(names)
        rows = await asyncio.gather(*(fleet.results(f"job/{it}") for it in names))
        assert [it[0].result for it in rows] == [{"a": it} for it in names]
        assert "I am n3" in [line.text async for line in fleet.logs("job/n3")]
        assert (await fleet.plan(job("n0", "pass"))).changes[0].action == "update"
        await fleet.apply(job("bad", "raise SystemExit(3)"))
        with pytest.raises(GoalMissed, match="job/bad"):
            await fleet.wait("job/bad", timeout_s=WAIT_S)
        with pytest.raises(GoalMissed):
            await asyncio.wait_for(fleet.wait("job/n0", "failed"), WAIT_S)


@in_event_loop
async def test_a_cancelled_wait_ends_its_thread(started: Fleet) -> None:
    async with AsyncFleet(started.home) as fleet:
        await fleet.apply(job("never", "pass", parallelism=0))
        waiting = asyncio.ensure_future(fleet.wait("job/never"))
        await asyncio.sleep(0)  # until it has begun
        while not _async_threads():
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    deadline_s = time.monotonic() + WAIT_S
    while _async_threads():  # an idle thread of a closed pool ends
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.05)


@in_event_loop
async def test_a_stream_that_is_left_early_ends_its_thread(started: Fleet) -> None:
    lines = 5_000
    async with AsyncFleet(started.home) as fleet:
        await fleet.apply(job("long", f"for n in range({lines}): print(n)"))
        await fleet.wait("job/long", timeout_s=WAIT_S)
        stream = fleet.logs("job/long")
        first = [(await anext(stream)).text for _ in range(3)]
        assert first == ["0", "1", "2"]
        await stream.aclose()  # type: ignore[attr-defined]
        count = len([it async for it in fleet.logs("job/long")])
        assert count >= lines
    deadline_s = time.monotonic() + WAIT_S
    while _async_threads():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.05)


@in_event_loop
async def test_an_error_of_a_stream_reaches_its_reader(tmp_path: Path) -> None:
    async with AsyncFleet(tmp_path) as fleet:
        with pytest.raises(NotFound, match="none"):
            [it async for it in fleet.logs("job/none")]


def _async_threads() -> list[str]:
    return [it.name for it in threading.enumerate() if it.name.startswith("fleetctl-async")]

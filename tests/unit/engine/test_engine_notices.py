"""Notices from what happens to what a sink gets: each at least once, whatever fails."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fleetctl.engine.execute.secrets import Found
from fleetctl.engine.notices.delivery import Send
from fleetctl.notices.send import send
from tests.emulators.sink import Sink
from tests.unit.engine.fake_world import Fleet, tasks

PATIENCE_S = 120.0  # real seconds until a request on loopback must have come
KEY = base64.b64encode(b"k" * 32).decode()


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as made:
        yield made


def fleet(sink: Sink, by: Send | None = send) -> Fleet:
    values = {"WEBHOOK_URL": sink.url, "WEBHOOK_SECRET": f"whsec_{KEY}"}
    return Fleet(secrets=lambda names, namespace: Found(values), send=by)


def told(*events: str, **sinks: Any) -> dict[str, Any]:
    rule = {"on": events or ("Succeeded", "Failed"), **(sinks or {"webhook": {"secret": "hook"}})}
    return tasks(1, notify=[rule])


async def until(world: Fleet, what: Callable[[], bool]) -> None:
    """Real time goes by for requests; the engine's clock stands."""
    end_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end_s, "it did not come to that"
        await world.settle()
        await asyncio.sleep(0.005)


def rows(world: Fleet) -> list[tuple[Any, ...]]:
    query = "SELECT object, event, state, tries FROM notices ORDER BY nid"
    return world.database.state.execute(query).fetchall()


def delivered(world: Fleet) -> int:
    return sum(state == "Delivered" for _, _, state, _ in rows(world))


async def test_who_asked_for_it_hears_of_an_end_with_names_counts_and_a_signature(
    sink: Sink,
) -> None:
    async with fleet(sink) as world:
        await world.apply("BatchJob", "a", told(), team="rlm")
        assert rows(world) == []
        world.local.finish(0)
        await until(world, lambda: delivered(world) == 1)
        (request,) = sink.requests
        data = request.json["data"]
        assert request.json["type"] == "fleetctl.Succeeded"
        assert (data["kind"], data["name"], data["reason"]) == ("BatchJob", "a", "Completed")
        assert data["counts"] == {
            "total": 1, "succeeded": 1, "failed": 0, "cached": 0, "retries": 0,
        }  # fmt: skip
        assert data["id"] == request.id
        signed = f"{request.id}.{request.headers['webhook-timestamp']}.{request.body}".encode()
        mac = hmac.new(b"k" * 32, signed, hashlib.sha256).digest()
        wanted = f"v1,{base64.b64encode(mac).decode()}"
        assert request.headers["webhook-signature"] == wanted


async def test_what_nobody_asked_for_is_not_told(sink: Sink) -> None:
    async with fleet(sink) as world:
        await world.apply("BatchJob", "a", told("Failed"))
        world.local.finish(0)
        await world.settle()
        assert world.status("a")["phase"] == "Succeeded"
        assert rows(world) == []


async def test_a_failure_is_told_with_the_reason_of_the_last_one(sink: Sink) -> None:
    async with fleet(sink) as world:
        await world.apply("BatchJob", "a", told("Failed"))
        world.local.finish(0, ok=False)
        await until(world, lambda: delivered(world) == 1)
        data = sink.requests[0].json["data"]
        assert (data["phase"], data["reason"]) == ("Failed", "FailedIndexes")
        assert data["lastFailure"]["reason"].startswith("ExitCode")


async def test_a_crash_between_the_end_and_its_notice_loses_nothing_and_makes_no_second_id(
    sink: Sink,
) -> None:
    # The first controller writes, and is killed before it sends.
    async with fleet(sink, by=None) as world:
        await world.apply("BatchJob", "a", told())
        world.local.finish(0)
        await world.settle()
        assert [it[2] for it in rows(world)] == ["Waiting"]
        world.send = send
        await world.crash()
        await until(world, lambda: delivered(world) == 1)
        await world.crash()
        await world.settle()
        assert len(sink.requests) == 1
        assert len(rows(world)) == 1

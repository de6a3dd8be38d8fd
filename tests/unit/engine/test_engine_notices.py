"""Notices from what happens to what a sink gets: each at least once, whatever fails."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.kinds.notices import NoticeMessage
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.engine.kinds.notices import NoticeDelivery, SendNotice
from fleetctl.notices import request
from fleetctl.notices import send as sending
from fleetctl.notices.request import TAKEN, SinkOutcome
from fleetctl.notices.send import send_notice
from tests.emulators.sink import CUT, HANG, Sink
from tests.unit.engine.fake_remote import Remote, RemoteKeeper, job
from tests.unit.engine.fake_world import Fleet, tasks

PATIENCE_S = 120.0  # real seconds until a request on loopback must have come
DAY_S = 24 * 3600.0
CANARY = "sk-canary-7f3a"
KEY = base64.b64encode(b"k" * 32).decode()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no fault of a sink's."""
    monkeypatch.setattr(request, "TIMEOUT_S", PATIENCE_S)
    monkeypatch.setattr(sending, "DEADLINE_S", PATIENCE_S)


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as made:
        yield made


def fleet(sink: Sink, by: SendNotice | None = send_notice) -> Fleet:
    values = {"WEBHOOK_URL": sink.url, "WEBHOOK_SECRET": f"whsec_{KEY}"}
    return Fleet(secrets=lambda names, namespace: ResolvedSecrets(values), send=by)


def told(*events: str, **sinks: Any) -> dict[str, Any]:
    rule = {"on": events or ("Succeeded", "Failed"), **(sinks or {"webhook": {"secret": "hook"}})}
    return work(notify=[rule])


def work(**fields: Any) -> dict[str, Any]:
    """One task that runs although equal work has succeeded."""
    return tasks(1, cache={"policy": "Never"}, **fields)


async def until(world: Fleet, what: Callable[[], bool], *, step_s: float = 0.0) -> None:
    """Real time goes by for requests; the engine's clock goes on by steps, or stands."""
    end_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end_s, "it did not come to that"
        await world.later(step_s)
        await asyncio.sleep(0.005)


def rows(world: Fleet) -> list[tuple[Any, ...]]:
    query = "SELECT object, event, state, tries FROM notices ORDER BY nid"
    return world.database.state.execute(query).fetchall()


def bodies(world: Fleet) -> list[tuple[str, str]]:
    query = "SELECT event, body FROM notices ORDER BY nid"
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
        world.send = send_notice
        await world.crash()
        await until(world, lambda: delivered(world) == 1)
        await world.crash()
        await world.settle()
        assert len(sink.requests) == 1
        assert len(rows(world)) == 1


async def end(world: Fleet, *names: str, **sinks: Any) -> None:
    """Jobs of one task that succeeds."""
    for name in names:
        await world.apply("BatchJob", name, told(**sinks))
    for name in names:
        world.local.finish(0, of=f"batchjob/{name}")
    await world.settle()


def states(world: Fleet) -> list[str]:
    return [state for _, _, state, _ in rows(world)]


def events(world: Fleet, reason: str = "NoticeUndelivered") -> list[str]:
    query = "SELECT message FROM events WHERE reason = ? ORDER BY at_s"
    return [str(text) for (text,) in world.database.events.execute(query, (reason,))]


async def tried(world: Fleet, times: int) -> None:
    """Until so many answers are written down, or it has ended."""
    await until(world, lambda: any(it[3] >= times for it in rows(world)))


# Faults


async def test_what_a_sink_does_not_take_comes_again_under_its_id_and_not_before_it_is_asked_for(
    sink: Sink,
) -> None:
    sink.script += [500, CUT, (429, {"Retry-After": "500"})]
    async with fleet(sink) as world:
        await end(world, "a")
        await tried(world, 1)
        await world.later(60)
        await tried(world, 2)
        await world.later(60)
        await tried(world, 3)
        await world.later(499)
        assert len(sink.requests) == 3
        await world.later(200)
        await until(world, lambda: delivered(world) == 1)
        assert len(set(sink.ids)) == 1 and len(sink.requests) == 4
        assert {it.body for it in sink.requests} == {sink.requests[0].body}
        assert rows(world) == [("batchjob/a", "Succeeded", "Delivered", 4)]


async def test_a_kill_while_a_sink_answers_repeats_the_message_under_its_id(sink: Sink) -> None:
    sink.script += [HANG]
    async with fleet(sink) as world:
        await end(world, "a")
        await until(world, lambda: len(sink.requests) == 1)
        assert states(world) == ["Waiting"], "nothing is delivered before its sink says so"
        await world.crash()
        await until(world, lambda: delivered(world) == 1)
        assert len(sink.ids) == 2 and len(set(sink.ids)) == 1


async def test_a_sink_that_hangs_holds_up_no_other_and_no_tick(sink: Sink) -> None:
    with Sink() as other:
        other.always = HANG
        async with fleet(sink) as world:
            await end(world, "a", webhook={"url": other.url})
            await until(world, lambda: len(other.requests) == 1)
            await end(world, "b")
            await until(world, lambda: delivered(world) == 1)
            assert rows(world)[0][:3] == ("batchjob/a", "Succeeded", "Waiting")
            other.closing.set()


async def test_a_sink_that_hangs_too_long_counts_as_one_that_did_not_answer(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "TIMEOUT_S", 0.5)
    sink.always = HANG
    async with fleet(sink) as world:
        await end(world, "a")
        await tried(world, 1)
        assert states(world) == ["Waiting"]
        sink.always = 204
        monkeypatch.setattr(request, "TIMEOUT_S", PATIENCE_S)
        await until(world, lambda: delivered(world) == 1, step_s=1.0)
        assert len(set(sink.ids)) == 1


async def test_gone_is_believed_when_it_is_said_twice_and_is_seen(sink: Sink) -> None:
    sink.always = 410
    async with fleet(sink) as world:
        await end(world, "a")
        await tried(world, 1)
        assert states(world) == ["Waiting"]
        await world.later(60)
        await until(world, lambda: states(world) == ["Undelivered"])
        assert events(world) == ["Succeeded was not sent by webhook of secret/hook: it answers 410"]
        await world.later(DAY_S)
        assert len(sink.requests) == 2


async def test_after_a_day_it_is_given_up_and_seen(sink: Sink) -> None:
    sink.always = 503
    async with fleet(sink) as world:
        await end(world, "a")
        await tried(world, 1)
        assert not world.engine.idle(), "somebody must be there to try again"
        await world.crash()
        await world.later(DAY_S - 10)
        await tried(world, 2)
        await world.later(20)
        await until(world, lambda: states(world) == ["Undelivered"])
        assert events(world) == ["Succeeded was not sent by webhook of secret/hook: it answers 503"]
        assert world.engine.idle()


async def test_a_secret_that_is_not_there_is_waited_for(sink: Sink) -> None:
    missing = Unavailable("secret/hook is not declared")

    def secrets(names: tuple[str, ...], namespace: str) -> ResolvedSecrets:
        if missing is not None:
            raise missing
        return ResolvedSecrets({"WEBHOOK_URL": sink.url})

    world = fleet(sink)
    world.secrets = world.engine.parts.get(NoticeDelivery)._secrets = secrets
    async with world:
        await end(world, "a")
        await tried(world, 1)
        missing = None
        await world.later(60)
        await until(world, lambda: delivered(world) == 1)
        assert "webhook-signature" not in sink.requests[0].headers


async def test_where_a_redirect_leads_nothing_goes(sink: Sink) -> None:
    with Sink() as other:
        sink.script += [(307, {"Location": other.url})]
        async with fleet(sink) as world:
            await end(world, "a")
            await tried(world, 1)
            assert (states(world), other.requests) == (["Waiting"], [])


async def test_many_ends_at_once_come_as_few_messages_and_none_is_missing(sink: Sink) -> None:
    names = [f"j{number}" for number in range(30)]
    async with fleet(sink) as world:
        for name in names:
            await world.apply("BatchJob", name, told())
        for name in names:
            world.local.finish(0, of=f"batchjob/{name}")
        await until(world, lambda: len(states(world)) == len(names))
        await until(world, lambda: delivered(world) == len(names), step_s=1.0)
        ids = [
            one
            for it in sink.requests
            for one in it.json["data"].get("ids", [it.json["data"].get("id")])
        ]
        assert len(ids) == len(set(ids)) == len(names)
        assert len(sink.requests) <= 12


async def test_many_that_were_not_taken_together_come_again_together_under_their_id() -> None:
    messages: list[NoticeMessage] = []

    async def send_late(
        sink: object, values: object, message: NoticeMessage, *, now_s: float
    ) -> SinkOutcome:
        """As a sink that answers nothing to a message of many, until it has come twice."""
        messages.append(message)
        tries = [it for it in messages if it.id == message.id]
        return SinkOutcome("no answer") if len(message.bodies) > 1 and len(tries) < 2 else TAKEN

    names = [f"j{number}" for number in range(30)]
    async with Fleet(send=send_late) as world:
        for name in names:
            await world.apply("BatchJob", name, told(webhook={"url": "http://127.0.0.1:9/hook"}))
        for name in names:
            world.local.finish(0, of=f"batchjob/{name}")
        await until(world, lambda: delivered(world) == len(names), step_s=30.0)
    many = [it for it in messages if len(it.bodies) > 1]
    ids_of = {it.id: {body["id"] for body in it.bodies} for it in many}
    assert many
    for message in messages:
        together = [them for them in ids_of.values() if message.bodies[0]["id"] in them]
        assert together in ([], [{body["id"] for body in message.bodies}])


# Who is told


async def test_a_notifier_tells_of_all_that_it_selects_and_once_where_the_object_says_the_same(
    sink: Sink,
) -> None:
    rule = {"on": ["Succeeded"], "webhook": {"secret": "hook"}}
    async with fleet(sink) as world:
        await world.apply("Notifier", "all", {"selector": {"team": "a"}, "notify": [rule]})
        await world.apply("BatchJob", "mine", work(), team="a")
        await world.apply("BatchJob", "both", told(), team="a")
        await world.apply("BatchJob", "theirs", work(), team="b")
        await world.apply("BatchJob", "away", work(), namespace="other", team="a")
        for name in ("mine", "both", "theirs"):
            world.local.finish(0, of=f"batchjob/{name}")
        world.local.finish(0, of="batchjob/away -n other")
        await until(world, lambda: delivered(world) == 2)
        assert sorted(it[0] for it in rows(world)) == ["batchjob/both", "batchjob/mine"]
        await world.crash()
        await world.apply("BatchJob", "later", work(), team="a")
        world.local.finish(0, of="batchjob/later")
        await until(world, lambda: delivered(world) == 3)
        await world.delete("Notifier", "all")
        await world.apply("BatchJob", "last", work(), team="a")
        world.local.finish(0, of="batchjob/last")
        await world.settle()
        assert len(rows(world)) == 3


async def test_a_level_of_a_budget_is_told_once_for_the_object_and_once_for_the_budget(
    sink: Sink,
) -> None:
    rule = {"on": ["BudgetLow"], "webhook": {"secret": "hook"}}
    async with fleet(sink) as world:
        world.local.price = 0.01
        budget = {"maxCost": 2, "warnAt": [40], "notify": [rule]}
        await world.apply("Budget", "team", budget, team="a")
        own = {"maxCost": 2, "warnAt": [40]}
        spec = tasks(2, parallelism=1, budget=own, notify=[rule])
        spec["template"]["timeoutSeconds"] = 100
        await world.apply("BatchJob", "a", spec, team="a")
        await world.later(95)
        world.local.finish(0)
        await until(world, lambda: delivered(world) == 2)
        await world.crash()
        await world.settle()
        assert sorted(it[0] for it in rows(world)) == ["batchjob/a", "budget/team"]
        datas = {it.json["data"]["kind"]: it.json["data"] for it in sink.requests}
        assert {it["budgetUsd"]["maxCost"] for it in datas.values()} == {2.0}
        assert datas["Budget"]["budgetUsd"]["warned"] == 40


async def test_nothing_of_a_secret_or_of_what_a_program_said_leaves_or_is_kept(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    sink.script += [500]
    async with fleet(sink) as world:
        await world.apply("BatchJob", "a", told())
        world.local.finish(0, ok=False, message=f"ValueError: {CANARY}")
        await tried(world, 1)
        await world.later(60)
        await until(world, lambda: delivered(world) == 1)
        assert CANARY in world.runs("a")[0].message, "the test says nothing"
        sent = " ".join(f"{it.body} {it.headers}" for it in sink.requests)
        kept = f"{world.database.state.execute('SELECT * FROM notices').fetchall()}"
        said = f"{world.database.events.execute('SELECT message FROM events').fetchall()}"
        for secret in (KEY, sink.url):
            assert not [it for it in (sent, kept, said, caplog.text) if secret in it]
        assert CANARY not in sent + kept


async def test_a_source_tells_a_commit_that_is_refused_once_and_the_next_one_again() -> None:
    remote = Remote()
    remote.push({"a.yaml": job("a")})
    rule = {"on": ["SourceFailed"], "webhook": {"secret": "hook"}}
    spec = {"git": {"url": "https://example.org/fleet.git"}}
    async with Fleet(keeper=partial(RemoteKeeper, remote=remote)) as world:
        await world.apply("Notifier", "all", {"notify": [rule]})
        await world.apply("Source", "fleet", spec)
        await world.settle()
        assert rows(world) == []
        remote.push({"a.yaml": job("a", parallelism=-1)})
        for _ in range(4):
            await world.later(60)
        await world.crash()
        await world.later(60)
        assert rows(world) == [("source/fleet", "SourceFailed", "Waiting", 0)]
        remote.push({"a.yaml": job("a", parallelism=-2)})
        await world.later(60)
        assert len(rows(world)) == 2


async def test_a_source_tells_each_commit_that_it_applies_with_its_repository() -> None:
    remote = Remote()
    remote.push({"a.yaml": job("a")})
    rule = {"when": ["SourceApplied", "SourceFailed"], "commitStatus": {"secret": "forge"}}
    spec = {"git": {"url": "https://example.org/fleet.git"}}
    async with Fleet(keeper=partial(RemoteKeeper, remote=remote)) as world:
        await world.apply("Notifier", "all", {"notify": [rule]})
        await world.apply("Source", "fleet", spec)
        await world.settle()
        remote.push({"a.yaml": job("a", parallelism=-1)})
        await world.later(60)
        remote.push({"a.yaml": job("a", parallelism=2)})
        for _ in range(3):
            await world.later(60)
        told = [(event, json.loads(body)) for event, body in bodies(world)]
        assert [it[0] for it in told] == ["SourceApplied", "SourceFailed", "SourceApplied"]
        assert {it[1]["repository"] for it in told} == {"https://example.org/fleet.git"}
        revisions = [it[1]["revision"] for it in told]
        assert len(set(revisions)) == 3

"""Each part of the engine does its work with no more than it says it needs."""

from __future__ import annotations

import asyncio
import json

import pytest

from fleetctl.controllers.kinds.retention_decision import RetentionLimits
from fleetctl.controllers.model import Alive, Ended, RunState
from fleetctl.engine.decide.intents import asset_plan
from fleetctl.engine.execute import start_specs
from fleetctl.engine.execute.orphan_sweep import sweep_orphans
from fleetctl.engine.execute.retention import forget_some
from fleetctl.engine.money.budgets import budget_status
from fleetctl.engine.observe.intake import Intake
from fleetctl.engine.observe.watcher import RunWatcher
from fleetctl.engine.shared.messages import Inbox, Observed, StartReplied, StartWaits
from fleetctl.engine.shared.part import EnginePart, EngineParts
from fleetctl.engine.sleeping import nudge_freed, nudge_starts
from fleetctl.engine.tick import Ticks
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.budget import BudgetSpec
from fleetctl.tracking.track import ResourceWork
from tests.unit.engine.engine_parts import Parts
from tests.unit.engine.fake_world import tasks

PRICED = {"limits": {"maxConcurrent": 1}, "prices": {"perHour": 3600.0}}


def started(parts: Parts, count: int = 1, **fields: object) -> str:
    """The uid of a job whose runs have their intents and no sandbox yet."""
    uid = parts.desired("BatchJob", "a", tasks(count, **fields))
    parts.decide(uid)
    return uid


def run_of(parts: Parts, uid: str) -> str:
    (run,) = parts.state.tracks[uid].work.history.live.values()  # type: ignore[union-attr]
    return run.name


async def test_the_inbox_wakes_who_waits_and_lets_news_gather() -> None:
    inbox = Inbox(gather_s=1e6)
    inbox.tell(StartReplied("r", "h", begun=True))
    await inbox.wait(1e6)
    assert len(inbox.facts) == 1
    inbox.rest()
    inbox.at_capacity = True
    inbox.tell(StartWaits("r", "Quota", "full", 0.0, account=True))
    await inbox.wait(1e6)  # what a person waits for does not gather


def test_events_are_kept_until_a_turn_writes_them_and_backoff_stays_in_its_bounds() -> None:
    parts = Parts()
    parts.state.say("u", "Reason", "a sentence", kind="Warning")
    (event,) = parts.state.events
    assert (event.reason, event.at_s) == ("Reason", parts.clock.now_s())
    most_s = 1.5 * parts.state.settings.retry_max_s
    assert all(0 < parts.state.backoff_s(tries) < most_s for tries in range(1, 60))


def test_rate_limiters_know_creates_of_an_earlier_controller() -> None:
    parts = Parts()
    with parts.store.transaction():
        parts.store.creates.add("local", parts.clock.now_s(), forget_until_s=0.0)
    assert list(parts.rate_limiters["local"].created()) == [parts.clock.now_s()]


def test_the_market_has_a_persons_price_before_the_providers() -> None:
    parts = Parts()
    parts.local.price = 0.5
    template = Template(python="pass")
    assert parts.market.price("local", template, "default") == 0.5
    uid = parts.desired("Provider", "local", PRICED)
    parts.reading.fresh_track(uid)
    assert parts.market.refresh()
    assert parts.market.price("local", template, "default") == 1.0
    assert parts.market.declared["local"].limits.max_concurrent == 1


def test_admission_leaves_room_by_the_tighter_limit() -> None:
    parts = Parts()
    parts.reading.fresh_track(parts.desired("Provider", "local", PRICED))
    parts.market.refresh()
    parts.admission.count(parts.clock.now_s())
    assert parts.admission.limit("local") == 1
    assert parts.admission.room(parts.clock.now_s()).places["local"].free == 1
    parts.admission.stopped("local", parts.clock.now_s())
    assert not parts.admission.exceeded("local")


def test_a_budget_counts_what_the_ledger_has() -> None:
    parts = Parts()
    uid = parts.desired("Budget", "b", {"maxCost": 10, "period": "total", "selector": {}})
    track = parts.track(uid)
    parts.budgets.take(uid)
    assert isinstance(track.spec, BudgetSpec)
    with parts.store.transaction():
        parts.charges.add(track, 4.0, 0.0)
        parts.charges.write()
    parts.budgets.begin_tick(parts.clock.now_s())
    account = parts.budgets.account(track, track.spec, parts.clock.now_s())
    status = budget_status(parts.state, track, account, parts.clock.now_s())
    assert (status["used"], status["left"], status["state"]) == (4.0, 6.0, "OK")


def test_a_pass_writes_the_intent_and_calls_nobody() -> None:
    parts = Parts()
    uid = started(parts, 2, parallelism=1)
    rows = [run for run, _ in parts.store.runs.of(uid)]
    assert [(run.index, run.state) for run in rows] == [(0, RunState.STARTING)]
    assert parts.local.asked == 0
    assert parts.state.owner_of == {rows[0].name: uid}
    assert json.loads(parts.store.resources.of(uid).status)["active"] == 1  # type: ignore[union-attr]


def test_reading_finds_live_runs_again_and_wants_them_observed() -> None:
    parts = Parts()
    uid = started(parts)
    track = parts.state.tracks[uid]
    parts.answers.handle_reply(track, StartReplied(run_of(parts, uid), "h", begun=True), 1_000.0)
    with parts.store.transaction():
        parts.records.write()
    parts.state.tracks.forget()
    parts.state.owner_of.clear()
    again = parts.track(uid)
    assert again.work is not None
    assert [run.state for run in again.work.history.live.values()] == [RunState.RUNNING]
    assert parts.looked == list(again.work.history.live)


async def test_effects_call_the_provider_for_what_is_written_and_tell_the_answer() -> None:
    parts = Parts()
    uid = started(parts)
    parts.effects.drive(parts.state.tracks[uid], parts.clock.now_s())
    await parts.state.inbox.wait(300.0)
    (fact,) = parts.state.inbox.facts
    assert isinstance(fact, StartReplied)
    assert parts.local.asked == 1
    await parts.effects.cancel_all()


def test_an_answer_makes_a_record_and_no_call() -> None:
    parts = Parts()
    uid = started(parts)
    name = run_of(parts, uid)
    wait = StartWaits(name, "NoCapacity", "no machine is free", 30.0)
    assert parts.answers.handle_reply(parts.state.tracks[uid], wait, 1_000.0)
    assert parts.state.tracks[uid].waits[name].reason == "NoCapacity"
    assert parts.state.queue.next_due_at_s() == 1_000.0 or len(parts.state.queue) == 1


def test_an_observation_ends_a_run_with_its_result() -> None:
    parts = Parts()
    uid = started(parts)
    name, track = run_of(parts, uid), parts.state.tracks[uid]
    intake = Intake(parts.answers, parts.observations)
    seen = Alive(name, "h", 1_000.0, 1)
    intake.observe(track, Observed("local", 1_000.0, seen), 1_000.0)
    end = Ended(
        run=name,
        handle="h",
        started_at_s=1_000.0,
        ended_at_s=1_001.0,
        ok=True,
        infrastructure=False,
        reason="Completed",
        message="",
        exit_code=0,
        journal_offset=2,
        result='{"a":1}',
    )
    assert intake.observe(track, Observed("local", 1_001.0, end), 1_001.0)
    with parts.store.transaction():
        parts.records.write()
    ((run, result),) = list(parts.store.runs.of(uid))
    assert (run.state, result) == (RunState.SUCCEEDED, '{"a":1}')


def test_the_end_of_a_sandbox_hurries_the_start_that_waits_longest() -> None:
    parts = Parts()
    uid = started(parts)
    name, track = run_of(parts, uid), parts.state.tracks[uid]
    parts.answers.handle_reply(
        track, StartWaits(name, "Quota", "full", 8_999.0, account=True), 1_000.0
    )
    assert track.calls[name].retry_at_s == 9_999.0
    nudge_freed(parts.state, "elsewhere")
    nudge_starts(parts.state, "SecretMissing")
    assert track.calls[name].retry_at_s == 9_999.0
    nudge_freed(parts.state, "local")
    assert track.calls[name].retry_at_s == 0.0


async def test_the_watcher_tells_what_a_provider_says_of_a_run() -> None:
    parts = Parts()
    uid = started(parts)
    parts.effects.drive(parts.state.tracks[uid], parts.clock.now_s())
    await parts.state.inbox.wait(300.0)
    parts.answers.handle_reply(parts.state.tracks[uid], parts.state.inbox.facts.pop(), 1_000.0)  # type: ignore[arg-type]
    parts.state.inbox.rest()
    watcher = RunWatcher(parts.state, parts.rate_limiters)
    watching = asyncio.ensure_future(watcher.run("local"))
    watcher.look(run_of(parts, uid))
    await parts.state.inbox.wait(300.0)
    watching.cancel()
    assert [type(fact) for fact in parts.state.inbox.facts] == [Observed]
    await parts.effects.cancel_all()


async def test_the_sweep_ends_what_has_no_record() -> None:
    parts = Parts()
    uid = started(parts)
    parts.effects.drive(parts.state.tracks[uid], parts.clock.now_s())
    await parts.state.inbox.wait(300.0)
    parts.state.tracks.forget()
    parts.clock.time_s += 1e6
    assert await sweep_orphans(parts.state, "local", parts.rate_limiters["local"]) == 1
    assert [box.alive for box in parts.local.boxes.values()] == [False]
    await parts.effects.cancel_all()


def test_what_is_over_sleeps_and_is_awake_when_it_is_wished_anew() -> None:
    parts = Parts()
    uid = started(parts)
    name, track = run_of(parts, uid), parts.state.tracks[uid]
    end = Ended(name, "h", 1_000.0, 1_001.0, False, False, "Error", "no", 1, 1)
    parts.observations.take(track, Observed("local", 1_001.0, end))
    with parts.store.transaction():
        parts.records.write()
    while uid in parts.state.tracks:
        parts.decide(uid)
        parts.state.tracks.get(uid, track).asset.freed = True
    assert list(parts.sleepers.awake(parts.clock.now_s())) == []
    parts.desired("BatchJob", "a", tasks(2))
    assert list(parts.sleepers.awake(parts.clock.now_s())) == [uid]


def test_retention_takes_what_is_old() -> None:
    parts = Parts()
    assert not forget_some(parts.state, RetentionLimits(max_age_s=0.0))


def test_an_asset_is_made_where_it_is_declared() -> None:
    parts = Parts()
    track = parts.track(parts.desired("Volume", "v", {}))
    plan = asset_plan(parts.state, parts.market, track)
    assert [type(action).__name__ for action in plan.actions] == ["EnsureVolume"]


def test_a_function_that_is_not_declared_is_waited_for() -> None:
    parts = Parts()
    template = Template(python="pass", runtime="function", function="warm")
    with pytest.raises(Exception, match="function/warm is not declared"):
        start_specs.resolve_template(parts.state, template, "default")


def test_a_turn_drives_what_it_made_durable() -> None:
    parts = Parts()
    uid = parts.desired("BatchJob", "a", tasks(1))
    driven: list[str] = []

    class Silent:
        """Effects that begin nothing."""

        def drive(self, track: object, now_s: float) -> None:
            rows = [run.state for run, _ in parts.store.runs.of(uid)]
            driven.extend(state.value for state in rows)

        def drop_all(self) -> None: ...

    ticks = Ticks(
        parts.state,
        sleepers=parts.sleepers,
        reading=parts.reading,
        passes=parts.passes,
        intake=Intake(parts.answers, parts.observations),
        records=parts.records,
        admission=parts.admission,
        effects=Silent(),  # type: ignore[arg-type]
        parts=parts.parts,
    )
    ticks.load()
    ticks.make()
    assert driven == ["Starting"]


class Resting(EnginePart):
    """A part that rests until there is a Queue, or an object with a budget."""

    kind = "Queue"
    rests = True
    field = "budget"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def begin_tick(self, _now_s: float) -> list[str]:
        self.asked.append("tick")
        return []

    def list_inputs(self, work: ResourceWork, _now_s: float) -> dict[str, object]:
        self.asked.append(work.resource.name)
        return {}


def test_a_part_rests_until_an_object_concerns_it() -> None:
    parts = Parts()
    resting = Resting()
    asked = EngineParts([resting], declared=parts.state.tracks.asset_kinds)
    plain = parts.track(parts.desired("BatchJob", "plain", tasks(1)))
    paid = parts.track(parts.desired("BatchJob", "paid", tasks(1, budget={"maxCost": 1})))

    def ask() -> list[str]:
        resting.asked.clear()
        for part in asked.awake("begin_tick"):
            part.begin_tick(0.0)
        for track in (plain, paid):
            assert track.work is not None
            asked.list_inputs(track.work, 0.0)
        return resting.asked

    assert ask() == ["paid"]
    parts.track(parts.desired("Queue", "q", {"quotas": [{"resource": "sandboxes", "nominal": 1}]}))
    assert ask() == ["tick", "plain", "paid"]

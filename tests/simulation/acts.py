"""What the person does in a play: specs at their times, then waiting for peace, then perhaps
deleting all.

`Progress` survives crashes: an act that was not finished is done again by the next incarnation, as
a person would repeat a command that got no answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fleetctl.common.errors import StoreError
from fleetctl.engine.engine import Engine
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.stores.base import Store
from tests.simulation import liveness
from tests.simulation.editing import carry_out
from tests.simulation.models import MODELS
from tests.simulation.objects import GONE, Expect
from tests.simulation.scenario import Desired
from tests.simulation.snapshot import read

if TYPE_CHECKING:
    from tests.simulation.runner import Play

POLL_S = 5.0

# Within this after the last fault all must be as desired: the longest work (seven tasks one after
# the other,
# three attempts of 90 s each), backoffs, the engine's longest retry waits and two full scans.
SETTLE_S = 3_600.0

# Peace lasts when nothing is written or changed for ten full scans of the engine.
PEACE_S = 600.0

# The other objects must be done this long before a provider that is down for long comes back.
OUTAGE_S = 3_000.0

DELETES_ALL_ONE_IN = 3
POKE_LOST = 0.2


@dataclass(slots=True)
class Progress:
    desired_done: int = 0
    bulkhead_held: bool = False
    settled: bool = False
    peaceful: bool = False
    deleting: bool = False
    over: bool = False


def plan_outages(play: Play) -> None:
    """When providers are down, and when they have little room."""
    world, rng = play.world, play.rng
    for it in play.scenario.quotas:
        world.quotas.append((it.provider, it.from_s, it.to_s, it.slots))
    for name in play.scenario.providers:
        least_s, most_s = MODELS[name].down_s
        if play.options.faults and most_s > 0.0 and rng.random() < 0.4:
            from_s = rng.uniform(0.0, world.faults_end_s)
            world.down[name] = (
                from_s,
                min(world.faults_end_s, from_s + rng.uniform(least_s, most_s)),
            )
    if play.scenario.outage and play.options.faults:
        world.down[play.scenario.outage] = (0.0, world.faults_end_s + OUTAGE_S)


async def perform(play: Play, store: Store, engine: Engine) -> None:
    """All acts that are left. Returns when the play is over."""
    progress = play.progress
    while progress.desired_done < len(play.scenario.desired_rows):
        desired = play.scenario.desired_rows[progress.desired_done]
        await asyncio.sleep(max(0.0, desired.at_s - play.timeline.now_s))
        await _ask(play, store, engine, desired)
        progress.desired_done += 1
    await asyncio.sleep(max(0.0, play.world.faults_end_s - play.timeline.now_s))
    if play.scenario.outage and play.options.faults and not progress.bulkhead_held:
        await _hold_bulkhead(play)
    for desired in play.scenario.afterwards:
        await _ask(play, store, engine, desired)
    if not progress.settled:
        await _settle(play, engine, play.scenario.expect)
        _must_be_none(play, liveness.unfaithful(play.scene, store))
        play.outcome.ends = liveness.end_state(play.scene, play.scenario.expect)
        progress.settled = True
    if not progress.peaceful:
        await _keep_peace(play, store, engine)
        progress.peaceful = True
    if play.seed % DELETES_ALL_ONE_IN == 0:
        await _delete_all(play, store, engine)
    progress.over = True


async def _ask(play: Play, store: Store, engine: Engine, desired: Desired) -> str:
    """Until the spec is taken; what is refused must have left no trace (I11)."""
    while True:
        try:
            answer = carry_out(store, desired, now_s=play.clock.now_s())
        except StoreError:
            if read(store) != play.scene.now:
                play.breach("I11: what was refused is not in the store -- it is")
            await asyncio.sleep(1.0)
            continue
        # A lost word must be made good by the engine's scan.
        if not play.world.chance(POKE_LOST):
            engine.state.inbox.wake()
        return answer


async def _hold_bulkhead(play: Play) -> None:
    """I15: with one object unreadable and one provider down, the others are done in their time."""
    good = {key: end for key, end in play.scenario.expect.items() if key[1] == "good"}
    ends_s = play.world.down[play.scenario.outage][1]
    await _wait(
        play,
        lambda: liveness.not_at_their_ends(play.scene, good),
        until_s=ends_s - 1.0,
        sentence="I15",
    )
    play.progress.bulkhead_held = True
    await asyncio.sleep(max(0.0, ends_s - play.timeline.now_s))


async def _settle(play: Play, engine: Engine, ends: dict[tuple[str, str], Expect]) -> None:
    def missing() -> Iterator[str]:
        yield from liveness.unsettled(play.scene, ends)
        if not engine.is_resolved():
            yield "what is believed gone is still being ended"

    until_s = play.timeline.now_s + SETTLE_S + play.scenario.patience_s
    await _wait(play, missing, until_s=until_s, sentence="I14")


async def _wait(
    play: Play, missing: Callable[[], Iterator[str]], *, until_s: float, sentence: str
) -> None:
    """Until nothing is missing; a breach when something still is at `until_s`."""
    while (first := next(missing(), None)) is not None:
        if play.timeline.now_s > until_s:
            play.breach(f"{sentence}: what is wished is reached in bounded time -- {first}")
        await asyncio.sleep(POLL_S)


async def _keep_peace(play: Play, store: Store, engine: Engine) -> None:
    """I14b, I22: what is reached stays; wishing it again writes nothing and calls no provider."""
    for desired in _repeatable(play):
        answer = await _ask(play, store, engine, desired)
        if answer != "unchanged":
            what = f"{desired.kind}/{desired.name} is {answer}"
            play.breach(f"I22: the same manifest again changes nothing -- {what}")
    await asyncio.sleep(POLL_S)
    # What the last of the faults left may be seen only now, such as a disk that was full.
    await _settle(play, engine, play.scenario.expect)
    before, mutations = play.scene.now, play.world.mutations
    await asyncio.sleep(PEACE_S)
    _must_be_none(play, liveness.unrest(before, play.scene.now))
    if play.world.mutations != mutations:
        count = play.world.mutations - mutations
        play.breach(
            f"I14b: in peace no provider is asked to change anything -- it was {count} times"
        )
    _must_be_none(play, liveness.unsettled(play.scene, play.scenario.expect))


def _repeatable(play: Play) -> Iterator[Desired]:
    """The last manifest of each object that was neither suspended by hand nor deleted.

    One that was refused is not: applying it again asks the provider again.
    """
    refused = {
        (it.kind, asset_name(it.name, it.namespace))
        for it in play.scene.now.resources.values()
        if json.loads(it.status or "{}").get("reason") == "Refused"
    }
    by_hand = {(it.kind, it.name) for it in play.scenario.desired_rows if it.verb != "apply"}
    applied = [it for it in play.scenario.desired_rows if it.verb == "apply"]
    written = [it for one in applied for it in (replace(one, beside=()), *one.beside)]
    last = {(it.kind, it.name): it for it in written}
    return (desired for key, desired in last.items() if key not in by_hand | refused)


async def _delete_all(play: Play, store: Store, engine: Engine) -> None:
    """I23, I20: from every state an object can be deleted, and then disappears."""
    for resource in list(play.scene.now.resources.values()):
        if resource.deleted_at_s is None:
            called = asset_name(resource.name, resource.namespace)
            desired = Desired(0.0, "delete", resource.kind, called)
            await _ask(play, store, engine, desired)
    await _settle(play, engine, dict.fromkeys(play.scenario.expect, GONE))
    _must_be_none(
        play, (f"I5: the row of {it.key} is left" for it in play.scene.now.resources.values())
    )


def _must_be_none(play: Play, sentences: Iterator[str]) -> None:
    for text in sentences:
        play.breach(text)

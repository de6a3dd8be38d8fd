"""What must be reached once faults and specs have stopped, and stay so (I14, I20, I22, I23, I26).

`unsettled` names what is not as desired; empty means that desired and actual are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.controllers.model import LIVE_STATES, Resource, RunState
from fleetctl.specs.values.namespaces import asset_name
from fleetctl.stores.base import Store
from tests.simulation.objects import Expect
from tests.simulation.observing import metric_value
from tests.simulation.scene import Scene
from tests.simulation.snapshot import Snapshot, spec, status

Ends = Mapping[tuple[str, str], Expect]


def unsettled(scene: Scene, ends: Ends) -> Iterator[str]:
    """I14: within a bound after the last fault, every object is as it was desired and nothing is
    left over.
    """
    yield from _busy(scene)
    yield from not_at_their_ends(scene, ends)
    for resource in scene.now.resources.values():
        if resource.deleted_at_s is not None:
            yield f"I20: {resource.key} is deleted and still there"
    for box in scene.world.alive():
        if box.owner == scene.store_id:
            yield f"I1: sandbox `{box.sandbox}` is alive and nothing needs it"


def not_at_their_ends(scene: Scene, ends: Ends) -> Iterator[str]:
    """What of the expected ends is not reached."""
    for (kind, name), expect in ends.items():
        yield from _not_at_its_end(scene, kind, name, expect)


def unfaithful(scene: Scene, store: Store) -> Iterator[str]:
    """I2: what was reported and is recorded of a success is what it really reported."""
    for run in scene.now.runs.values():
        work = scene.work_of(run)
        if run.state is not RunState.SUCCEEDED or work is None:
            continue
        really = [metric_value(work, seq) for seq in range(work.metrics)]
        recorded = [metric.value for metric in store.runs.metrics_of(run.name)]
        if recorded != really:
            yield f"`{run.name}` reported {really} and {recorded} is recorded"


def end_state(scene: Scene, ends: Ends) -> dict[str, object]:
    """I26: what a user gets, without what faults may change: attempts, times, ids."""
    state: dict[str, object] = {}
    for kind, name in ends:
        resource = scene.now.find(kind, name)
        if resource is None:
            state[f"{kind}/{name}"] = "Gone"
            continue
        seen = status(resource)
        results = {
            run.index: scene.now.results[run.name]
            for run in scene.now.runs_of(resource.uid)
            if run.state is RunState.SUCCEEDED
        }
        shown = {index: results[index] for index in indexes(str(seen.get("completedIndexes", "")))}
        state[f"{kind}/{name}"] = (
            seen.get("phase"),
            seen.get("failedIndexes"),
            shown,
            seen.get("best"),
        )
    return state


def indexes(text: str) -> list[int]:
    """`0-2,5` as numbers."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _busy(scene: Scene) -> Iterator[str]:
    for run in scene.now.runs.values():
        if run.state in LIVE_STATES:
            yield f"`{run.name}` is {run.state}"
        elif run.sandbox_open:
            yield f"the sandbox of `{run.name}` is open"
    for name in scene.world.landing:
        yield f"the start of `{name}` is on its way"


def _not_at_its_end(scene: Scene, kind: str, name: str, expect: Expect) -> Iterator[str]:
    resource = scene.now.find(kind, name)
    if expect.phase == "Gone":
        if resource is not None:
            yield f"I20: {kind}/{name} was deleted and is still there"
        return
    if resource is None:
        yield f"I11: {kind}/{name} was applied and is not there"
        return
    seen = status(resource)
    phase = seen.get("phase")
    if seen.get("observedGeneration") != resource.generation:
        yield f"{resource.key} is at generation {resource.generation}; its status is older"
    if phase not in expect.phase.split("|"):
        yield f"{resource.key} is {phase} ({seen.get('reason')}); wished is {expect.phase}"
    if expect.waits_for and phase not in ("Succeeded", "Failed"):
        backs_off = any("backing off" in text for text in seen.get("waitingOn", ()))
        if backs_off or seen.get("reason") not in expect.waits_for:
            yield f"{resource.key} waits because of {seen.get('reason')}, not of {expect.waits_for}"
    if expect.succeeded is not None and phase == expect.phase:
        yield from _not_the_right_units(scene, resource, expect)
    yield from _volume_missing(scene, resource, expect)
    if "ttlSecondsAfterFinished" in spec(resource) and not seen.get("scratchFreed"):
        yield f"{resource.key} is over and its scratch is not freed"


def _not_the_right_units(scene: Scene, resource: Resource, expect: Expect) -> Iterator[str]:
    seen = status(resource)
    for name, desired_now in (
        ("completedIndexes", expect.succeeded),
        ("failedIndexes", expect.failed),
    ):
        found = indexes(str(seen.get(name, "")))
        if desired_now is not None and found != sorted(desired_now):
            yield f"{resource.key} has {name} {found}; wished are {sorted(desired_now)}"
    rows = {run.index for run in scene.now.runs_of(resource.uid) if run.state is RunState.SUCCEEDED}
    completed = indexes(str(seen.get("completedIndexes", "")))
    if seen.get("succeeded") != len(completed) or not rows.issuperset(completed):
        counted = f"{resource.key} counts {seen.get('succeeded')} successes"
        yield f"I2: {counted}; its records say {sorted(rows)}"


def _volume_missing(scene: Scene, resource: Resource, expect: Expect) -> Iterator[str]:
    if expect.phase == "Ready" and resource.kind == "Volume":
        names = set().union(*scene.world.volumes.values())
        if asset_name(resource.name, resource.namespace) not in names:
            yield f"{resource.key} is Ready and does not exist"


def unrest(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """I14b: in peace nothing is written."""
    for name, run in after.runs.items():
        if before.runs.get(name) != run:
            yield f"I14b: in peace nothing is written -- the record of `{name}` was"
    for uid, resource in after.resources.items():
        old = before.resources.get(uid)
        if old is not None and old != resource:
            changed = [it for it in resource.__slots__ if getattr(old, it) != getattr(resource, it)]
            yield f"I14b: in peace nothing is written -- {resource.key} has other {changed}"
    for uid in before.resources.keys() ^ after.resources.keys():
        yield f"I14b: in peace nothing is written -- {uid} came or went"

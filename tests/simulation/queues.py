"""Objects in queues: the scenarios, and what must hold of who starts, who waits and who makes room.

What a run takes is worked out here from the spec of its object alone: the number of its nodes.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator

from fleetctl.controllers.model import LIVE_STATES, Resource, Run, RunState
from fleetctl.specs.blocks.placement import rank_of
from tests.simulation import objects
from tests.simulation.objects import READY, Spec, Wanted
from tests.simulation.scenario import Desired, Scenario, apply, apply_all, later, make, say
from tests.simulation.scene import Check, Scene
from tests.simulation.snapshot import Snapshot, spec, status

NODES_MAX = 3
RESOURCE = "sandboxes"


def queue(rng: random.Random, name: str, most: int, **more: object) -> Wanted:
    said: Spec = {
        "quotas": [{"resource": RESOURCE, "nominal": most}],
        "strategy": rng.choice(("StrictFIFO", "BestEffortFIFO")),
        "overtakeSeconds": rng.choice((5, 60, 600)),
    }
    return Wanted("Queue", name, said | more, READY)


def _job(rng: random.Random, provider: str, name: str, of: str, **more: object) -> Wanted:
    limit = rng.randint(0, 1)
    tasks = [
        objects.task(rng, number=number, backoff_limit=limit, may_fail=False)
        for number in range(rng.randint(1, 4))
    ]
    made = objects.job_of(rng, tasks, provider=provider, name=name, backoff_limit=limit)
    reuse = rng.choice((1, 1, 1, 3, "all"))
    priority = rng.choice((0, 0, 5, "low", "high"))
    # Preempted work takes its time again, which is no failure of it.
    return made.changed(queue=of, priority=priority, sandbox={"reuse": reuse}, **more)


def _training(rng: random.Random, provider: str, name: str, of: str) -> Wanted:
    made = objects.training(rng, provider=provider, name=name)
    return made.changed(queue=of, priority=rng.choice((0, 5, "high")))


def _one(rng: random.Random, name: str, provider: str) -> Scenario:
    """A queue whose quota perhaps changes, or that comes late, and work of several priorities."""
    stops = {"withinQueue": rng.choice(("Never", "LowerPriority", "LowerPriority"))}
    gpu = queue(rng, "gpu", rng.randint(NODES_MAX, 4), preemption=stops)
    work = [_job(rng, provider, it, "gpu") for it in ("one", "two", "three")]
    work.append(_training(rng, provider, "train", "gpu"))
    rng.shuffle(work)
    rows: list[Desired] = [apply(rng.choice((0.0, 0.0, later(rng))), gpu)]
    if rng.random() < 0.3:
        rows.append(apply_all(0.0, *work[:2]))
        work_later = work[2:]
    else:
        work_later = work
    rows += [apply(rng.choice((0.0, later(rng))), it) for it in work_later]
    if rng.random() < 0.4:
        at_s = max(row.at_s for row in rows) + later(rng)
        gpu = queue(rng, "gpu", rng.randint(NODES_MAX, 5), preemption=stops)
        rows.append(apply(at_s, gpu))
    if rng.random() < 0.2:
        at_s = max(row.at_s for row in rows) + later(rng)
        rows += [say(at_s, "delete", gpu), apply(at_s + rng.choice((0.1, 20.0)), gpu)]
    return make(name, provider, rows, gpu, *work)


def _fair(rng: random.Random, name: str, provider: str) -> Scenario:
    """Namespaces take turns."""
    share = {"weights": {"team": rng.choice((1, 2))}}
    gpu = queue(rng, "gpu", rng.randint(2, 4), fairShare=share)
    work = [
        _job(rng, provider, f"{space}{it}", "gpu")
        for space in ("", "team.")
        for it in ("one", "two")
    ]
    rng.shuffle(work)
    rows = [apply(0.0, gpu), *(apply(rng.choice((0.0, later(rng))), it) for it in work)]
    return make(name, provider, rows, gpu, *work)


def _cohort(rng: random.Random, name: str, provider: str) -> Scenario:
    """Two queues that lend each other, and take back."""
    takes_back = {"reclaimWithinCohort": rng.choice(("Never", "LowerPriority", "Any", "Any"))}
    queues = [
        queue(rng, it, rng.randint(1, 3), cohort="lab", preemption=takes_back)
        for it in ("gpu", "cpu")
    ]
    work = [_job(rng, provider, f"{it}-{of}", of) for it in ("one", "two") for of in ("gpu", "cpu")]
    rng.shuffle(work)
    rows = [*(apply(0.0, it) for it in queues)]
    rows += [apply(rng.choice((0.0, later(rng))), it) for it in work]
    return make(name, provider, rows, *queues, *work)


NAMED: dict[str, Callable[[random.Random, str, str], Scenario]] = {
    "queue": _one,
    "queue-fair": _fair,
    "queue-cohort": _cohort,
}


def what_is_there_is_within_the_quota(scene: Scene) -> Iterator[str]:
    """I41: at no moment more sandboxes of a queue's work are there than its quota, or that of its
    cohort, has allowed since the first of them was asked for.
    """
    held: dict[str, float] = defaultdict(float)
    since_s: dict[str, float] = {}
    for box in scene.world.alive():
        resource = scene.now.resources.get(box.uid)
        if resource is None or box.twin or not spec(resource).get("queue"):
            continue
        run = scene.now.runs.get(box.sandbox)
        if run is None or not run.queued:
            continue  # it began before its object was in a queue
        shared = _shared(scene.now, spec(resource)["queue"])
        held[shared] += _takes(resource)
        since_s[shared] = min(since_s.get(shared, box.asked_at_s), run.created_at_s)
    for shared, many in held.items():
        most = scene.limit_since(f"queue {shared}", since_s[shared])
        if most is not None and many > most:
            yield f"{many:g} sandboxes of {shared} are there; it may have {most}"


def quotas_are_known(scene: Scene) -> Iterator[str]:
    """I41 needs to know since when which quota was in force."""
    found: dict[str, int] = defaultdict(int)
    for resource in scene.now.resources.values():
        if resource.kind == "Queue" and resource.deleted_at_s is None:
            found[_shared(scene.now, resource.name)] += spec(resource)["quotas"][0]["nominal"]
    for shared, most in found.items():
        known = scene.limits[f"queue {shared}"]
        if not known or known[-1][1] != most:
            known.append((scene.world.now_s, most))
    yield from ()


def nobody_starts_before_who_comes_first(scene: Scene) -> Iterator[str]:
    """I42: no run starts in a queue while another object of it, that goes on waiting, comes first
    by its priority and could have started in its place.
    """
    for resource, run in _starting(scene):
        if _shares(scene, resource) is not None:
            continue
        for other in scene.now.resources.values():
            higher = _rank(other) > _rank(resource) and _waits(scene, other, of=resource)
            if higher and _fits(scene, other, instead=resource):
                yield f"`{run.name}` starts, and {other.key} of a higher priority waits"


def namespaces_take_turns(scene: Scene) -> Iterator[str]:
    """I43: where namespaces take turns, none starts another run while one that has less by its
    weight goes on waiting and could have started in its place.
    """
    for resource, run in _starting(scene):
        weights = _shares(scene, resource)
        if weights is None:
            continue
        before = _used_by(scene, resource, weights) - _takes(resource) / weights.get(
            resource.namespace, 1.0
        )
        for other in scene.now.resources.values():
            if other.namespace == resource.namespace or not _waits(scene, other, of=resource):
                continue
            theirs = _used_by(scene, other, weights)
            if theirs < before - 1e-9 and _fits(scene, other, instead=resource):
                yield f"`{run.name}` starts, and {other.key} waits, whose namespace has less"


def who_makes_room_has_not_failed(scene: Scene) -> Iterator[str]:
    """I44: a run that was asked to make room for others ends as stopped, or with the success that
    it came to; never as a failure or a loss.
    """
    for run in scene.changed():
        before = scene.before.runs.get(run.name)
        if before is None or before.state is not RunState.STOPPING or before.reason != "Preempted":
            continue
        if run.state in (RunState.FAILED, RunState.LOST):
            yield f"`{run.name}` made room and is recorded as {run.state}: {run.reason}"


def who_makes_room_comes_behind(scene: Scene) -> Iterator[str]:
    """I45: what is asked to make room has a lower priority than somebody who waits in its queue, or
    its queue borrows what another one takes back.
    """
    for run in scene.changed():
        before = scene.before.runs.get(run.name)
        asked = run.state is RunState.STOPPING or run.state is RunState.STOPPED
        if run.reason != "Preempted" or not asked or (before and before.reason == "Preempted"):
            continue
        mine = scene.now.resources[run.uid]
        if not any(
            _before(scene, other, mine)
            for snapshot in (scene.before, scene.now)
            for other in snapshot.resources.values()
        ):
            yield f"`{run.name}` is to make room, and nobody who waits comes before it"


QUEUE_COMMIT_CHECKS: tuple[Check, ...] = (
    quotas_are_known,
    nobody_starts_before_who_comes_first,
    namespaces_take_turns,
    who_makes_room_has_not_failed,
    who_makes_room_comes_behind,
)
QUEUE_EFFECT_CHECKS: tuple[Check, ...] = (what_is_there_is_within_the_quota,)


def _starting(scene: Scene) -> Iterator[tuple[Resource, Run]]:
    """New runs, also in sandboxes that take tasks in turn, with their objects."""
    for run in scene.changed():
        resource = scene.now.resources.get(run.uid)
        fresh = run.name not in scene.before.runs
        if resource is not None and fresh and run.state is RunState.STARTING and run.queued:
            yield resource, run


def _waits(scene: Scene, other: Resource, *, of: Resource) -> bool:
    """It waited in this queue before the last commit and waits after it."""
    before = scene.before.resources.get(other.uid)
    if before is None or other.uid == of.uid or other.deleted_at_s is not None:
        return False
    same = before.generation == other.generation and _in_line(before) and _in_line(other)
    return same and spec(other).get("queue") == spec(of)["queue"]


def _in_line(resource: Resource) -> bool:
    """Its queue, and nothing else, lets no more of it start."""
    current = status(resource).get("observedGeneration") == resource.generation
    return current and bool(status(resource).get("queued", {}).get("asks"))


def _before(scene: Scene, other: Resource, mine: Resource) -> bool:
    if not _in_line(other) or other.uid == mine.uid:
        return False
    theirs, own = spec(other)["queue"], spec(mine)["queue"]
    if theirs == own:
        return _rank(other) > _rank(mine)
    return _shared(scene.now, theirs) == _shared(scene.now, own)


def _rank(resource: Resource) -> int:
    return rank_of(spec(resource).get("priority", 0))


def _takes(resource: Resource) -> int:
    nodes = spec(resource).get("nodes", 1)
    return int(nodes["max"] if isinstance(nodes, dict) else nodes)


def _used(scene: Scene, name: str, *, namespace: str | None = None) -> int:
    """By the records: sandboxes of this queue's work."""
    boxes = {
        run.sandbox: run.uid
        for run in scene.now.runs.values()
        if run.queued and (run.state in LIVE_STATES or run.sandbox_open)
    }
    owners = [scene.now.resources[uid] for uid in boxes.values()]
    return sum(
        _takes(it)
        for it in owners
        if spec(it).get("queue") == name and namespace in (None, it.namespace)
    )


def _used_by(scene: Scene, resource: Resource, weights: dict[str, float]) -> float:
    used = _used(scene, spec(resource)["queue"], namespace=resource.namespace)
    return used / weights.get(resource.namespace, 1.0)


def _fits(scene: Scene, other: Resource, *, instead: Resource) -> bool:
    """Returns whether the other would have had room for a run without this start."""
    row = scene.now.find("Queue", spec(other)["queue"])
    if row is None or spec(row).get("suspend") or spec(row).get("cohort"):
        return False
    left = spec(row)["quotas"][0]["nominal"] - _used(scene, row.name) + _takes(instead)
    return bool(_takes(other) <= left)


def _shares(scene: Scene, resource: Resource) -> dict[str, float] | None:
    row = scene.now.find("Queue", spec(resource)["queue"])
    share = spec(row).get("fairShare") if row is not None else None
    return None if share is None else dict(share.get("weights", {}))


def _shared(now: Snapshot, name: str) -> str:
    """The cohort of a queue, or itself; also of one that is gone for a while."""
    row = now.find("Queue", name)
    return str(spec(row).get("cohort") or name) if row is not None else name

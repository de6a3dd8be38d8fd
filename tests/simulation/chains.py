"""Objects that depend on others: the scenarios, and what must hold of what begins and of what is
taken.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

from fleetctl.controllers.model import CACHED, Resource, Run, RunState
from fleetctl.specs.values.namespaces import KIND_OF
from fleetctl.tracking.annotations import RELEASED, RESULTS
from tests.simulation import objects
from tests.simulation.objects import Expect, Spec, Wanted
from tests.simulation.scenario import Desired, Scenario, apply, apply_all, later, make, say
from tests.simulation.scene import Check, Scene
from tests.simulation.snapshot import parsed, spec, status

_OTHER = {"command": ["work"], "env": {"shift": "7"}, "timeoutSeconds": 90}
_PHASES = {"Succeeded": ("Succeeded",), "Complete": ("Succeeded",), "Failed": ("Failed",)}


def _first(rng: random.Random, provider: str, name: str = "x", *, fails: bool = False) -> Wanted:
    limit = rng.randint(0, 1)
    tasks = [
        objects.task(rng, number=number, backoff_limit=limit, may_fail=False)
        for number in range(rng.randint(1, 3))
    ]
    if fails:
        tasks[0]["fails"] = 99
    return objects.job_of(rng, tasks, provider=provider, name=name, backoff_limit=limit)


def _chain(rng: random.Random, name: str, provider: str) -> Scenario:
    """x, then y, then z; x is perhaps another program later on, before y began or in its middle."""
    fails, fails_later = rng.random() < 0.3, rng.random() < 0.2
    x = _first(rng, provider, fails=fails)
    y = _first(rng, provider, "y").changed(dependsOn=[{"job": "x"}], parallelism=1)
    skips = rng.choice(("Fail", "Skip"))
    z = _first(rng, provider, "z").changed(dependsOn=[{"job": "y"}], onDependencyFailed=skips)
    beside = _first(rng, provider, "beside")
    beside = beside.changed(dependsOn=[{"job": "x", "condition": "Finished"}])
    listed = [x, y, z, beside]
    if rng.random() < 0.3:
        new = _first(rng, provider, fails=fails_later).changed(template=_OTHER)
        rows = [apply(0.0, x), apply_all(later(rng), *rng.sample([y, z, beside], 3), new)]
        return _ending(name, provider, rows, listed, (fails_later,), skips)
    rng.shuffle(listed)
    rows = [apply(0.0, it) if rng.random() < 0.7 else apply(later(rng), it) for it in listed]
    changes = rng.random() < 0.7
    if changes:
        rows += _change(rng, rows, provider, x, fails=fails_later)
    if rng.random() < 0.2:
        there_s = next(row.at_s for row in rows if row.name == y.name)
        rows.append(say(there_s + later(rng), "suspend", y))
        rows.append(say(rows[-1].at_s + later(rng), "resume", y))
    # It may have begun before, and then it goes on.
    fails_how = (fails, fails_later) if changes else (fails,)
    return _ending(name, provider, rows, [x, y, z, beside], fails_how, skips)


def _ending(
    name: str,
    provider: str,
    rows: list[Desired],
    listed: list[Wanted],
    fails: tuple[bool, ...],
    skips: str,
) -> Scenario:
    """fails: whether each of the programs of x fails, the last one last."""
    x, y, z, beside = sorted(listed, key=lambda it: "xyzb".index(it.name[0]))
    ends = ["Failed" if fails[-1] else "Succeeded"]
    if fails[-1] and not fails[0]:
        ends.append("Succeeded")
    third = "Failed" if skips == "Fail" else "Skipped"
    expected = (
        x.changed(Expect("Failed" if fails[-1] else "Succeeded")),
        y.changed(Expect("|".join(ends))),
        z.changed(Expect("|".join(third if it == "Failed" else it for it in ends))),
        beside.changed(Expect("Succeeded")),
    )
    return make(name, provider, rows, *expected)


def _change(
    rng: random.Random, rows: list[Desired], provider: str, x: Wanted, *, fails: bool
) -> list[Desired]:
    """x becomes another program, alone; or it goes, and comes again."""
    at_s = max(row.at_s for row in rows) + later(rng)
    new = _first(rng, provider, fails=fails).changed(template=_OTHER)
    if rng.random() < 0.3:
        return [say(at_s, "delete", x), apply(at_s + later(rng), new)]
    return [apply(at_s, new)]


def _results(rng: random.Random, name: str, provider: str) -> Scenario:
    """The results of x are the tasks of y; x is perhaps another program, and both come again."""
    x = _first(rng, provider)
    where = rng.choice(("state = 'Succeeded'", "result ->> 'loss' > 2", "idx <> 1"))
    y: Spec = {
        "tasks": {"fromResults": {"job": "x", "where": where, "types": {"loss": "number"}}},
        "parallelism": rng.randint(1, 2),
        "placement": {"provider": provider},
        "template": {"command": ["work"]},
    }
    taking = Wanted("BatchJob", "y", y, Expect("Succeeded"))
    after = _first(rng, provider, "z").changed(dependsOn=[{"job": "y"}])
    rows = [apply(0.0, x), apply(rng.choice((0.0, later(rng))), taking), apply(0.0, after)]
    if rng.random() < 0.6:
        at_s = max(row.at_s for row in rows) + later(rng)
        x = x.changed(template=_OTHER)
        rows += [apply(at_s, x), apply(at_s + rng.choice((0.0, later(rng))), taking)]
    return make(name, provider, rows, x, taking, after.changed(Expect("Succeeded")))


NAMED: dict[str, Callable[[random.Random, str, str], Scenario]] = {
    "chain": _chain,
    "chain-results": _results,
}


def nothing_begins_before_what_it_depends_on(scene: Scene) -> Iterator[str]:
    """I34: of new work nothing begins before all that it depends on has come out as it must, each
    by its newest spec; what has begun goes on.
    """
    for resource, runs in _beginning(scene):
        work = _work(resource)
        if work in scene.released.setdefault(resource.uid, set()):
            continue
        for entry in spec(resource).get("dependsOn", ()):
            if because := _not_met(scene, resource, entry):
                yield f"`{runs[0].name}` begins, and {because}"
        scene.released[resource.uid].add(work)


def work_is_released_once(scene: Scene) -> Iterator[str]:
    """I35: what was noted of the release of a work is not noted again for the same work."""
    for uid, resource in scene.now.resources.items():
        before = scene.before.resources.get(uid)
        if before is None or RELEASED not in before.annotations:
            continue
        same = _work(before) == _work(resource)
        if same and before.annotations[RELEASED] != resource.annotations.get(RELEASED):
            told = f"{before.annotations[RELEASED]}, then {resource.annotations.get(RELEASED)}"
            yield f"{resource.key} was released twice: {told}"


def tasks_are_the_results_of_what_is_over(scene: Scene) -> Iterator[str]:
    """I36: results are taken of a job that is over by its newest spec, as they are recorded there,
    and what begins has them for its parameters.
    """
    for uid, resource in scene.now.resources.items():
        taken = parsed(resource.annotations.get(RESULTS, ""))
        before = scene.before.resources.get(uid)
        known = before.annotations.get(RESULTS) if before is not None else None
        if not taken or taken["stale"] or resource.annotations[RESULTS] == known:
            continue
        giver = scene.now.find("BatchJob", spec(resource)["tasks"]["fromResults"]["job"])
        if giver is None or not _over(giver) or status(giver)["phase"] != "Succeeded":
            yield f"{resource.key} takes results of a job that is not over"
            continue
        newest = {run.index: run for run in scene.now.runs_of(giver.uid)}
        for index, params in taken["rows"]:
            result = json.loads(scene.now.results[newest[index].name] or "null")
            if result != params:
                yield f"{resource.key} takes {params} as the result of {index}; it is {result}"
    for resource, runs in _beginning(scene):
        rows = dict(parsed(resource.annotations.get(RESULTS, "")).get("rows", ()))
        for run in runs if "fromResults" in spec(resource).get("tasks", {}) else ():
            if parsed(run.params) != rows.get(run.index):
                yield f"`{run.name}` begins with {run.params}; its row is {rows.get(run.index)}"


CHAIN_CHECKS: tuple[Check, ...] = (
    tasks_are_the_results_of_what_is_over,
    nothing_begins_before_what_it_depends_on,
    work_is_released_once,
)


def _beginning(scene: Scene) -> Iterator[tuple[Resource, list[Run]]]:
    """Objects that depend on others, with their runs that are new in the last commit."""
    for uid, resource in scene.now.resources.items():
        if "dependsOn" not in resource.spec and "fromResults" not in resource.spec:
            continue
        runs = [run for run in scene.now.runs_of(uid) if run.name not in scene.before.runs]
        # Of a cached one the record comes with its end.
        runs = [it for it in runs if it.state is RunState.STARTING or it.reason == CACHED]
        if runs:
            yield resource, runs


def _work(resource: Resource) -> str:
    """What it does and what it waits for."""
    told = [spec(resource).get(key) for key in ("tasks", "template", "dependsOn", "search")]
    return json.dumps([*told, resource.annotations.get(RESULTS)])


def _not_met(scene: Scene, resource: Resource, entry: dict[str, str]) -> str:
    field = next(field for field in KIND_OF if field in entry)
    other = scene.now.find(KIND_OF[field], entry[field])
    if other is None:
        return f"{field} {entry[field]} is not there"
    if not _over(other):
        return f"{other.key} is not over by its newest spec"
    condition, phase = entry.get("condition", "Succeeded"), status(other)["phase"]
    if condition != "Finished" and phase not in _PHASES[condition]:
        return f"{other.key} is {phase}"
    return ""


def _over(resource: Resource) -> bool:
    seen = status(resource)
    current = seen.get("observedGeneration") == resource.generation
    return current and seen.get("phase") in ("Succeeded", "Failed", "Skipped")

"""Searches that change while they run, and searches that end by a target: their scenarios, and what
must hold of what they count.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

from fleetctl.controllers.model import Resource, Run, RunState
from tests.simulation import objects
from tests.simulation.objects import Expect, Spec
from tests.simulation.observing import LOSSES
from tests.simulation.scenario import Scenario, apply, later, make
from tests.simulation.scene import Check, Scene
from tests.simulation.snapshot import spec, status


def _search_changes(rng: random.Random, name: str, provider: str) -> Scenario:
    """The program changes, and all that it found before was better."""
    return _changing(rng, name, provider, {}, trials=rng.randint(3, 5))


def _target(rng: random.Random, name: str, provider: str) -> Scenario:
    """Trials report values on the way that are better than their results; perhaps only those of an
    older program are as good as the target.
    """
    sign = rng.choice((1, -1))
    goal = "minimize" if sign > 0 else "maximize"
    metric: Spec = {"goal": goal, "target": rng.choice((30, 90)) if sign > 0 else LOSSES - 150}
    return _changing(rng, name, provider, metric, trials=rng.randint(5, 8))


def _changing(
    rng: random.Random, name: str, provider: str, metric: Spec, *, trials: int
) -> Scenario:
    search: Spec = {
        "method": "random",
        "metric": {"name": "loss", **metric},
        "parameters": {
            "lr": {"min": 0.0, "max": 1.0},
            "seconds": {"values": [2, 20, 60]},
            "metrics": {"value": 6},
        },
        "run_cap": trials,
    }
    made = objects.sweep_of(rng, search, provider, "search", points=trials)
    made = made.changed(Expect("Succeeded"), parallelism=rng.randint(2, 3))
    better = -1 if metric.get("goal") == "maximize" else 1
    old = made.changed(template=_template(0))
    new = made.changed(template=_template(better * 2 * LOSSES))
    desired_rows = [apply(0.0, old)]
    if not metric or rng.random() < 0.5:
        desired_rows.append(apply(later(rng), new))
    return make(name, provider, desired_rows, made)


def _template(shift: int) -> Spec:
    return {"command": ["work"], "env": {"shift": str(shift)}}


NAMED: dict[str, Callable[[random.Random, str, str], Scenario]] = {
    "search-changes": _search_changes,
    "target": _target,
}


def best_of_what_is_desired(scene: Scene) -> Iterator[str]:
    """I29: the best trial of a search is the best of those that ran the program that it names."""
    for resource, best in _searches(scene):
        search = spec(resource)["search"]
        if best is None or "early_terminate" in search or resource is _before(scene, resource):
            continue
        sign = -1.0 if search["metric"].get("goal") == "maximize" else 1.0
        found = (
            (sign * float(json.loads(scene.now.results[run.name] or "{}")["loss"]), run.index)
            for run in counted(scene, resource)
            if run.state is RunState.SUCCEEDED
        )
        value, index = min(found, default=(0.0, -1))
        if (best["index"], best["metric"]["value"]) != (index, sign * value):
            yield f"{resource.key} says {best}; it is trial {index} with {sign * value}"


def nothing_begins_after_the_target(scene: Scene) -> Iterator[str]:
    """I30: once a trial has reported a value as good as the target, no trial begins any more."""
    for resource, _ in _searches(scene):
        before = _before(scene, resource)
        if before is None or before.generation != resource.generation:
            continue
        seen = status(before).get("observedGeneration") == resource.generation
        begun = [run for run in scene.now.runs_of(resource.uid) if _is_new(scene, run)]
        known = [run for run in counted(scene, resource) if not _is_new(scene, run)]
        if seen and begun and any(_reached(scene.before.reported, resource, run) for run in known):
            yield f"`{begun[0].name}` begins, and a trial has reached the target of {resource.key}"


def the_target_is_reached_by_a_trial(scene: Scene) -> Iterator[str]:
    """I31: a search ends by its target when a trial of the program that it names has reached it."""
    for resource, _ in _searches(scene):
        if status(resource).get("reason") != "TargetReached":
            continue
        if resource is _before(scene, resource):
            continue
        known = counted(scene, resource)
        if not any(_reached(scene.now.reported, resource, run) for run in known):
            yield f"{resource.key} is over by a target that none of its trials reached"


SEARCH_CHECKS: tuple[Check, ...] = (
    best_of_what_is_desired,
    nothing_begins_after_the_target,
    the_target_is_reached_by_a_trial,
)


def _searches(scene: Scene) -> Iterator[tuple[Resource, dict[str, object] | None]]:
    """With what each says of its best trial, once it has seen its spec."""
    for resource in scene.now.resources.values():
        desired, seen = spec(resource), status(resource)
        current = seen.get("observedGeneration") == resource.generation
        if current and desired.get("search", {}).get("metric") and resource.deleted_at_s is None:
            yield resource, seen.get("best")


def _before(scene: Scene, resource: Resource) -> Resource | None:
    return scene.before.resources.get(resource.uid)


def _is_new(scene: Scene, run: Run) -> bool:
    return run.name not in scene.before.runs


def counted(scene: Scene, resource: Resource) -> list[Run]:
    """The newest attempt of each unit that runs the program of the present spec."""
    desired_now = spec(resource).get("template", {}).get("env", {}).get("shift", "0")
    newest: dict[int, Run] = {}
    for run in sorted(scene.now.runs_of(resource.uid), key=lambda run: run.attempt):
        work = scene.work_of(run)
        if work is None or work.order.template.env.get("shift", "0") == desired_now:
            newest[run.index] = run
    return list(newest.values())


def _reached(reported: dict[str, list[float]], resource: Resource, run: Run) -> bool:
    metric = spec(resource)["search"]["metric"]
    sign = -1.0 if metric.get("goal") == "maximize" else 1.0
    values = reported.get(run.name, [])
    target = metric.get("target")
    return target is not None and any(sign * value <= sign * target for value in values)

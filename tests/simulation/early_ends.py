"""Searches that end trials early: their scenario, and what must hold of every such decision."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

from fleetctl.controllers.model import Run
from fleetctl.specs.search.config import EarlyTerminate
from tests.simulation import objects
from tests.simulation.objects import Expect, Spec, Wanted
from tests.simulation.scenario import Scenario, apply, later, make, say
from tests.simulation.scene import Check, Scene
from tests.simulation.snapshot import spec

REASON = "EarlyTerminated"


def _early_ends(rng: random.Random, name: str, provider: str) -> Scenario:
    """Trials of one search report several values each; perhaps it is suspended in between."""
    trials = rng.randint(3, 6)
    search: Spec = {
        "method": "random",
        "metric": {"name": "loss", "goal": rng.choice(("minimize", "maximize"))},
        "parameters": {
            "lr": {"min": 0.0, "max": 1.0},
            "seconds": {"values": [4, 20, 40]},
            "metrics": {"value": rng.choice((3, 9))},
        },
        "early_terminate": {
            "type": "hyperband",
            "min_iter": rng.choice((1, 2)),
            "eta": rng.choice((2, 3)),
            "strict": rng.random() < 0.7,
        },
        "run_cap": trials,
    }
    made: Wanted = objects.sweep_of(rng, search, provider, "early", points=trials)
    wanted = made.changed(Expect("Succeeded"), parallelism=rng.randint(2, 4))
    desired_rows = [apply(0.0, wanted)]
    if rng.random() < 0.3:
        desired_rows.append(say(later(rng), "suspend", wanted))
        desired_rows.append(say(desired_rows[-1].at_s + later(rng), "resume", wanted))
    return make(name, provider, desired_rows, wanted)


def _bayes(rng: random.Random, name: str, provider: str) -> Scenario:
    """A search whose points depend on what came of the trials before; perhaps a small one."""
    trials = rng.randint(5, 8)
    search: Spec = {
        "method": "bayes",
        "metric": {"name": "loss"},
        "parameters": {
            "lr": rng.choice(({"min": 0.0, "max": 1.0}, {"min": 1, "max": 6})),
            "seconds": {"value": rng.choice((1, 12))},
            "metrics": {"value": 2},
        },
        "run_cap": trials,
    }
    made = objects.sweep_of(rng, search, provider, "bayes", points=trials)
    wanted = made.changed(Expect("Succeeded"))
    desired_rows = [apply(0.0, wanted)]
    if rng.random() < 0.3:
        desired_rows.append(say(later(rng), "suspend", wanted))
        desired_rows.append(say(desired_rows[-1].at_s + later(rng), "resume", wanted))
    return make(name, provider, desired_rows, wanted)


NAMED: dict[str, Callable[[random.Random, str, str], Scenario]] = {
    "early-ends": _early_ends,
    "bayes": _bayes,
}


def judged_by_all(scene: Scene) -> Iterator[str]:
    """I26: a trial is ended early by what all trials had reported when that was committed, and by
    nothing less.
    """
    for run in scene.changed():
        before = scene.before.runs.get(run.name)
        if run.reason != REASON or (before is not None and before.reason == REASON):
            continue
        resource = scene.now.resources.get(run.uid)
        if resource is not None and not _is_worse(scene, run, spec(resource)["search"]):
            yield f"`{run.name}` was ended early, and no band that it passed says so"


def ended_for_good(scene: Scene) -> Iterator[str]:
    """I27: a trial that was ended early never begins again."""
    for (uid, index), runs in scene.now.units():
        if any(run.reason == REASON for run in runs[:-1]):
            yield f"index {index} of {uid} was ended early and has begun again"


def suggested_once(scene: Scene) -> Iterator[str]:
    """I28: of a bayes search no two trials are the same point, and a trial keeps its point."""
    points: dict[tuple[str, str], int] = {}
    for (uid, index), runs in scene.now.units():
        resource = scene.now.resources.get(uid)
        if resource is None or spec(resource).get("search", {}).get("method") != "bayes":
            continue
        if len({run.params for run in runs}) > 1:
            yield f"trial {index} of {uid} has had several points"
        other = points.setdefault((uid, runs[-1].params), index)
        if other != index:
            yield f"trials {other} and {index} of {uid} are the same point"


EARLY_CHECKS: tuple[Check, ...] = (judged_by_all, ended_for_good, suggested_once)


def _is_worse(scene: Scene, run: Run, search: Spec) -> bool:
    """Told by whole histories, as plainly as the rule is written."""
    metric = search["metric"]
    early = EarlyTerminate.model_validate(search["early_terminate"])
    assert isinstance(metric, dict)
    sign = -1.0 if metric.get("goal") == "maximize" else 1.0
    fields: dict[int, tuple[int, str]] = {}
    for it in scene.now.runs_of(run.uid):
        if scene.now.reported.get(it.name):
            fields[it.index] = max(fields.get(it.index, (0, "")), (it.attempt, it.name))
    histories = {
        name: [sign * value for value in scene.now.reported[name]] for _, name in fields.values()
    }
    mine = histories.get(run.name, [])
    passed = [band for band in early.bands if band <= len(mine)]
    if not passed:
        return False
    values = sorted(its[passed[-1] - 1] for its in histories.values() if len(its) >= passed[-1])
    threshold = values[math.floor((1 / early.eta) * len(values))]
    return (mine[passed[-1] - 1] if early.strict else min(mine)) > threshold

"""Searches that give something to other objects, their best trial or all that they learned: the
scenarios, and what must hold of what is taken.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.tracking.annotations import PARAMS, PRIOR
from tests.simulation import objects
from tests.simulation.objects import Expect, Spec, Wanted
from tests.simulation.scenario import Scenario, apply, later, make, say
from tests.simulation.scene import Check, Scene
from tests.simulation.searches import counted
from tests.simulation.snapshot import Snapshot, parsed, spec, status

GIVER = "giver"


def _giver(rng: random.Random, provider: str, trials: int) -> Wanted:
    search: Spec = {
        "method": "random",
        "metric": {"name": "loss", "goal": rng.choice(("minimize", "maximize"))},
        "parameters": {
            "lr": {"min": 0.0, "max": 1.0},
            "seconds": {"values": [1, 5, 20]},
            "metrics": {"value": 1},
        },
        "run_cap": trials,
    }
    return objects.sweep_of(rng, search, provider, GIVER, points=trials)


def _winner(rng: random.Random, name: str, provider: str) -> Scenario:
    """A job takes the best trial's parameters; perhaps the program changes, and both come again."""
    old = _giver(rng, provider, rng.randint(2, 4))
    new = old.changed(template={"command": ["work"], "env": {"shift": "7"}})
    limit = rng.randint(0, 2)
    # What works, and for how long, is the winner's.
    tasks: list[Spec] = [{"n": 0, "fails": 0}, {"n": 1, "fails": limit}]
    job = objects.job_of(rng, tasks, provider=provider, backoff_limit=limit)
    taking = job.changed(Expect("Succeeded"), paramsFrom={"sweep": GIVER})
    return _together(rng, name, provider, old, new, taking)


def _prior(rng: random.Random, name: str, provider: str) -> Scenario:
    """A bayes search takes the trials of another one; perhaps that one runs anew later on."""
    old = _giver(rng, provider, rng.randint(2, 4))
    new = old.changed(template={"command": ["work"], "env": {"shift": "7"}})
    search: Spec = {
        **dict(old.spec["search"]),  # type: ignore[call-overload]
        "method": "bayes",
        "run_cap": rng.randint(3, 5),
        "priorTrials": {"fromSweep": GIVER},
    }
    taking = objects.sweep_of(rng, search, provider, "taker", points=0)
    return _together(rng, name, provider, old, new, taking.changed(Expect("Succeeded")))


def _together(
    rng: random.Random, name: str, provider: str, old: Wanted, new: Wanted, taking: Wanted
) -> Scenario:
    desired_rows = [apply(0.0, old), apply(rng.choice((0.0, later(rng))), taking)]
    if rng.random() < 0.3:
        desired_rows.append(say(later(rng), "suspend", old))
        desired_rows.append(say(desired_rows[-1].at_s + later(rng), "resume", old))
    if rng.random() < 0.5:
        at_s = max(desired.at_s for desired in desired_rows) + later(rng)
        desired_rows += [apply(at_s, new), apply(at_s + later(rng), taking)]
        return make(name, provider, desired_rows, new, taking)
    return make(name, provider, desired_rows, old, taking)


NAMED: dict[str, Callable[[random.Random, str, str], Scenario]] = {
    "winner": _winner,
    "prior": _prior,
}


def the_winner_is_the_best_of_what_is_over(scene: Scene) -> Iterator[str]:
    """I32: what `paramsFrom` gives are the parameters of the best trial of a sweep that is over,
    and nothing of it begins with others.
    """
    for taker, giver in _taking(scene, PARAMS):
        yield from _not_over(taker, giver)
        _, best = min(_ends(scene, giver), key=lambda it: (it[0], it[1].index))
        if parsed(best.params) != parsed(taker.annotations[PARAMS]):
            yield f"{taker.key} takes other parameters than the best trial's, {best.params}"
    for resource, run in _begun(scene, "paramsFrom"):
        given = parsed(resource.annotations.get(PARAMS, ""))
        if not given or any(parsed(run.params).get(name) != it for name, it in given.items()):
            yield f"`{run.name}` begins without the parameters of the best trial"


def what_a_search_begins_from_is_what_another_came_to(scene: Scene) -> Iterator[str]:
    """I33: what `priorTrials` takes are the trials of a sweep that is over, each with its own
    value, and no trial begins before.
    """
    for taker, giver in _taking(scene, PRIOR):
        yield from _not_over(taker, giver)
        sign = _sign(giver)
        found = sorted((sign * value, run.params) for value, run in _ends(scene, giver))
        taken = parsed(taker.annotations[PRIOR])["trials"]
        listed = sorted((value, point) for point, value in taken)
        if listed != [(value, parsed(params)) for value, params in found]:
            yield f"{taker.key} takes {listed}; {giver.key} came to {found}"
    for resource, run in _begun(scene, "search"):
        if "priorTrials" in spec(resource)["search"] and PRIOR not in resource.annotations:
            yield f"`{run.name}` begins before the trials are taken that warm its search"


GIVER_CHECKS: tuple[Check, ...] = (
    the_winner_is_the_best_of_what_is_over,
    what_a_search_begins_from_is_what_another_came_to,
)


def _taking(scene: Scene, note: str) -> Iterator[tuple[Resource, Resource]]:
    """(object, the sweep) where something was taken in the last commit."""
    for uid, taker in scene.now.resources.items():
        before = scene.before.resources.get(uid)
        known = before.annotations.get(note) if before is not None else None
        giver = _find(scene.now, GIVER)
        if giver is not None and taker.annotations.get(note) not in (None, known):
            yield taker, giver


def _find(seen: Snapshot, name: str) -> Resource | None:
    return next((it for it in seen.resources.values() if it.name == name), None)


def _not_over(taker: Resource, giver: Resource) -> Iterator[str]:
    told = status(giver)
    over = told.get("phase") in TERMINAL_PHASES
    if not over or told.get("observedGeneration") != giver.generation:
        yield f"{taker.key} takes something of {giver.key}, which is not over"


def _sign(sweep: Resource) -> float:
    return -1.0 if spec(sweep)["search"]["metric"].get("goal") == "maximize" else 1.0


def _ends(scene: Scene, sweep: Resource) -> list[tuple[float, Run]]:
    """(its value, lower is better; the run) of the trials that succeeded."""
    return [
        (_sign(sweep) * float(json.loads(scene.now.results[run.name] or "{}")["loss"]), run)
        for run in counted(scene, sweep)
        if run.state is RunState.SUCCEEDED
    ]


def _begun(scene: Scene, field: str) -> Iterator[tuple[Resource, Run]]:
    for run in scene.now.runs.values():
        resource = scene.now.resources.get(run.uid)
        if run.name not in scene.before.runs and resource is not None and field in spec(resource):
            yield resource, run

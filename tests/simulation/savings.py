"""Trainings that save: the scenario in which they get on or not, and what must hold of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from fleetctl.controllers.model import Run, RunState
from tests.simulation.objects import Expect, Spec, Wanted
from tests.simulation.scenario import Scenario, apply, make
from tests.simulation.scene import Check, Scene
from tests.simulation.shelf import FOREIGN, PATH
from tests.simulation.snapshot import spec
from tests.simulation.world import FAILS_ALWAYS


def trainings(rng: random.Random, name: str, provider: str) -> Scenario:
    """One that crashes more often than it may in a row and always gets further; one that begins
    anew each time, saves the same steps again and gets nowhere.
    """
    template: Spec = {"command": ["train"]}
    checkpoint = {"path": PATH}
    common: Spec = {"placement": {"provider": provider}, "maxRestarts": 1}
    gets_on = Wanted(
        "TrainingRun",
        "gets-on",
        {
            **common,
            "checkpoint": checkpoint,
            "template": {**template, "env": _env(rng, fails=rng.randint(3, 5), saves=3)},
        },
        Expect("Succeeded", frozenset({0}), frozenset()),
    )
    gets_nowhere = Wanted(
        "TrainingRun",
        "gets-nowhere",
        {
            **common,
            "checkpoint": {**checkpoint, "resume": "None"},
            "template": {**template, "env": _env(rng, fails=FAILS_ALWAYS, saves=2)},
        },
        Expect("Failed", frozenset(), frozenset({0})),
    )
    return make(
        name, provider, [apply(0.0, gets_on), apply(1.0, gets_nowhere)], gets_on, gets_nowhere
    )


def _env(rng: random.Random, *, fails: int, saves: int) -> dict[str, str]:
    return {"seconds": rng.choice(("4", "20")), "fails": str(fails), "saves": str(saves)}


def resumes_what_is_whole(scene: Scene) -> Iterator[str]:
    """An attempt goes on from a checkpoint that was completed, and its record says from which."""
    for run in scene.changed():
        work = scene.work_of(run)
        if work is None or run.state in (RunState.STARTING, RunState.STOPPED):
            continue
        if not work.saving.sound:
            yield f"`{run.name}` goes on from step {work.saving.resumed}, which was never completed"
        if run.resumed_step not in (None, work.saving.resumed):
            yield f"`{run.name}` is said to go on from step {run.resumed_step}"


def counts_from_progress(scene: Scene) -> Iterator[str]:
    """No further attempt begins after maxRestarts failures since a step that is new."""
    for (uid, index), runs in scene.now.units():
        resource = scene.now.resources.get(uid)
        if resource is None or "checkpoint" not in spec(resource):
            continue
        failures, best = 0, -1
        for run in runs:
            if failures > int(str(spec(resource).get("maxRestarts", 0))):
                yield f"index {index} of {uid} begins again after {failures} failures"
            highest = _highest(scene, run)
            if highest > best:
                failures, best = 0, highest
            failures += run.state is RunState.FAILED


def _highest(scene: Scene, run: Run) -> int:
    """The last step that it really completed; -1 for none."""
    work = scene.work_of(run)
    if work is None or work.ended_at_s is None:
        return -1
    saved = work.saving.saved(work.begun_at_s, work.seconds, work.ended_at_s)
    return max((one.step for one in saved), default=-1)


def leaves_what_is_not_its_own(scene: Scene) -> Iterator[str]:
    """Checkpoints of another program lie where they were, under their names."""
    for (uid, index), shelf in scene.world.shelves.items():
        for path in FOREIGN.keys() - shelf.files.keys():
            yield f"`{path}` of another program is gone from index {index} of {uid}"


SAVING_CHECKS: tuple[Check, ...] = (
    resumes_what_is_whole,
    counts_from_progress,
    leaves_what_is_not_its_own,
)

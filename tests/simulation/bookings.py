"""Checks that a finished object has all its results, metrics, checkpoints and costs stored: in the
commit that stores Succeeded or Failed, or in an earlier one. For all kinds with such an end. The
calls of models are in tests/unit/engine/test_engine_endpoints.py, for the same kinds.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.controllers.model import LIVE_STATES, Resource, Run, RunState
from tests.simulation.observing import metrics_of, result_of
from tests.simulation.scene import Scene
from tests.simulation.snapshot import status

OVER = ("Succeeded", "Failed")
ENDED = (RunState.SUCCEEDED, RunState.FAILED)  # with an end that was read, to its last word
ROUNDED_USD = 1e-6


def what_is_over_is_booked(scene: Scene) -> Iterator[str]:
    """I29: a finished object has its costs, results, metrics and checkpoints stored."""
    for uid, resource in scene.now.resources.items():
        if resource is scene.before.resources.get(uid) or not _came_to_its_end(scene, resource):
            continue
        for run in scene.now.runs_of(uid):
            yield from _unbooked(scene, resource, run)
        told = status(resource).get("cost", {}).get("actual")
        booked = sum(run.cost_usd or 0.0 for run in scene.now.runs_of(uid))
        if told is not None and abs(told - booked) > ROUNDED_USD:
            yield f"{resource.key} is told to have cost {told}, and {booked} is booked"


def _came_to_its_end(scene: Scene, resource: Resource) -> bool:
    """In this commit."""
    before = scene.before.resources.get(resource.uid)
    was_over = before is not None and status(before).get("phase") in OVER
    return status(resource).get("phase") in OVER and not was_over


def _unbooked(scene: Scene, resource: Resource, run: Run) -> Iterator[str]:
    if run.state in LIVE_STATES:
        yield f"{resource.key} is over, and `{run.name}` is {run.state}"
    work = scene.work_of(run)
    if run.state not in ENDED or work is None or work.ended_at_s is None:
        return
    assert scene.store is not None
    really = [it.value for it in metrics_of(work, at_s=work.ended_at_s)]
    recorded = [it.value for it in scene.store.runs.metrics_of(run.name)]
    if recorded != really:
        yield f"{resource.key} is over, and `{run.name}` reported {really}: {recorded} is booked"
    if run.state is RunState.SUCCEEDED and scene.now.results[run.name] != result_of(work):
        yield f"{resource.key} is over, and the result of `{run.name}` is not booked"
    saved = work.saving.saved(work.begun_at_s, work.seconds, work.ended_at_s)
    if run.saved_step != max((it.step for it in saved), default=None):
        yield f"{resource.key} is over, and `{run.name}` is booked to have saved {run.saved_step}"
    booked = {it.path for it in scene.store.runs.checkpoints_of(resource.uid)}
    if missing := [it.path for it in saved if it.path not in booked]:
        yield f"{resource.key} is over, and {missing} of `{run.name}` are not booked"
    if run.usd_per_s and scene.now.kept.get(run.name) is None:
        yield f"{resource.key} is over, and what `{run.name}` cost is not booked"


def charges_are_in_the_ledger(scene: Scene) -> Iterator[str]:
    """I29: the ledger has what each run that is over is charged, from the same commit on."""
    live = {name for name, run in scene.now.runs.items() if run.state in LIVE_STATES}
    charged = sum(usd or 0.0 for name, usd in scene.now.kept.items() if name not in live)
    booked = scene.now.ledger_usd
    if abs(charged - booked) > ROUNDED_USD * max(1, len(scene.now.kept)):
        yield f"runs that are over are charged ${charged}, and the ledger has ${booked}"


def successes_are_remembered_at_once(scene: Scene) -> Iterator[str]:
    """I29: what equal work may take over is stored in the commit that stores the success."""
    for name in scene.now.cached - scene.before.cached:
        before = scene.before.runs.get(name)
        if before is not None and before.state not in LIVE_STATES:
            yield f"`{name}` was {before.state} before its success could be taken over"


BOOKING_CHECKS = (
    what_is_over_is_booked,
    charges_are_in_the_ledger,
    successes_are_remembered_at_once,
)

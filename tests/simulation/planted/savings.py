"""Bugs about checkpoints: what is taken for whole, and what for progress."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from fleetctl.controllers.history.checkpoints import CheckpointSteps
from fleetctl.controllers.model import Run
from fleetctl.guest.checkpoints.formats import Found
from fleetctl.guest.checkpoints.prepare import Choice
from tests.simulation.planted.plant import Plant, around, swapped

Context = AbstractContextManager[object]


def resumed_from_an_unmarked_checkpoint() -> Context:
    """A directory with a step in its name is a checkpoint, whatever its marker says."""
    return swapped(Found, "complete", property(lambda found: found.step is not None))


def a_step_saved_again_is_progress() -> Context:
    """Any checkpoint that an attempt saves counts as new."""

    def make(
        take: Callable[[CheckpointSteps, Run], bool],
    ) -> Callable[[CheckpointSteps, Run], bool]:
        def patched(steps: CheckpointSteps, run: Run) -> bool:
            take(steps, run)
            return run.saved_step is not None

        return patched

    return around(CheckpointSteps, "take", make)


def failures_count_for_ever() -> Context:
    """A new checkpoint does not begin the count of failures anew."""

    def make(
        take: Callable[[CheckpointSteps, Run], bool],
    ) -> Callable[[CheckpointSteps, Run], bool]:
        def patched(steps: CheckpointSteps, run: Run) -> bool:
            take(steps, run)
            return False

        return patched

    return around(CheckpointSteps, "take", make)


def what_nobody_wrote_is_set_aside() -> Context:
    """Whatever is not complete was left unfinished by this run."""

    def make(init: Callable[..., None]) -> Callable[..., None]:
        def patched(choice: Choice, resumed: Found | None, later: list[Found], _: object) -> None:
            init(choice, resumed, later, {one.name for one in later})

        return patched

    return around(Choice, "__init__", make)


PLANTS: tuple[Plant, ...] = (
    resumed_from_an_unmarked_checkpoint,
    a_step_saved_again_is_progress,
    failures_count_for_ever,
    what_nobody_wrote_is_set_aside,
)

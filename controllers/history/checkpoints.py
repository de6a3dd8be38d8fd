"""Reads checkpoints of a unit: if an attempt got further, and from where the next begins.

Failures and losses count since the last new checkpoint, so that a long training outlives any number
of preemptions and yet does not repeat the same crash for ever. Pure; called as runs end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from fleetctl.controllers.model import Run, RunState, SavedCheckpoint
from fleetctl.guest.checkpoints.keeping import choose_removable

FAILURES_FROM_ONE = 2  # from one checkpoint, without a new one: then the one before it is tried
STEPS_BACK_MAX = 3  # without progress in between
SAVES_KEPT = 20  # what "every" is worked out from


@dataclass(slots=True)
class CheckpointSteps:
    """The steps of a unit under the present spec."""

    best: int | None = None  # highest step that any attempt began from or saved
    saved: bool = False  # whether any attempt completed one
    below: int | None = None  # where the next attempt has to begin; unset: at the newest
    failures: int = 0  # in a row, all begun from `began`, without a new one
    began: int | None = None
    left: set[int] = field(default_factory=set)  # steps that were stepped back from
    redone: bool = False  # it had succeeded, and a user asked for it again
    origin: int | None = None  # of a redone one: the step that its very first attempt began from

    @classmethod
    def after(cls, earlier: Sequence[Run]) -> CheckpointSteps:
        """Returns the steps of a unit whose attempts so far (in their order) were put aside. A
        success is repeated from where it began; an unfinished attempt goes on.
        """
        begun = [run for run in earlier if run.started_at_s is not None]
        if not begun or earlier[-1].state is not RunState.SUCCEEDED:
            return cls()
        return cls(redone=True, origin=begun[0].resumed_step)

    def take(self, run: Run) -> bool:
        """Adds an ended attempt; returns true if it got further than all before it. A step that is
        saved again is not progress.
        """
        began = run.resumed_step
        saved = run.saved_step
        known = [step for step in (self.best, began) if step is not None]
        further = saved is not None and (not known or saved > max(known))
        self.best = max([*known, *([] if saved is None else [saved])], default=None)
        self.saved = self.saved or saved is not None
        if further:
            self.left.clear()
        if saved is not None and (began is None or saved > began):
            self.below = None
            self.failures = 0
            self.began = None
        elif run.state is RunState.FAILED and began is not None:
            self._failed_from(began)
        return further

    def _failed_from(self, began: int) -> None:
        """Counts a failure from a checkpoint, which may look whole and not be: after two failures
        the one before it is tried.
        """
        self.failures = self.failures + 1 if self.began == began else 1
        self.began = began
        tired = self.failures >= FAILURES_FROM_ONE
        if tired and began not in self.left and len(self.left) < STEPS_BACK_MAX:
            self.below = began
            self.failures = 0
            self.left.add(began)


def choose_removed_steps(
    saved: Collection[int],
    began: Collection[int],
    *,
    last: int,
    every: int | None,
) -> set[int]:
    """Returns the saved steps that `keep` has removed; began: steps that attempts began from, which
    may still exist.
    """
    return set(choose_removable(list(saved), last, every, None)) - set(began)


class NewestCheckpoints:
    """The checkpoints of an object: the newest, for users, and those that exist."""

    def __init__(self) -> None:
        self._newest: deque[SavedCheckpoint] = deque(maxlen=SAVES_KEPT)
        self._steps: set[int] = set()
        self._began: set[int] = set()

    def take(self, saved: SavedCheckpoint) -> None:
        """Takes checkpoints in the order in which they come."""
        self._newest.append(saved)
        self._steps.add(saved.step)

    def began(self, step: int) -> None:
        """Records that an attempt of any spec resumed from this step; its checkpoint existed
        then.
        """
        self._began.add(step)

    def removed(self, *, last: int, every: int | None) -> set[int]:
        """Steps that `keep` has surely removed by now."""
        return choose_removed_steps(self._steps, self._began, last=last, every=every)

    def there(self, *, last: int, every: int | None) -> list[int]:
        return sorted(self._steps - self.removed(last=last, every=every))

    @property
    def newest(self) -> SavedCheckpoint | None:
        if self._newest:
            return self._newest[-1]
        return None

    @property
    def every_s(self) -> float | None:
        """Returns the usual seconds between two checkpoints; None while fewer than three are
        known.
        """
        times = [one.at_s for one in self._newest]
        gaps = [after - before for before, after in pairwise(times)]
        if len(gaps) > 1:
            return median(gaps)
        return None

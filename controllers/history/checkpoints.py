"""What checkpoints tell of a unit: whether an attempt got further, and from where the next begins.

Failures and losses count since the last new checkpoint, so that a long training outlives any number
of preemptions and yet does not repeat the same crash for ever. Pure; told as runs end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from fleetctl.controllers.model import Run, RunState, Saved

FAILURES_FROM_ONE = 2  # from one checkpoint, without a new one: then the one before it is tried
STEPS_BACK_MAX = 3  # without progress in between
SAVES_KEPT = 20  # what "every" is worked out from


@dataclass(slots=True)
class Steps:
    """Of one unit under the present spec."""

    best: int | None = None  # highest step that any attempt began from or saved
    saved: bool = False  # whether any attempt completed one
    below: int | None = None  # where the next attempt has to begin; None: at the newest
    failures: int = 0  # in a row, all begun from `began`, without a new one
    began: int | None = None
    left: set[int] = field(default_factory=set)  # steps that were stepped back from
    redone: bool = False  # it had succeeded, and somebody asked for it again
    origin: int | None = None  # of a redone one: the step that its very first attempt began from

    @classmethod
    def after(cls, earlier: Sequence[Run]) -> Steps:
        """Of a unit whose attempts so far (in their order) were put aside. What had succeeded is
        done again from where it began; what had not goes on.
        """
        begun = [run for run in earlier if run.started_at_s is not None]
        if not begun or earlier[-1].state is not RunState.SUCCEEDED:
            return cls()
        return cls(redone=True, origin=begun[0].resumed_step)

    def take(self, run: Run) -> bool:
        """One more ended attempt; whether it got further than all before it. A step that is saved
        again is not progress.
        """
        began, saved = run.resumed_step, run.saved_step
        known = [step for step in (self.best, began) if step is not None]
        further = saved is not None and (not known or saved > max(known))
        self.best = max([*known, *([] if saved is None else [saved])], default=None)
        self.saved = self.saved or saved is not None
        if further:
            self.left.clear()
        if saved is not None and (began is None or saved > began):
            self.below, self.failures, self.began = None, 0, None
        elif run.state is RunState.FAILED and began is not None:
            self._failed_from(began)
        return further

    def _failed_from(self, began: int) -> None:
        """It may look whole and not be: after two failures the one before it is tried."""
        self.failures = self.failures + 1 if self.began == began else 1
        self.began = began
        tired = self.failures >= FAILURES_FROM_ONE
        if tired and began not in self.left and len(self.left) < STEPS_BACK_MAX:
            self.below, self.failures = began, 0
            self.left.add(began)


class Saves:
    """The newest checkpoints of an object, for people."""

    def __init__(self) -> None:
        self._newest: deque[Saved] = deque(maxlen=SAVES_KEPT)

    def take(self, saved: Saved) -> None:
        """In the order of their coming."""
        self._newest.append(saved)

    @property
    def newest(self) -> Saved | None:
        return self._newest[-1] if self._newest else None

    @property
    def every_s(self) -> float | None:
        """Seconds from one to the next, as a rule; None while fewer than three are known."""
        times = [one.at_s for one in self._newest]
        gaps = [after - before for before, after in pairwise(times)]
        return median(gaps) if len(gaps) > 1 else None

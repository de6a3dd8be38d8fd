"""Where an incarnation of the controller dies, and whether faults still happen.

`Life` counts three sorts of points: callbacks of the event loop (so every await of the engine),
boundaries of provider effects, and commits. The seed picks one; there the incarnation ends, as by
`kill -9`.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from dataclasses import dataclass

SORTS = ("step", "effect", "commit")  # and `suggestion`, which tests alone name

# How many points of a sort one incarnation passes; a crash is drawn from 1..this, small numbers
# more often.
POINTS_MAX = {"step": 1_500, "effect": 80, "commit": 60}


class Crash(BaseException):
    """The controller's process is dead. No cleanup counts: a real one would not run either."""


@dataclass(frozen=True, slots=True)
class CrashAt:
    sort: str
    number: int  # from 1


class Life:
    """One incarnation: it passes points until it dies at one; after that it can do nothing."""

    def __init__(self, crash_at: CrashAt | None) -> None:
        self.crash_at = crash_at
        self.dead = False
        self.passed: Counter[str] = Counter()
        self.digest = 0

    def point(self, sort: str, name: str = "") -> None:
        """Pass a point or die at it."""
        if self.dead:
            raise Crash(name)
        self.passed[sort] += 1
        if name:
            self.digest = zlib.crc32(name.encode(), self.digest)
        due = self.crash_at
        if due is not None and due.sort == sort and due.number == self.passed[sort]:
            self.dead = True
            raise Crash(f"{sort} {due.number} {name}")


def draw_crashes(rng: random.Random, *, crashes_max: int) -> list[CrashAt]:
    """Where the first incarnations die, one entry each; the incarnation after the last one lives
    on.
    """
    return [_draw_crash(rng) for _ in range(rng.randint(0, crashes_max))]


def _draw_crash(rng: random.Random) -> CrashAt:
    sort = rng.choice(SORTS)
    # Cubing favours early points, where little state exists yet and most intents are open.
    return CrashAt(sort=sort, number=1 + int(POINTS_MAX[sort] * rng.random() ** 3))

"""What one Source is at, in memory: the round under way, and what it has brought so far. All of it
can be lost.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fleetctl.controllers.kinds.gitops.decide import NEVER_S, Sight
from fleetctl.engine.kinds.gitops.keeper import Reading
from fleetctl.manifest.problems import ManifestErrors, joined

PROBLEMS_TOLD_MAX = 5


@dataclass(slots=True)
class Desk:
    """task: a look (its result is a commit) or a reading. generation: of the Source, when the
    reading began; looked_generation: when the last look did. kept: what is read was stored, in a
    transaction that may yet fail. request: the one by hand that this round answers. error: of the
    last round.
    """

    task: asyncio.Future[str] | asyncio.Future[Reading] | None = None
    generation: int = 0
    tip: str = ""
    reading: Reading | None = None
    kept: bool = False
    held: bool = False
    nudged: bool = False
    looked_at_s: float = NEVER_S
    looked_generation: int = 0
    failures: int = 0
    request: str = ""
    error: Exception | None = None
    losses: tuple[str, ...] = ()

    @property
    def over_with_error(self) -> bool:
        """Whether the last round has failed and no other is under way."""
        under_way = self.task is not None or self.tip or self.reading is not None
        return self.error is not None and not under_way

    def sight(self, request: str, *, allowed: bool, drifted: bool) -> Sight:
        return Sight(
            tip=self.tip,
            read=self.reading.commit if self.reading is not None else "",
            read_generation=self.generation,
            looked_at_s=self.looked_at_s,
            looked_generation=self.looked_generation,
            failures=self.failures,
            busy=self.task is not None and not self.task.done(),
            held=self.held,
            nudged=self.nudged,
            request=request,
            allowed=allowed,
            drifted=drifted,
        )

    def over(self, now_s: float, error: Exception | None = None) -> None:
        """The round ends."""
        self.tip, self.reading, self.kept, self.nudged = "", None, False, False
        self.held, self.losses = False, ()
        self.looked_at_s, self.error = now_s, error
        self.failures = 0 if error is None else self.failures + 1

    def waits(self, losses: tuple[str, ...], now_s: float) -> None:
        """What was read needs consent; the ref is looked at again meanwhile."""
        self.tip, self.held, self.nudged, self.losses = "", True, False, losses
        self.looked_at_s, self.error, self.failures = now_s, None, 0


def told(error: Exception) -> tuple[str, str]:
    """(what is wrong, with file and line where that is known; a hint)"""
    if not isinstance(error, ManifestErrors):
        return str(error), str(getattr(error, "hint", ""))
    shown = [joined(str(it), it.hint) for it in error.problems[:PROBLEMS_TOLD_MAX]]
    rest = len(error.problems) - len(shown)
    if rest > 0:
        shown.append(f"and {rest:,} more problems")
    return "\n".join(shown), ""

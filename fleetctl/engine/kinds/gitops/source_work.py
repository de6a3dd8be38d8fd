"""Holds the state of a Source, in memory: the round under way, and its results so far. All can be
lost.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fleetctl.controllers.kinds.gitops.source_decision import NEVER_S, SourceKnowledge
from fleetctl.engine.kinds.gitops.source_keeper import SourceReading
from fleetctl.manifest.problems import ManifestErrors, join_sentences

PROBLEMS_TOLD_MAX = 5


@dataclass(slots=True)
class SourceWork:
    """task: a look (its result is a commit) or a reading. generation: of the Source, when the
    reading began; looked_generation: when the last look did. kept: the read commit was stored, in a
    transaction that may yet fail. request: the one by hand that this round answers. error: of the
    last round.
    """

    task: asyncio.Future[str] | asyncio.Future[SourceReading] | None = None
    generation: int = 0
    tip: str = ""
    reading: SourceReading | None = None
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
        """Returns true if the last round has failed and no other is under way."""
        under_way = self.task is not None or self.tip or self.reading is not None
        return self.error is not None and not under_way

    def sight(
        self,
        request: str,
        *,
        allowed: bool,
        drifted: bool,
    ) -> SourceKnowledge:
        return SourceKnowledge(
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
        """Ends the round."""
        self.tip = ""
        self.reading = None
        self.kept = False
        self.nudged = False
        self.held = False
        self.losses = ()
        self.looked_at_s = now_s
        self.error = error
        self.failures = 0 if error is None else self.failures + 1

    def waits(self, losses: tuple[str, ...], now_s: float) -> None:
        """Records that the read commit needs consent; the ref is looked at again meanwhile."""
        self.tip = ""
        self.held = True
        self.nudged = False
        self.losses = losses
        self.looked_at_s = now_s
        self.error = None
        self.failures = 0


def describe_error(error: Exception) -> tuple[str, str]:
    """Returns (the problem, with file and line where known; a hint)"""
    if not isinstance(error, ManifestErrors):
        return str(error), str(getattr(error, "hint", ""))
    shown = [join_sentences(str(it), it.hint) for it in error.problems[:PROBLEMS_TOLD_MAX]]
    rest = len(error.problems) - len(shown)
    if rest > 0:
        shown.append(f"and {rest:,} more problems")
    return "\n".join(shown), ""

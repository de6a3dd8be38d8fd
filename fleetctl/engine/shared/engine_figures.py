"""Counts what a controller does, since its start, for `/metrics`: its turns and its calls of
providers. Counting decides nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class CallCounts:
    """Calls of one provider's API. seconds: from each call's begin to its end, without the wait for
    a rate limit; limited: answered with 429; failed: not served, all reasons.
    """

    calls: int = 0
    seconds: float = 0.0
    limited: int = 0
    failed: int = 0


@dataclass(slots=True)
class EngineFigures:
    """The counts. Written by tick.py, by the rate limiter of each provider, and by the sweep.

    orphans: provider -> sandboxes of ours without a record that the sweep found and ended.
    """

    ticks: int = 0
    tick_s: float = 0.0  # with their commits
    tick_failures: int = 0
    commit_s: float = 0.0  # of these, the commits
    orphans: Counter[str] = field(default_factory=Counter)
    calls: dict[str, CallCounts] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """Returns them as the controller sends them."""
        return {
            "ticks": self.ticks,
            "tickSeconds": round(self.tick_s, 6),
            "tickFailures": self.tick_failures,
            "commitSeconds": round(self.commit_s, 6),
            "orphans": dict(self.orphans),
            "calls": {
                name: {
                    "calls": counts.calls,
                    "seconds": round(counts.seconds, 6),
                    "limited": counts.limited,
                    "failed": counts.failed,
                }
                for name, counts in self.calls.items()
            },
        }

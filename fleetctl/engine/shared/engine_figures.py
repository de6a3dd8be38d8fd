"""Counts what a controller does, since its start, for `/metrics`: its turns and its calls of
providers. Counting decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class CallCounts:
    """Calls of one provider's API. limited: answered with 429; failed: not served, all reasons."""

    calls: int = 0
    limited: int = 0
    failed: int = 0


@dataclass(slots=True)
class EngineFigures:
    """The counts. Written by tick.py, and by the rate limiter of each provider."""

    ticks: int = 0
    tick_s: float = 0.0  # with their commits
    tick_failures: int = 0
    calls: dict[str, CallCounts] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """Returns them as the controller sends them."""
        return {
            "ticks": self.ticks,
            "tickSeconds": round(self.tick_s, 6),
            "tickFailures": self.tick_failures,
            "calls": {
                name: {"calls": it.calls, "limited": it.limited, "failed": it.failed}
                for name, it in self.calls.items()
            },
        }

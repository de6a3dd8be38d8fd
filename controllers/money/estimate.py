"""Holds the estimated cost of a whole object at the time its spec was applied. Pure data.

Noted on the object by an apply, so that it outlives the controller, and shown in its status.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """USD. expected None: unknown; then high_usd may bound it. high_usd None: unbounded."""

    expected_usd: float | None
    low_usd: float
    high_usd: float | None

    @property
    def known(self) -> bool:
        """Returns true if it has any figure."""
        return self.expected_usd is not None or self.high_usd is not None

    @property
    def note(self) -> str:
        """Returns the text that `estimate_of` reads back."""
        figures = {"usd": self.expected_usd, "low": self.low_usd, "high": self.high_usd}
        return json.dumps(
            {name: _round_usd(usd) for name, usd in figures.items() if usd is not None}
        )

    def status(self) -> dict[str, object]:
        """Returns the known figures for `status.cost`."""
        shown = {"estimated": self.expected_usd, "estimatedHigh": self.high_usd}
        if self.expected_usd is not None:
            shown["estimatedLow"] = self.low_usd
        return {name: usd for name, usd in shown.items() if usd is not None}


def estimate_of(note: str) -> CostEstimate | None:
    """Returns None for an empty note, and for a note that another program wrote."""
    try:
        document = json.loads(note) if note else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    found = CostEstimate(
        _read_usd(document, "usd"), _read_usd(document, "low") or 0.0, _read_usd(document, "high")
    )
    if found.known:
        return found
    return None


def _read_usd(fields: dict[str, object], name: str) -> float | None:
    usd = fields.get(name)
    if isinstance(usd, int | float) and 0.0 <= usd < float("inf"):
        return float(usd)
    return None


def _round_usd(usd: float) -> float:
    """Rounds to the digits that `status.cost` has."""
    return round(usd, 6)

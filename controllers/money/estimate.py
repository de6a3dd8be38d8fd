"""What a whole object was estimated to cost when its spec was applied. Pure data.

Noted on the object by an apply, so that it outlives the controller, and shown in its status.
"""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """USD. expected None: nobody knows; then high_usd may bound it. high_usd None: nothing does."""

    expected_usd: float | None
    low_usd: float
    high_usd: float | None

    @property
    def known(self) -> bool:
        """Whether it says anything at all."""
        return self.expected_usd is not None or self.high_usd is not None

    @property
    def note(self) -> str:
        """The text that `estimate_of` reads back."""
        figures = {"usd": self.expected_usd, "low": self.low_usd, "high": self.high_usd}
        return json.dumps({name: _cents(usd) for name, usd in figures.items() if usd is not None})

    def status(self) -> dict[str, object]:
        """What `status.cost` has of it: only what is known."""
        shown = {"estimated": self.expected_usd, "estimatedHigh": self.high_usd}
        if self.expected_usd is not None:
            shown["estimatedLow"] = self.low_usd
        return {name: usd for name, usd in shown.items() if usd is not None}


def estimate_of(note: str) -> Estimate | None:
    """None for no note, and for one that somebody else wrote."""
    try:
        document = json.loads(note) if note else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    found = Estimate(_usd(document, "usd"), _usd(document, "low") or 0.0, _usd(document, "high"))
    return found if found.known else None


def _usd(fields: dict[str, object], name: str) -> float | None:
    usd = fields.get(name)
    return float(usd) if isinstance(usd, int | float) and 0.0 <= usd < float("inf") else None


def _cents(usd: float) -> float:
    """With the digits that `status.cost` has."""
    return round(usd, 6)

"""Exceptions from policies, as an annotation: `NAME until 2026-12-31 because REASON`, several with
`;` between them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

EXEMPT = "policy.fleetctl.dev/exempt"
FORM = "`NAME until 2026-12-31 because REASON`"
_ONE = re.compile(
    r"(?P<name>[a-z0-9][-a-z0-9.]*)\s+until\s+(?P<day>\d{4}-\d{2}-\d{2})\s+because\s+(?P<why>\S.*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Exemption:
    """An exception from a policy. day: the last day on which it holds, in UTC."""

    policy: str
    day: date
    why: str

    def over(self, now_s: float) -> bool:
        return datetime.fromtimestamp(now_s, UTC).date() > self.day

    def is_too_far(self, now_s: float, *, max_days: int) -> bool:
        today = datetime.fromtimestamp(now_s, UTC).date()
        return self.day > today + timedelta(days=max_days)

    @property
    def sentence(self) -> str:
        return f"until {self.day.isoformat()}, because {' '.join(self.why.split())}"


def exemptions_of(annotations: Mapping[str, str]) -> dict[str, Exemption]:
    """Returns the exceptions by policy. Raises ValueError for a part that cannot be read."""
    found: dict[str, Exemption] = {}
    for part in annotations.get(EXEMPT, "").split(";"):
        if not part.strip():
            continue
        match = _ONE.fullmatch(part.strip())
        try:
            day = None if match is None else date.fromisoformat(match["day"])
        except ValueError:
            day = None
        if match is None or day is None:
            raise ValueError(f"`{part.strip()[:80]}` is not {FORM}")
        found[match["name"]] = Exemption(match["name"], day, match["why"].strip())
    return found

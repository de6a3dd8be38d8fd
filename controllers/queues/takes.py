"""What one run takes of a queue's quotas, with all its nodes. Written beside the run before it
starts, so that it counts the same whatever becomes of its object's spec. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

HOUR_S = 3600
SANDBOXES, CPUS, GPUS, USD_PER_HOUR = "sandboxes", "cpus", "gpus", "usdPerHour"
ANY_SORT = "any"
# Of what asks for no number of cores: it has one at least.
CPUS_UNASKED = 1.0


@dataclass(frozen=True, slots=True)
class Takes:
    """gpus: (sort, how many) of each sort that it may get, of which it gets one."""

    sandboxes: int = 1
    cpus: float = CPUS_UNASKED
    gpus: tuple[tuple[str, int], ...] = ()

    def told(self) -> dict[str, object]:
        """As JSON."""
        gpus = {"gpus": [list(it) for it in self.gpus]} if self.gpus else {}
        return {"sandboxes": self.sandboxes, "cpus": self.cpus, **gpus}


def takes_in(fields: Mapping[str, Any]) -> Takes:
    """Of what `told` says."""
    gpus = tuple((str(sort), int(count)) for sort, count in fields.get("gpus", ()))
    return Takes(fields["sandboxes"], fields["cpus"], gpus)


@dataclass(frozen=True, slots=True)
class Quota:
    """One rule of a queue. provider: "" = any. borrowing, lending: None = no limit of its own."""

    resource: str
    nominal: float
    provider: str = ""
    borrowing: float | None = None
    lending: float | None = None

    @property
    def name(self) -> str:
        """`gpu/A100`, `sandboxes on modal`."""
        return f"{self.resource} on {self.provider}" if self.provider else self.resource

    def amount(self, takes: Takes, provider: str, usd_per_s: float | None) -> float | None:
        """What one run that takes this counts for there; None: its price is unknown."""
        if self.provider not in ("", provider):
            return 0.0
        match self.resource:
            case "sandboxes":
                return takes.sandboxes
            case "cpus":
                return takes.cpus
            case "gpus":
                return max((count for _, count in takes.gpus), default=0)
            case "usdPerHour":
                return None if usd_per_s is None else usd_per_s * HOUR_S
        # Until it runs it may get any of several sorts, so it counts for each.
        wanted = sort_of(self.resource.partition("/")[2])
        found = [count for sort, count in takes.gpus if sort_of(sort) in (wanted, sort_of("any"))]
        return max(found, default=0)


def sort_of(name: str) -> str:
    """`H100!` and `h100` are one sort; `A100` and `A100-80GB` are two."""
    return name.rstrip("!+").upper()


def text_of(queue: str, takes: Takes) -> str:
    """As it is kept beside a run; few different ones, so that the store keeps each once."""
    return json.dumps({"queue": queue, **takes.told()}, separators=(",", ":"))


@lru_cache(maxsize=4096)
def read(text: str) -> tuple[str, Takes]:
    """(queue, what the run takes of it) of what `text_of` wrote."""
    fields = json.loads(text)
    return fields["queue"], takes_in(fields)

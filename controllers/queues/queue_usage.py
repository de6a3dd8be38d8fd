"""Computes how much of a queue's quotas one run uses, with all its nodes. Stored beside the run
before it starts, so that its usage stays the same when the object's spec changes. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

HOUR_S = 3600
SANDBOXES = "sandboxes"
CPUS = "cpus"
GPUS = "gpus"
USD_PER_HOUR = "usdPerHour"
ANY_SORT = "any"
# For a run that requests no number of cores: it has at least one.
CPUS_UNASKED = 1.0


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """gpus: (sort, how many) of each sort that it may get, of which it gets one."""

    sandboxes: int = 1
    cpus: float = CPUS_UNASKED
    gpus: tuple[tuple[str, int], ...] = ()

    def to_fields(self) -> dict[str, object]:
        """Returns the fields for JSON."""
        gpus = {"gpus": [list(it) for it in self.gpus]} if self.gpus else {}
        return {"sandboxes": self.sandboxes, "cpus": self.cpus, **gpus}


def takes_in(fields: Mapping[str, Any]) -> QueueUsage:
    """Reads Takes back from the fields that `told` wrote."""
    gpus = tuple((str(sort), int(count)) for sort, count in fields.get("gpus", ()))
    return QueueUsage(fields["sandboxes"], fields["cpus"], gpus)


@dataclass(frozen=True, slots=True)
class Quota:
    """One rule of a queue. provider: "" = any. borrowing, lending: unset = no limit of its own."""

    resource: str
    nominal: float
    provider: str = ""
    borrowing: float | None = None
    lending: float | None = None

    @property
    def name(self) -> str:
        """Returns the name for users: `gpu/A100`, `sandboxes on modal`."""
        if self.provider:
            return f"{self.resource} on {self.provider}"
        return self.resource

    def amount(
        self,
        takes: QueueUsage,
        provider: str,
        usd_per_s: float | None,
    ) -> float | None:
        """Returns the usage of a run with these takes on that provider; None: its price is
        unknown.
        """
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
    """Returns the sort of a GPU: `H100!` and `h100` are one sort; `A100` and `A100-80GB` are
    two.
    """
    return name.rstrip("!+").upper()


def text_of(queue: str, takes: QueueUsage) -> str:
    """Returns the text stored beside a run; few different ones, so that the store keeps each
    once.
    """
    return json.dumps({"queue": queue, **takes.to_fields()}, separators=(",", ":"))


@lru_cache(maxsize=4096)
def parse_usage(text: str) -> tuple[str, QueueUsage]:
    """Parses (queue, usage of the run) from the text that `text_of` wrote."""
    fields = json.loads(text)
    return fields["queue"], takes_in(fields)

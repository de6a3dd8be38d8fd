"""What the Job controller knows of one Job beside its status, and sets of indexes as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
TRACKING = "batch.kubernetes.io/job-tracking"


@dataclass(slots=True)
class JobState:
    """live: pods that are not counted yet, by name; leaving: those that are deleted and not over.
    Times are of the wall clock.
    """

    live: set[str] = field(default_factory=set)
    leaving: set[str] = field(default_factory=set)
    completed: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)  # by index
    succeeded: int = 0
    failed: int = 0
    failures_in_row: int = 0
    failed_at_s: float = 0.0
    failed_at_s_by_index: dict[int, float] = field(default_factory=dict)


def index_of(pod: Object) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX)
    return int(text) if text is not None else None


def intervals(indexes: Iterable[int]) -> str:
    """0-3,5."""
    parts: list[list[int]] = []
    for one in sorted(indexes):
        if parts and one == parts[-1][1] + 1:
            parts[-1][1] = one
        else:
            parts.append([one, one])
    shown = (str(a) if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}" for a, b in parts)
    return ",".join(shown)


def indexes_in(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def ended(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def condition(job: Object, kind: str) -> Object | None:
    for one in (job.get("status") or {}).get("conditions") or ():
        if one["type"] == kind and one["status"] == "True":
            found: Object = one
            return found
    return None


def finished(job: Object) -> bool:
    return condition(job, "Complete") is not None or condition(job, "Failed") is not None

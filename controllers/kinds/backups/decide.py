"""Whether a backup is due, and when to look again. Pure; a Schedule's rules for one thing that is
never made twice at once.

    due(spec, memory, now_s) -> Due        called by fleetctl/engine/kinds/backups

A moment is done once a backup that is whole was written for it. Until then it stays due, whatever
crashed or failed in between; of several that were missed only the last counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleetctl.specs.kinds.settings import BackupSettings

RETRY_INITIAL_S, RETRY_MAX_S = 60.0, 3_600.0
AHEAD_S = 3_600.0  # a clock that is put right by less is waited for
YEAR_S = 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What the status keeps. decided_s: everything up to here is backed up, or was missed.
    failures: in a row. error: of the last of them, empty where there is none.
    """

    decided_s: float
    succeeded_s: float | None = None
    file: str = ""
    bytes: int = 0
    failed_s: float | None = None
    failures: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Due:
    """for_s: the moment that a backup is to be made for, now; None: not now. look_s: when to ask
    again at the latest; None: never.
    """

    for_s: float | None
    look_s: float | None


def due(spec: BackupSettings, memory: Memory, now_s: float) -> Due:
    if spec.suspend:
        return Due(None, None)
    missed = spec.times.between(memory.decided_s, now_s)
    if missed is None:
        return Due(None, spec.times.next_s(max(memory.decided_s, now_s)))
    again_s = retry_s(memory)
    if again_s is not None and now_s < again_s <= now_s + RETRY_MAX_S:
        return Due(None, again_s)
    return Due(missed.last_s, None)


def retry_s(memory: Memory) -> float | None:
    """When it is tried again after failures: each wait is twice the one before, up to an hour."""
    if not memory.failures or memory.failed_s is None:
        return None
    wait_s = min(RETRY_INITIAL_S * 2.0 ** min(memory.failures - 1, 16), RETRY_MAX_S)
    return memory.failed_s + wait_s


def succeeded(memory: Memory, for_s: float, at_s: float, file: str, size: int) -> Memory:
    return Memory(max(memory.decided_s, for_s), at_s, file, size)


def failed(memory: Memory, at_s: float, error: str) -> Memory:
    return replace(memory, failed_s=at_s, failures=memory.failures + 1, error=error)


# -- what the status keeps -------------------------------------------------------------------------


def memory_of(
    kept: Mapping[str, object], spec: BackupSettings, *, written_s: float, now_s: float
) -> Memory:
    """kept: the block of the status. written_s: when the settings were made. Another schedule
    counts from now: what it names of the time before was never wished for.
    """
    decided_s = kept.get("decidedUntil")
    if not isinstance(decided_s, int | float):
        decided_s = now_s if kept else written_s
    elif kept.get("times") != _times(spec):
        decided_s = max(decided_s, now_s)
    if decided_s > now_s + AHEAD_S:
        # A clock was ahead when that was written. What is backed up of the time until now is not
        # known, so the last moment counts as due; waiting for that clock would take years.
        decided_s = now_s - YEAR_S
    failures = kept.get("failures")
    size = kept.get("bytes")
    return Memory(
        float(decided_s),
        _time(kept.get("lastSuccessfulTime")),
        str(kept.get("file") or ""),
        size if isinstance(size, int) else 0,
        _time(kept.get("lastFailureTime")),
        failures if isinstance(failures, int) else 0,
        str(kept.get("error") or ""),
    )


def block_of(spec: BackupSettings, memory: Memory) -> dict[str, object]:
    """What `memory_of` reads; nulls are what never was."""
    return {
        "times": _times(spec),
        "decidedUntil": memory.decided_s,
        "nextTime": None if spec.suspend else spec.times.next_s(memory.decided_s),
        "lastSuccessfulTime": memory.succeeded_s,
        "file": memory.file,
        "bytes": memory.bytes,
        "lastFailureTime": memory.failed_s,
        "failures": memory.failures,
        "error": memory.error,
    }


def _time(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _times(spec: BackupSettings) -> str:
    return f"{spec.schedule} {spec.time_zone}"

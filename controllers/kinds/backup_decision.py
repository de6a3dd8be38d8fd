"""Decides if a backup is due, and when to look again. Pure; follows a Schedule's rules for a moment
that was missed.

    find_due_backup(spec, memory, now_s) -> BackupDue     called by fleetctl/engine/kinds/backups

A moment is done once a backup that is whole was written for it. Until then it stays due, through
crashes and failures; of several missed moments only the last counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleetctl.specs.kinds.settings import BackupSettings

RETRY_INITIAL_S = 60.0
RETRY_MAX_S = 3_600.0
AHEAD_S = 3_600.0  # a clock that is put right by less is waited for
YEAR_S = 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class BackupMemory:
    """The state kept in the status. decided_s: everything up to here is backed up, or was missed.
    failures: failures in a row. error: error of the last failure; empty without one.
    """

    decided_s: float
    succeeded_s: float | None = None
    file: str = ""
    bytes: int = 0
    failed_s: float | None = None
    failures: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class BackupDue:
    """for_s: the moment for which a backup is due now; unset: not now. look_s: when to look again
    at the latest; unset: never.
    """

    for_s: float | None
    look_s: float | None


def find_due_backup(
    spec: BackupSettings,
    memory: BackupMemory,
    now_s: float,
) -> BackupDue:
    if spec.suspend:
        return BackupDue(None, None)
    missed = spec.times.between(memory.decided_s, now_s)
    if missed is None:
        return BackupDue(None, spec.times.next_s(max(memory.decided_s, now_s)))
    again_s = retry_s(memory)
    if again_s is not None and now_s < again_s <= now_s + RETRY_MAX_S:
        return BackupDue(None, again_s)
    return BackupDue(missed.last_s, None)


def retry_s(memory: BackupMemory) -> float | None:
    """Returns when it is tried again after failures: each wait is twice the one before, up to an
    hour.
    """
    if not memory.failures or memory.failed_s is None:
        return None
    wait_s = min(RETRY_INITIAL_S * 2.0 ** min(memory.failures - 1, 16), RETRY_MAX_S)
    return memory.failed_s + wait_s


def record_success(
    memory: BackupMemory,
    for_s: float,
    at_s: float,
    file: str,
    size: int,
) -> BackupMemory:
    return BackupMemory(max(memory.decided_s, for_s), at_s, file, size)


def record_failure(
    memory: BackupMemory,
    at_s: float,
    error: str,
) -> BackupMemory:
    return replace(
        memory,
        failed_s=at_s,
        failures=memory.failures + 1,
        error=error,
    )


# -- what the status keeps -------------------------------------------------------------------------
def memory_of(
    kept: Mapping[str, object],
    spec: BackupSettings,
    *,
    written_s: float,
    now_s: float,
) -> BackupMemory:
    """Reads the memory from the status. kept: the block of the status. written_s: when the settings
    were made. Another schedule counts from now: earlier moments that it names were never desired.
    """
    decided_s = kept.get("decidedUntil")
    if not isinstance(decided_s, int | float):
        decided_s = now_s if kept else written_s
    elif kept.get("times") != _format_times(spec):
        decided_s = max(decided_s, now_s)
    if decided_s > now_s + AHEAD_S:
        # A clock was ahead when that was written. It is unknown which moments until now are backed
        # up, so the last moment counts as due; waiting for that clock would take years.
        decided_s = now_s - YEAR_S
    failures = kept.get("failures")
    size = kept.get("bytes")
    return BackupMemory(
        float(decided_s),
        _as_time(kept.get("lastSuccessfulTime")),
        str(kept.get("file") or ""),
        size if isinstance(size, int) else 0,
        _as_time(kept.get("lastFailureTime")),
        failures if isinstance(failures, int) else 0,
        str(kept.get("error") or ""),
    )


def block_of(spec: BackupSettings, memory: BackupMemory) -> dict[str, object]:
    """Returns the block that `memory_of` reads; null marks an event that never happened."""
    return {
        "times": _format_times(spec),
        "decidedUntil": memory.decided_s,
        "nextTime": None if spec.suspend else spec.times.next_s(memory.decided_s),
        "lastSuccessfulTime": memory.succeeded_s,
        "file": memory.file,
        "bytes": memory.bytes,
        "lastFailureTime": memory.failed_s,
        "failures": memory.failures,
        "error": memory.error,
    }


def _as_time(value: object) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    return None


def _format_times(spec: BackupSettings) -> str:
    return f"{spec.schedule} {spec.time_zone}"

"""Writes the status of a Source, and reads parts back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.kinds.gitops.source_decision import (
    SourceDecision,
    SourceMemory,
    SourceStep,
)
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import Phase
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.engine.kinds.gitops.source_keeper import SourceStoreResult
from fleetctl.engine.kinds.gitops.source_work import SourceWork, describe_error
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.tracking.kept_by import HELD, shorten_commit
from fleetctl.tracking.track import Track

REFUSED = "RevisionRefused"
UNREACHABLE = "SourceUnreachable"
NAMES_SHOWN_MAX = 5


def memory_of(status: Mapping[str, object]) -> SourceMemory:
    return SourceMemory(
        applied=_read_text(status, "appliedRevision"),
        applied_generation=_read_count(status, "appliedGeneration"),
        attempted=_read_text(status, "attemptedRevision"),
        request=_read_text(status, "request"),
    )


def objects_of(status: Mapping[str, object]) -> int:
    return _read_count(status, "objects")


def status_of(
    track: Track,
    spec: SourceSpec,
    decision: SourceDecision,
    desk: SourceWork,
    memory: SourceMemory,
    kept: SourceStoreResult | None,
    now_s: float,
) -> Status:
    before = track.status
    phase, reason, message, hint = _describe_state(
        track,
        spec,
        decision,
        desk,
        memory,
    )
    error = desk.error
    same = memory.attempted == _read_text(before, "attemptedRevision")
    if error is None and same and not _is_settled(desk):
        last = _read_text(before, "lastError")  # of the round before, until this one has ended
    else:
        last = describe_error(error)[0] if error is not None else ""
    status: Status = {
        "phase": phase.value,
        "reason": reason,
        "message": message,
        "hint": hint,
        "waitingOn": [message] if phase is Phase.PENDING and message else [],
        "observedGeneration": track.resource.generation,
        "appliedRevision": memory.applied,
        "appliedGeneration": memory.applied_generation,
        "attemptedRevision": memory.attempted,
        "request": memory.request,
        "lastError": last,
        "objects": kept.objects if kept is not None else objects_of(before),
        "changed": kept.changed if kept is not None else _read_map(before, "changed"),
        "unpruned": kept.left if kept is not None else _read_count(before, "unpruned"),
    }
    status["conditions"] = [_build_condition(status, before, now_s)]
    return status | _build_times(status, before, now_s)


def _describe_state(
    track: Track,
    spec: SourceSpec,
    decision: SourceDecision,
    desk: SourceWork,
    memory: SourceMemory,
) -> tuple[Phase, str, str, str]:
    """Returns (phase, reason, message, hint)."""
    kept = f"; the objects stay as at {shorten_commit(memory.applied)}" if memory.applied else ""
    if spec.suspend:
        return Phase.SUSPENDED, "Suspended", "suspend is set: nothing is applied", ""
    if desk.error is not None:
        text, hint = describe_error(desk.error)
        reason = UNREACHABLE if isinstance(desk.error, Unavailable) else REFUSED
        if isinstance(desk.error, Unavailable) and desk.error.reason != "Unavailable":
            reason = desk.error.reason
        return Phase.PENDING, reason, f"{text}{kept}", hint
    if desk.held:
        text = f"{shorten_commit(memory.attempted)} waits for consent: {'; '.join(desk.losses)}"
        return Phase.PENDING, HELD, text, f"fleetctl reconcile {track.resource.key} --yes"
    applied = memory.applied and memory.applied_generation == track.resource.generation
    if applied and memory.attempted == memory.applied:
        return Phase.READY, "Ready", "", ""
    before = track.status
    looks = not _is_settled(desk) and not desk.tip
    if looks and _read_text(before, "reason") in (REFUSED, UNREACHABLE, HELD):
        return (
            Phase.PENDING,
            _read_text(before, "reason"),
            _read_text(before, "message"),
            _read_text(before, "hint"),
        )
    doing = "reading" if decision.step is SourceStep.READ or desk.tip else "looking at"
    return Phase.PENDING, "InProgress", f"{doing} the repository{kept}", ""


def _is_settled(desk: SourceWork) -> bool:
    """Returns true if no round is under way."""
    return desk.task is None and not desk.tip and (desk.reading is None or desk.held or desk.kept)


def deleting_status(track: Track, left: Sequence[Resource]) -> Status:
    names = ", ".join(it.key for it in left[:NAMES_SHOWN_MAX])
    rest = len(left) - NAMES_SHOWN_MAX
    text = f"still removing {names}" + (f" and {rest:,} more" if rest > 0 else "")
    kept: Status = {**track.status}  # type: ignore[typeddict-item]
    return {
        **kept,
        "phase": Phase.DELETING.value,
        "reason": "Deleted",
        "message": text,
        "waitingOn": [text],
        "observedGeneration": track.resource.generation,
    }


def counts_text(changed: Mapping[str, int]) -> str:
    """Formats the counts: `3 created, 1 pruned`."""
    return ", ".join(f"{count:,} {word}" for word, count in changed.items() if count) or "no change"


def _build_times(
    status: Status,
    before: Mapping[str, object],
    now_s: float,
) -> Status:
    """Returns the times at which the status became so."""

    def since(key: str, word: str) -> float | None:
        value = before.get(key)
        same = before.get(word) == status.get(word) and isinstance(value, int | float)
        if same and isinstance(value, int | float):
            return float(value)
        return now_s

    failing = before.get("failingSince") or now_s
    return {
        "appliedAt": since("appliedAt", "appliedRevision") if status["appliedRevision"] else None,
        "attemptedAt": (
            since("attemptedAt", "attemptedRevision") if status["attemptedRevision"] else None
        ),
        "failingSince": failing if status["lastError"] else None,  # type: ignore[typeddict-item]
    }


def _build_condition(
    status: Status,
    before: Mapping[str, object],
    now_s: float,
) -> dict[str, object]:
    ready = str(status["phase"] == Phase.READY.value)
    conditions = before.get("conditions")
    known = conditions[0] if isinstance(conditions, list) and conditions else {}
    same = known.get("status") == ready
    return {
        "type": "Ready",
        "status": ready,
        "reason": status["reason"],
        "message": status["message"],
        "lastTransitionTime": known["lastTransitionTime"] if same else now_s,
    }


def _read_text(status: Mapping[str, object], name: str) -> str:
    value = status.get(name)
    if isinstance(value, str):
        return value
    return ""


def _read_count(status: Mapping[str, object], name: str) -> int:
    value = status.get(name)
    if isinstance(value, int):
        return value
    return 0


def _read_map(status: Mapping[str, object], name: str) -> dict[str, int]:
    value = status.get(name)
    if isinstance(value, dict):
        return value
    return {}

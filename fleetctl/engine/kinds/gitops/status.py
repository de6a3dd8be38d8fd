"""What the status of a Source says, and what of it is read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetctl.common.errors import Unavailable
from fleetctl.controllers.kinds.gitops.decide import Decision, Memory, Step
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import Phase
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.engine.kinds.gitops.desk import Desk, told
from fleetctl.engine.kinds.gitops.keeper import Kept
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.tracking.kept_by import HELD, short
from fleetctl.tracking.track import Track

REFUSED, UNREACHABLE = "RevisionRefused", "SourceUnreachable"
NAMES_SHOWN_MAX = 5


def memory_of(status: Mapping[str, object]) -> Memory:
    return Memory(
        applied=_text(status, "appliedRevision"),
        applied_generation=_count(status, "appliedGeneration"),
        attempted=_text(status, "attemptedRevision"),
        request=_text(status, "request"),
    )


def objects_of(status: Mapping[str, object]) -> int:
    return _count(status, "objects")


def status_of(
    track: Track,
    spec: SourceSpec,
    decision: Decision,
    desk: Desk,
    memory: Memory,
    kept: Kept | None,
    now_s: float,
) -> Status:
    before = track.status
    phase, reason, message, hint = _standing(track, spec, decision, desk, memory)
    error = desk.error
    same = memory.attempted == _text(before, "attemptedRevision")
    if error is None and same and not _is_settled(desk):
        last = _text(before, "lastError")  # of the round before, until this one has come to an end
    else:
        last = told(error)[0] if error is not None else ""
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
        "changed": kept.changed if kept is not None else _map(before, "changed"),
        "unpruned": kept.left if kept is not None else _count(before, "unpruned"),
    }
    status["conditions"] = [_condition(status, before, now_s)]
    return status | _times(status, before, now_s)


def _standing(
    track: Track, spec: SourceSpec, decision: Decision, desk: Desk, memory: Memory
) -> tuple[Phase, str, str, str]:
    """(phase, reason, message, hint)"""
    kept = f"; the objects stay as at {short(memory.applied)}" if memory.applied else ""
    if spec.suspend:
        return Phase.SUSPENDED, "Suspended", "suspend is set: nothing is applied", ""
    if desk.error is not None:
        text, hint = told(desk.error)
        reason = UNREACHABLE if isinstance(desk.error, Unavailable) else REFUSED
        if isinstance(desk.error, Unavailable) and desk.error.reason != "Unavailable":
            reason = desk.error.reason
        return Phase.PENDING, reason, f"{text}{kept}", hint
    if desk.held:
        text = f"{short(memory.attempted)} waits for consent: {'; '.join(desk.losses)}"
        return Phase.PENDING, HELD, text, f"fleetctl reconcile {track.resource.key} --yes"
    applied = memory.applied and memory.applied_generation == track.resource.generation
    if applied and memory.attempted == memory.applied:
        return Phase.READY, "Ready", "", ""
    before = track.status
    looks = not _is_settled(desk) and not desk.tip
    if looks and _text(before, "reason") in (REFUSED, UNREACHABLE, HELD):
        return (
            Phase.PENDING,
            _text(before, "reason"),
            _text(before, "message"),
            _text(before, "hint"),
        )
    doing = "reading" if decision.step is Step.READ or desk.tip else "looking at"
    return Phase.PENDING, "InProgress", f"{doing} the repository{kept}", ""


def _is_settled(desk: Desk) -> bool:
    """Whether no round is under way."""
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
    """`3 created, 1 pruned`."""
    return ", ".join(f"{count:,} {word}" for word, count in changed.items() if count) or "no change"


def _times(status: Status, before: Mapping[str, object], now_s: float) -> Status:
    """When what the status says came to be so."""

    def since(key: str, word: str) -> float | None:
        value = before.get(key)
        same = before.get(word) == status.get(word) and isinstance(value, int | float)
        return float(value) if same and isinstance(value, int | float) else now_s

    failing = before.get("failingSince") or now_s
    return {
        "appliedAt": since("appliedAt", "appliedRevision") if status["appliedRevision"] else None,
        "attemptedAt": (
            since("attemptedAt", "attemptedRevision") if status["attemptedRevision"] else None
        ),
        "failingSince": failing if status["lastError"] else None,  # type: ignore[typeddict-item]
    }


def _condition(status: Status, before: Mapping[str, object], now_s: float) -> dict[str, object]:
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


def _text(status: Mapping[str, object], name: str) -> str:
    value = status.get(name)
    return value if isinstance(value, str) else ""


def _count(status: Mapping[str, object], name: str) -> int:
    value = status.get(name)
    return value if isinstance(value, int) else 0


def _map(status: Mapping[str, object], name: str) -> dict[str, int]:
    value = status.get(name)
    return value if isinstance(value, dict) else {}

"""The status of a custom resource: what the engine says of the stored object, whether its newest
state was accepted, and when that is worth a write. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.common.text import timestamp
from fleetctl.operator.crds.columns import CELLS, cells
from fleetctl.specs.kinds.registry import Kind
from fleetctl.views.objects import READY, View, document

ACCEPTED = "Accepted"
REFUSED = "Refused"  # the phase of what never was accepted
MESSAGE_CHARS_MAX = 4000
# A change of phase or condition is written after so long, with all that follows at its heels.
SOON_S = 0.3
# Counts alone are written ever more rarely: a job of a day must not write ten thousand times.
COUNTS_S, COUNTS_MAX_S = 5.0, 600.0

Status = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unaccepted:
    """Why the operator does not carry out the newest state. reason: one CamelCase word."""

    reason: str
    message: str
    hint: str = ""

    @property
    def told(self) -> str:
        text = f"{self.message}; {self.hint}" if self.hint else self.message
        return text[:MESSAGE_CHARS_MAX]


def status_for(
    kind: Kind,
    seen: View | None,
    before: Mapping[str, Any],
    generation: int,
    refusal: Unaccepted | None,
    now_s: float,
) -> Status:
    """seen: None while nothing of it is stored. before: what is written there now. generation: of
    the custom resource, which kubectl compares with `observedGeneration`.
    """
    status: Status = {}
    if seen is not None:
        status = dict(document(seen, now_s, parts=("status",))["status"])  # type: ignore[call-overload]
        status[CELLS] = cells(seen, now_s)
        status.pop("durationSeconds", None)  # it would be another one at every look
    if refusal is not None:
        status = {"phase": REFUSED, "message": refusal.told, "hint": refusal.hint, **status}
        status.setdefault(CELLS, {"why": refusal.told[:80]})
    current = refusal is None and seen is not None and seen.current
    shown = generation if current else before.get("observedGeneration")
    status["observedGeneration"] = shown
    if shown is None:
        del status["observedGeneration"]
    conditions = [{**it, "observedGeneration": shown or 0} for it in status.get("conditions") or ()]
    if seen is not None and not kind.runs:
        ready = seen.phase == READY
        word = str(status.get("reason") or "Ready" if ready else "NotReady")
        conditions.append(
            _condition("Ready", ready, word, str(status.get("message") or ""), shown or 0)
        )
    conditions.append(_accepted(refusal, generation))
    status["conditions"] = _since(conditions, before.get("conditions") or (), now_s)
    return status


def _accepted(refusal: Unaccepted | None, generation: int) -> dict[str, Any]:
    if refusal is None:
        return _condition(ACCEPTED, True, "Accepted", "", generation)
    return _condition(ACCEPTED, False, refusal.reason, refusal.told, generation)


def _condition(
    name: str, holds: bool, reason: str, message: str, generation: int
) -> dict[str, Any]:
    return {
        "type": name,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
    }


def _since(
    conditions: Sequence[dict[str, Any]], before: Sequence[Mapping[str, Any]], now_s: float
) -> list[dict[str, Any]]:
    """Those that have no time of their own keep the one that they had while they say the same."""
    old = {it.get("type"): it for it in before if isinstance(it, Mapping)}
    made = []
    for it in conditions:
        known = old.get(it["type"], {})
        same = known.get("status") == it["status"]
        since = known.get("lastTransitionTime") if same else None
        made.append({"lastTransitionTime": since or timestamp(now_s), **it})
    return made


def patch_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes one of the other; empty where they say the same."""
    gone: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        known = before.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            if inner := patch_of(known, value):
                gone[key] = inner
        elif key not in before or known != value:
            gone[key] = value
    return gone


@dataclass(frozen=True, slots=True)
class Writes:
    """What was written of one custom resource so far. counts: writes since its phase changed."""

    at_s: float = 0.0
    counts: int = 0


def due_at_s(
    before: Mapping[str, Any], after: Mapping[str, Any], writes: Writes, since_s: float
) -> float:
    """When the difference should be written, by the clock of since_s: when it was first seen."""
    if _outline(before) != _outline(after):
        return since_s + SOON_S
    return writes.at_s + min(COUNTS_S * 2.0**writes.counts, COUNTS_MAX_S)


def written(
    before: Mapping[str, Any], after: Mapping[str, Any], writes: Writes, now_s: float
) -> Writes:
    moved = _outline(before) != _outline(after)
    return Writes(now_s, 0 if moved else writes.counts + 1)


def _outline(status: Mapping[str, Any]) -> list[object]:
    """What somebody may wait for."""
    conditions = [
        (it.get("type"), it.get("status"), it.get("reason"), it.get("observedGeneration"))
        for it in status.get("conditions") or ()
    ]
    return [status.get("phase"), status.get("reason"), status.get("observedGeneration"), conditions]


def news(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(type, reason, message) of the Kubernetes Events that a write is worth: an end, a refusal."""
    old = {it.get("type"): it for it in before.get("conditions") or ()}
    told = []
    for it in after.get("conditions") or ():
        known = old.get(it["type"], {})
        message = it.get("message") or after.get("message") or ""
        if it["type"] == ACCEPTED and it["status"] == "False":
            if (known.get("status"), known.get("message")) != ("False", it["message"]):
                told.append(("Warning", it["reason"], message))
        elif it["type"] in _TOLD and it["status"] == "True" and known.get("status") != "True":
            told.append((_TOLD[it["type"]], it["reason"] or it["type"], message or it["type"]))
    return told


_TOLD = {"Complete": "Normal", "Failed": "Warning", "Warning": "Warning"}

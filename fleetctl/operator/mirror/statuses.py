"""The status of a custom resource: the engine's status of the stored object, and its health for
tools that do not know its kind.

Work is ready once it has succeeded, and suspended work that is meant to be is. A state that a
user has to fix is stalled: a refusal, a failure, a wait that will not end by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.common.text import format_timestamp, shorten_text
from fleetctl.operator.crds.definition import CELLS, build_cells
from fleetctl.views.objects import (
    DELETING,
    FAILED,
    READY,
    SKIPPED,
    SUCCEEDED,
    SUSPENDED,
    View,
    as_mapping,
    build_document,
    explain_status,
)
from fleetctl.views.sections.assets import WHY_CHARS_MAX

ACCEPTED = "Accepted"
REFUSED = "Refused"  # the phase of a resource that was never accepted
# The generation that conditions of the work speak of: the newest that was carried out.
ACCEPTED_GENERATION = "acceptedGeneration"
MESSAGE_CHARS_MAX = 4000
# A change of phase or condition is written after this time, with all that follows at its heels.
SOON_S = 0.3
# Counts alone are written ever more rarely: a job of a day must not write ten thousand times.
COUNTS_S = 5.0
COUNTS_MAX_S = 600.0

Status = dict[str, Any]

_AS_ASKED = "Suspended"  # the reason of objects that their own spec suspends
_MESSAGE_CHARS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Unaccepted:
    """The reason why the operator does not carry out the newest state. reason: one
    CamelCase word.
    """

    reason: str
    message: str
    hint: str = ""

    @property
    def sentence(self) -> str:
        text = f"{self.message}; {self.hint}" if self.hint else self.message
        return text[:MESSAGE_CHARS_MAX]


def status_for(
    seen: View | None,
    before: Mapping[str, Any],
    generation: int,
    refusal: Unaccepted | None,
    now_s: float,
) -> Status:
    """Returns the status of a custom resource.

    seen: None while no object is stored. before: the status that is written now. generation:
    generation of the custom resource, which kubectl compares with `observedGeneration`.
    """
    status: Status = {}
    if seen is not None:
        status = dict(as_mapping(build_document(seen, now_s, parts=("status",))["status"]))
        status[CELLS] = build_cells(seen, now_s)
        status.pop("durationSeconds", None)  # it would differ at every look
    refused = message = ""
    if refusal is not None:
        refused = refusal.reason
        message = refusal.sentence
        why = shorten_text(f"{refused}: {message}", WHY_CHARS_MAX)
        status = {
            "phase": REFUSED,
            "reason": refused,
            "message": message,
            "hint": refusal.hint,
            **status,
        }
        status.setdefault(CELLS, {"why": why})

    current = refusal is None and seen is not None and seen.current
    shown = int(generation if current else before.get(ACCEPTED_GENERATION) or 0)
    # A refused resource is looked at, too: its waiters must not wait for ever.
    observed = current or refusal is not None
    status["observedGeneration"] = generation if observed else shown
    status[ACCEPTED_GENERATION] = shown

    own = [it for it in status.get("conditions") or () if it["type"] != "Ready"]
    health = health_of(seen, status, refused=refused, told=message)
    conditions = [
        *({**it, "observedGeneration": shown} for it in own),
        *health.conditions(generation),
        _build_accepted(refusal, generation),
    ]
    status["conditions"] = _keep_times(conditions, before.get("conditions") or (), now_s)
    return status


def _build_accepted(refusal: Unaccepted | None, generation: int) -> dict[str, Any]:
    if refusal is None:
        return _build_condition(
            ACCEPTED,
            True,
            "Accepted",
            "",
            generation,
        )
    return _build_condition(
        ACCEPTED,
        False,
        refusal.reason,
        refusal.sentence,
        generation,
    )


def _build_condition(
    name: str,
    holds: bool,
    reason: str,
    message: str,
    generation: int,
) -> dict[str, Any]:
    return {
        "type": name,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
    }


def _keep_times(
    conditions: Sequence[dict[str, Any]],
    before: Sequence[Mapping[str, Any]],
    now_s: float,
) -> list[dict[str, Any]]:
    """Gives conditions without a time the time that they had, while they are unchanged."""
    old = {it.get("type"): it for it in before if isinstance(it, Mapping)}
    made = []
    for it in conditions:
        known = old.get(it["type"], {})
        same = known.get("status") == it["status"]
        since = known.get("lastTransitionTime") if same else None
        made.append({"lastTransitionTime": since or format_timestamp(now_s), **it})
    return made


def patch_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the merge patch from `before` to `after`; empty where they are equal."""
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
class StatusWrites:
    """The writes of a custom resource so far. counts: writes since its phase changed."""

    at_s: float = 0.0
    counts: int = 0


def due_at_s(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    writes: StatusWrites,
    since_s: float,
) -> float:
    """Returns when the difference should be written, by the clock of since_s: when it was first
    seen.
    """
    if _outline_status(before) != _outline_status(after):
        return since_s + SOON_S
    return writes.at_s + min(COUNTS_S * 2.0**writes.counts, COUNTS_MAX_S)


def record_write(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    writes: StatusWrites,
    now_s: float,
) -> StatusWrites:
    moved = _outline_status(before) != _outline_status(after)
    return StatusWrites(now_s, 0 if moved else writes.counts + 1)


def _outline_status(status: Mapping[str, Any]) -> list[object]:
    """Returns the parts of a status that a client may wait for."""
    conditions = [
        (it.get("type"), it.get("status"), it.get("reason"), it.get("observedGeneration"))
        for it in status.get("conditions") or ()
    ]
    return [status.get("phase"), status.get("reason"), status.get("observedGeneration"), conditions]


def list_events(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Lists (type, reason, message) of the Kubernetes Events that a write is worth: an end, a
    refusal.
    """
    old = {it.get("type"): it for it in before.get("conditions") or ()}
    told = []
    for it in after.get("conditions") or ():
        sort = it["type"]
        known = old.get(sort, {})
        message = it.get("message") or after.get("message") or ""
        became_true = it["status"] == "True" and known.get("status") != "True"
        refused = sort == ACCEPTED and it["status"] == "False"

        if refused:
            if (known.get("status"), known.get("message")) != ("False", it["message"]):
                told.append(("Warning", it["reason"], message))
        elif sort in _TOLD and became_true:
            told.append((_TOLD[sort], it["reason"] or sort, message or sort))
    return told


_TOLD = {"Complete": "Normal", "Failed": "Warning", "Warning": "Warning"}


@dataclass(frozen=True, slots=True)
class ObjectHealth:
    """The health of an object. ready, stalled: neither means reconciling. reason: one CamelCase
    word.
    """

    reason: str
    message: str
    ready: bool = False
    stalled: bool = False

    def conditions(self, generation: int) -> list[dict[str, Any]]:
        """Returns the conditions, without times. Conditions of a problem are there only while it
        lasts.
        """
        found = [_build_health_condition("Ready", self.ready, self, generation)]
        if self.stalled:
            found.append(_build_health_condition("Stalled", True, self, generation))
        elif not self.ready:
            found.append(_build_health_condition("Reconciling", True, self, generation))
        return found


def health_of(
    seen: View | None,
    status: Mapping[str, Any],
    *,
    refused: str,
    told: str,
) -> ObjectHealth:
    """Returns the health of an object.

    seen: the stored object. refused: reason why the newest state is not carried out, one word;
    told: the same as a sentence.
    """
    if refused:
        return ObjectHealth(refused, told, stalled=True)
    if seen is None or not seen.current:
        return ObjectHealth("InProgress", "the engine has not looked at it yet")
    reason = str(status.get("reason") or seen.phase)
    message = (str(status.get("message") or "") or explain_status(seen))[:_MESSAGE_CHARS_MAX]
    if seen.phase in (SUCCEEDED, READY, SKIPPED):
        return ObjectHealth(reason, message, ready=True)
    if seen.phase == SUSPENDED and reason == _AS_ASKED:
        return ObjectHealth(reason, message, ready=True)
    if seen.phase in (FAILED, SUSPENDED):
        return ObjectHealth(reason, message, stalled=True)
    if (stuck := as_mapping(seen.status.get("stuck"))) and seen.phase != DELETING:
        return ObjectHealth(reason, str(stuck.get("message") or message), stalled=True)
    return ObjectHealth(reason, message)


def _build_health_condition(
    name: str,
    holds: bool,
    health: ObjectHealth,
    generation: int,
) -> dict[str, Any]:
    return {
        "type": name,
        "status": "True" if holds else "False",
        "reason": health.reason,
        "message": health.message,
        "observedGeneration": generation,
    }

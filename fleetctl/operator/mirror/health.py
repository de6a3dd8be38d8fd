"""The health of an object for tools that do not know its kind: `Ready`, `Reconciling` and
`Stalled`, by the rules of kstatus, which Flux, Argo CD (deploy/argocd/health.lua) and `kubectl
wait` read. Pure; called by statuses.py.

Work is ready once it has succeeded, and suspended work that is meant to be is. A state that a user
has to fix is stalled: a refusal, a failure, a wait that will not end by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.views.objects import (
    DELETING,
    FAILED,
    READY,
    SKIPPED,
    SUCCEEDED,
    SUSPENDED,
    View,
    as_mapping,
    explain_status,
)

_AS_ASKED = "Suspended"  # the reason of objects that their own spec suspends
_MESSAGE_CHARS_MAX = 1000


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
        found = [_build_condition("Ready", self.ready, self, generation)]
        if self.stalled:
            found.append(_build_condition("Stalled", True, self, generation))
        elif not self.ready:
            found.append(_build_condition("Reconciling", True, self, generation))
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


def _build_condition(
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

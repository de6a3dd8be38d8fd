"""Builds the status of a Provider object: slots, spend and if new starts are allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.controllers.planning.placement import why_full
from fleetctl.controllers.vocabulary.status_keys import Status

if TYPE_CHECKING:
    from fleetctl.engine.capacity.admission import ProviderAdmission
    from fleetctl.engine.shared.engine_state import EngineState


def provider_status(
    state: EngineState,
    admission: ProviderAdmission,
    name: str,
) -> Status:
    """Slots, spend and whether anything new may start, as of the beginning of this tick."""
    if name not in state.providers:
        text = f"this version has no provider of the type of `{name}`"
        return {"phase": "Pending", "reason": "NoProvider", "message": text}
    full = why_full(0.0, admission.capacity_of(name))
    return {
        "reason": "Full" if full else "Ready",
        "message": full,
        "slots": admission.slots(name),
        "spend": admission.spend(name),
    }

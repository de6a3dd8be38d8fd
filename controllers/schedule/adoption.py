"""Decides if a unit may take over a sandbox without a record. Pure; called by the engine on a
user's request.

The sandbox lives already, so parallelism does not keep it out: it counts against it from then on.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.controllers.history.history import History
from fleetctl.controllers.planning.kind_controller import KindController, Unit


@dataclass(frozen=True, slots=True)
class AdoptionMatch:
    """The next attempt of this unit is what runs in the sandbox."""

    unit: Unit
    attempt: int


@dataclass(frozen=True, slots=True)
class AdoptionRefused:
    why: str  # a sentence without its subject, which is the sandbox


def match_adoption(
    controller: KindController,
    history: History,
    index: int | None,
    *,
    what: str,
) -> AdoptionMatch | AdoptionRefused:
    """index: from its tag, None without a tag. what: `task`, `trial`, for users."""
    if index is None:
        return AdoptionRefused(f"its tag does not say which {what} it is")
    unit = controller.unit(index)
    if unit is None:
        return AdoptionRefused(f"there is no {what} {index} any more")
    rules = (
        (controller.policy.suspend, "the object is suspended, which would stop it at once"),
        (index in history.live_by_index, f"{what} {index} runs already, and never runs twice"),
        (index in history.succeeded, f"{what} {index} has succeeded already"),
        (index in history.pruned, f"{what} {index} was stopped early, and never begins again"),
    )
    why = next((why for holds, why in rules if holds), "")
    if why:
        return AdoptionRefused(why)
    return AdoptionMatch(unit, history.next_attempt(index))

"""May a unit take over a sandbox that nobody remembers? Pure; called by the engine when a person
asks.

The sandbox lives already, so parallelism does not keep it out: it counts against it from then on.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.controllers.history.history import History
from fleetctl.controllers.planning.kind import KindController, Unit


@dataclass(frozen=True, slots=True)
class Taking:
    """The next attempt of this unit is what runs in the sandbox."""

    unit: Unit
    attempt: int


@dataclass(frozen=True, slots=True)
class NotTaken:
    why: str  # a sentence without its subject, which is the sandbox


def taking(
    controller: KindController, history: History, index: int | None, *, what: str
) -> Taking | NotTaken:
    """index: what its tag says, None where it says nothing. what: `task`, `trial`, for people."""
    if index is None:
        return NotTaken(f"its tag does not say which {what} it is")
    unit = controller.unit(index)
    if unit is None:
        return NotTaken(f"there is no {what} {index} any more")
    rules = (
        (controller.policy.suspend, "the object is suspended, which would stop it at once"),
        (index in history.live_by_index, f"{what} {index} runs already, and never runs twice"),
        (index in history.succeeded, f"{what} {index} has succeeded already"),
        (index in history.pruned, f"{what} {index} was stopped early, and never begins again"),
    )
    why = next((why for holds, why in rules if holds), "")
    return NotTaken(why) if why else Taking(unit, history.next_attempt(index))

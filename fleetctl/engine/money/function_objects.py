"""Function objects: each waits where no budget pays for its warm containers, and its status shows
its server and the cost of its containers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from fleetctl.controllers.planning.plan import EnsureFunction, Plan
from fleetctl.controllers.vocabulary.status_keys import Status
from fleetctl.engine.money.budgets import Budgets
from fleetctl.engine.money.warm_functions import KIND
from fleetctl.engine.shared.part import EnginePart, PartWiring

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.tracking.track import Track


class FunctionObjects(EnginePart):
    kind = KIND

    def __init__(self, state: EngineState, budgets: Budgets) -> None:
        self._state = state
        self._budgets = budgets

    @classmethod
    def build(cls, wiring: PartWiring) -> Self:
        return cls(wiring.state, wiring.get(Budgets))

    def limit_asset(self, track: Track, plan: Plan) -> Plan:
        if not any(isinstance(action, EnsureFunction) for action in plan.actions):
            return plan
        budgets = self._budgets
        denied = budgets.warming.denied(track, budgets.shared(track.resource))
        if denied is None:
            return plan
        budgets.denied(track)
        if denied.until_s is not None:
            self._state.queue.add(track.resource.uid, denied.until_s)
        return Plan(
            (),
            plan.phase,
            denied.reason,
            denied.message,
            (denied.message,),
        )

    def add_status(
        self,
        track: Track,
        status: Status,
        now_s: float,
    ) -> Status:
        accounts = self._budgets.shared(track.resource)
        status |= self._budgets.warming.status(track, accounts, now_s)
        address = track.asset.address
        url = address.url if address is not None else str(track.status.get("url") or "")
        if url and getattr(track.spec, "port", None) is not None:
            status["url"] = url
        if track.asset.warning:
            status["warning"] = track.asset.warning
        return status

    def dropped(self, track: Track) -> None:
        if "warm" in track.status:
            self._budgets.warming.gone(track, self._budgets.shared(track.resource))

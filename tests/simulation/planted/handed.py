"""Bugs with runs that W&B hands out."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from fleetctl.controllers.model import Run
from fleetctl.controllers.wandb import AssignedRuns
from fleetctl.engine.kinds.wandb.wandb_agent import WandbAgent
from tests.simulation.planted.plant import Plant, around, swapped


def a_run_at_wandb_is_begun_twice() -> AbstractContextManager[object]:
    """A restarted controller knows the points of its trials, and not whose runs they are."""

    def recall(self: AssignedRuns, run: Run) -> None:
        self.points[run.index] = json.loads(run.params)
        self._next = max(self._next, run.index + 1)

    return swapped(AssignedRuns, "recall", recall)


def what_an_unheard_answer_handed_out_is_lost() -> AbstractContextManager[object]:
    """Nobody asks what an agent was handed whose answer was lost."""

    async def find_nothing(self: WandbAgent, _ask: object) -> None:
        self._unsure.clear()

    def sure(turn: Any) -> Any:
        async def patched(self: WandbAgent, *args: Any) -> None:
            self._sure = True
            await turn(self, *args)

        return patched

    stack = ExitStack()
    stack.enter_context(swapped(WandbAgent, "_find_lost", find_nothing))
    stack.enter_context(around(WandbAgent, "turn", sure))
    return stack


PLANTS: tuple[Plant, ...] = (
    a_run_at_wandb_is_begun_twice,
    what_an_unheard_answer_handed_out_is_lost,
)

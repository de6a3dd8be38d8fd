"""fleet-rlm's own engine, its child agents included, with interpreters of fleetctl in the place of
its Daytona sandboxes: writes one line of JSON.
"""

from __future__ import annotations

import json
import os
from typing import Any

import dspy
from fleet_rlm.engine.programs import AdaptiveFleetEngine

import fleetctl.dspy
from fleetctl import DaytonaInterpreter

CODE = "[[ ## reasoning ## ]]\nr\n\n[[ ## code ## ]]\n{}\n\n[[ ## completed ## ]]"
ROOT = """
found = spawn_agents(subtasks=['one', 'two'])
print(found)
SUBMIT(answer=str([one['findings'] for one in found]), learned_skill_note='')
"""
CHILD = "SUBMIT(findings='FINDINGS OF ' + subtask)"


class Model(dspy.BaseLM):
    """Writes the code of the root, and that of a child where it is asked for `findings`."""

    def __init__(self) -> None:
        super().__init__(model="stub")

    def __call__(self, prompt: str | None = None, **named: Any) -> list[str]:
        text = str(named.get("messages") or prompt)
        return [CODE.format(CHILD if "SUBMIT(findings)" in text else ROOT)]


class Sandboxes:
    """What the engine asks of its manager of sandboxes, without Daytona."""

    max_llm_calls = 20
    max_active_children = 2
    turn_active = False

    def __init__(self) -> None:
        self.root = self
        self.interpreters = 0
        self.calls = 0
        self._make = fleetctl.dspy.factory(
            DaytonaInterpreter, provider=os.environ["FLEETCTL_PROVIDER"]
        )

    def interpreter_factory(self, **_: Any) -> Any:
        def create() -> Any:
            made: Any = self._make()
            made.manager = self
            self.interpreters += 1
            return made

        return create

    def consume_budget(self, count: int = 1, **_: Any) -> None:
        self.calls += count

    def collect_child_artifacts(self) -> list[str]:
        return []

    def execution_evidence(self) -> dict[str, Any]:
        return {}

    def turn_usage(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def _nothing(self, *_: Any, **__: Any) -> None:
        """Turns and deadlines are not what is tried here."""

    reset_turn_budget = check_turn = end_turn = emit = shutdown = _nothing


sandboxes, model = Sandboxes(), Model()
engine = AdaptiveFleetEngine(sandboxes, root_lm=model, sub_lm=model, execution_mode="rlm")
done = engine(workspace_manifest="", memory_summary="", task="try two things")
print(
    json.dumps({"answer": done.answer, "route": done.route, "interpreters": sandboxes.interpreters})
)

"""TrainingRun with `groups`: its units work side by side, begin together, and end with the primary
ones. Pure.

Identity, retries, checkpoints and templates are those of stages, see trainingrun.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.controllers.history.history import History
from fleetctl.controllers.kinds.trainingrun import (
    TrainingRunController,
    build_templates,
    newest_checkpoint,
)
from fleetctl.controllers.model import (
    CheckpointOrder,
    GroupMember,
    ProgressOrder,
    Run,
    RunGroups,
    RunState,
)
from fleetctl.controllers.planning.kind_controller import (
    KeepRunning,
    ObjectVerdict,
    StopNow,
    Unit,
    as_desired,
    describe_params_source,
)
from fleetctl.controllers.schedule.end import find_early_verdict
from fleetctl.controllers.status_keys import Status
from fleetctl.controllers.trials.winner import with_sweeps_command
from fleetctl.specs.blocks.nodes import nodes_of
from fleetctl.specs.content import Pins, content_of
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec

RESTARTED = "GroupRestarted"


class TrainingGroupsController(TrainingRunController):
    """Decides for a TrainingRun whose units are groups. Under `restartPolicy: All`, while a group
    has failed and has no live attempt, no other one lives: then all start again together.
    """

    in_order = False
    reason_failed = "GroupFailed"
    together = True

    @staticmethod
    def contents_of(spec: TrainingRunSpec, pins: Pins) -> tuple[str, ...]:
        """Returns the contents of the groups, which do not build on each other."""
        template = with_sweeps_command(spec.template, spec.params_from, pins)
        spec = spec.model_copy(update={"template": template})
        return tuple(content_of(it, pins, spec.params_from) for it in build_templates(spec))

    def _contents(self) -> tuple[str, ...]:
        owns = {stage.index: stage.own for stage in self._stages.values()}
        return tuple(owns.get(index, "") for index in range(max(owns) + 1))

    def called(self, index: int) -> str:
        stage = self._stages.get(index)
        return f"group {stage.name if stage is not None else index}"

    def next(self, history: History) -> Iterator[Unit]:
        for index in self._stages:
            unit = self.unit(index)
            if unit is not None and index not in history.taken and self.ready(history, index):
                yield unit

    def ready(self, history: History, index: int) -> bool:
        """Returns true if a group may start: not before the others have ended that start again
        with it.
        """
        return not (history.live and self._find_restarted(history))

    def keep(self, history: History, run: Run) -> KeepRunning | StopNow:
        decision = as_desired(self, run)
        failed = self._find_restarted(history)
        if isinstance(decision, StopNow) or not failed:
            return decision
        return StopNow(RESTARTED, f"group {failed} has failed, and all groups restart with it")

    def _find_restarted(self, history: History) -> str:
        """Returns the name of a failed group with which all others restart, until it does; empty
        without one.
        """
        for stage in self._stages.values():
            unit = history.unfinished.get(stage.index)
            last = unit.last if unit is not None else None
            if last is None or last.state not in (RunState.FAILED, RunState.LOST):
                continue
            if stage.index not in history.live_by_index and self._restarts_all(stage.name):
                return stage.name
        return ""

    def _restarts_all(self, name: str) -> bool:
        return any(it.name == name and it.restart_policy == "All" for it in self.spec.groups)

    def verdict(self, history: History) -> ObjectVerdict | None:
        by_name = {stage.name: stage.index for stage in self._stages.values()}
        first = [by_name[name] for name in self.spec.primaries]
        if all(index in history.succeeded for index in first):
            names = ", ".join(self.spec.primaries)
            word = "group" if len(first) == 1 else "groups"
            return ObjectVerdict(True, "Completed", f"{word} {names} succeeded")
        if history.failed:
            return self._explain_failed(history)
        return find_early_verdict(self.spec, history, units="groups")

    def summary(self, history: History) -> Status:
        members = self._members()
        return {
            **describe_params_source(self.spec.params_from, self.given),
            **newest_checkpoint(history.saves),
            "restarts": history.retries,
            "groups": [
                {"name": it.name, "nodes": it.nodes, "state": _state_of(history, it.index)}
                for it in members
            ],
        }

    def progress(self, index: int) -> ProgressOrder | None:
        return super().progress(index) if self._is_primary(index) else None

    def checkpoint(self, history: History, index: int) -> CheckpointOrder | None:
        return super().checkpoint(history, index) if self._is_primary(index) else None

    def _is_primary(self, index: int) -> bool:
        return self._stages[index].name in self.spec.primaries

    def groups(self, index: int) -> RunGroups | None:
        return RunGroups(self._stages[index].name, self._members())

    def _members(self) -> tuple[GroupMember, ...]:
        ports = {it.name: it.port for it in self.spec.groups}
        return tuple(
            GroupMember(
                it.name,
                it.index,
                nodes_of(it.template).max,
                ports[it.name],
                str(it.template.resources.gpu or ""),
            )
            for it in self._stages.values()
        )


def _state_of(history: History, index: int) -> str:
    name = history.live_by_index.get(index)
    if name is not None:
        return history.live[name].state.value
    if index in history.succeeded:
        return "Succeeded"
    if index in history.failed:
        return "Failed"
    unit = history.unfinished.get(index)
    stopped = unit is not None and unit.last is not None and unit.last.state is RunState.STOPPED
    return "Stopped" if stopped else "Waiting"

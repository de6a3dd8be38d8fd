"""One resource without an engine: passes are made, and what they decide happens at once.

The rows are kept as a store would keep them, so that any moment can be replayed from them. Used by
the tests of controllers; knows no provider and no clock but the one that a test sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fleetctl.controllers.history.history import History, ReplayedRun, replay_runs
from fleetctl.controllers.kinds.registry import choose_controller
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.kind_controller import KindController, is_outdated, is_superseded
from fleetctl.controllers.planning.plan import (
    CloseSandbox,
    Drop,
    FreeScratch,
    Plan,
    Rollout,
    Start,
    Stop,
    lint_plan,
)
from fleetctl.controllers.reconcile import reconcile_object
from fleetctl.controllers.schedule.desired import DesiredObject, PriorStatus, StartWait
from fleetctl.controllers.status import prior_of, status_of
from fleetctl.specs.content import NO_PINS, Pins
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.hashing import canonical_json

LOCAL = {"local": 4}
START_S = 1_000.0


class Play:
    """spec: the fields of a manifest's `spec`, as a person writes them."""

    def __init__(
        self, spec: Mapping[str, Any], kind: str = "BatchJob", *, now_s: float = START_S
    ) -> None:
        self.kind = kind
        self.now_s = now_s
        self.generation = 1
        self.pins = NO_PINS
        self.deleted = False
        self.swept = False
        self.status: dict[str, Any] = {}
        self.waits: dict[str, StartWait] = {}
        self.rows: dict[str, tuple[Run, str | None]] = {}
        self.spec = dict(spec)
        self.controller, self.history = self.replayed()

    # -- specs ------------------------------------------------------------------------------------

    def change(self, **fields: Any) -> None:
        """A new generation of the spec. None takes a field away."""
        before = self.controller.contents
        self.spec = {key: it for key, it in {**self.spec, **fields}.items() if it is not None}
        self.generation += 1
        self.controller, self.history = self.replayed()
        if self.controller.contents != before:
            # What an apply notes, see apply/propose.py.
            spares = self.controller.policy.rollout is Rollout.FINISH_RUNNING
            self.pins = Pins(finishing_at_s=self.now_s if spares else None)
            self.controller, self.history = self.replayed()

    def restart(self) -> None:
        """The controller process died and came back: nothing is known but the rows."""
        self.controller, self.history = self.replayed()

    def replayed(self) -> tuple[KindController, History]:
        spec = KINDS[self.kind].spec.model_validate(self.spec)
        allocated = {run.params_hash: run.index for run, _ in self._stored()}
        make = choose_controller(self.kind, spec)
        assert make is not None
        controller = make(spec, allocated, self.pins)
        if controller.keeps_indexes:
            for run, _ in self._stored():
                controller.recall(run)
        history = History(controller.limits)
        replay_runs(history, self._replayed_rows(controller))
        return controller, history

    # -- passes ------------------------------------------------------------------------------------

    def look(self) -> Plan:
        """What a pass would decide now. Nothing happens."""
        plan = reconcile_object(self.desired(), self.history, self.now_s)
        limit = self.controller.policy.parallelism
        assert lint_plan(plan, self.history, parallelism=limit) == []
        return plan

    def turn(self) -> Plan:
        """One pass, carried out. What it stops or closes is gone when `confirm` is called."""
        plan = self.look()
        for action in plan.actions:
            match action:
                case Start():
                    self._begin(action)
                case Stop():
                    run = self.history.live[action.run]
                    self._keep(replace(run, state=RunState.STOPPING, reason=action.reason))
                case CloseSandbox():
                    self.history.sandboxes.closing(action.sandbox)
        if not plan.final:
            self.status = status_of(plan, self.desired(), self.history, self.status, self.now_s)
        return plan

    def desired(self) -> DesiredObject:
        return DesiredObject(
            uid="u1",
            generation=self.generation,
            deleted=self.deleted,
            controller=self.controller,
            providers=LOCAL,
            prior=prior_of(self.status) if self.status else PriorStatus(),
            waits=self.waits,
            swept=self.swept,
        )

    def settle(self) -> Plan:
        """Pass after pass, all stops confirmed, until a pass has nothing to do."""
        for _ in range(1_000):
            plan = self.turn()
            stopped = self.confirm()
            if not plan.actions and not stopped:
                return plan
        raise AssertionError("the passes never come to rest")

    def settle_deletion(self) -> None:
        """Passes until the row is dropped."""
        for _ in range(10):
            plan = self.turn()
            self.confirm()
            self.swept = any(isinstance(action, FreeScratch) for action in plan.actions)
            if any(isinstance(action, Drop) for action in plan.actions):
                return
        raise AssertionError("the deleted object never goes")

    # -- what happens to runs ----------------------------------------------------------------------

    @property
    def active(self) -> list[int]:
        return sorted(self.history.live_by_index)

    def live(self, index: int) -> Run:
        return self.history.live[self.history.live_by_index[index]]

    def succeed(self, *indexes: int, result: str | None = None, sandbox_open: bool = False) -> None:
        for index in indexes:
            self.end(index, RunState.SUCCEEDED, "Completed", 0, result, sandbox_open)

    def fail(self, *indexes: int, reason: str = "ExitCode:1", exit_code: int | None = 1) -> None:
        for index in indexes:
            self.end(index, RunState.FAILED, reason, exit_code)

    def lose(self, *indexes: int, reason: str = "ProviderLost") -> None:
        for index in indexes:
            self.end(index, RunState.LOST, reason)

    def resumes(self, index: int, step: int | None) -> None:
        """The live run of `index` began from a checkpoint."""
        self._keep(replace(self.live(index), resumed_step=step))

    def saves(self, index: int, step: int) -> None:
        """It completed one."""
        self._keep(replace(self.live(index), saved_step=step))

    def refuse(self, index: int, message: str) -> None:
        self.end(index, RunState.REFUSED, "Refused", message=message)

    def confirm(self) -> int:
        """Every run and sandbox that is being ended is gone now. How many there were."""
        closing = [box.name for box in self.history.sandboxes.values() if box.closing]
        for name in closing:
            self._close(name)
        stopping = [r for r in self.history.live.values() if r.state is RunState.STOPPING]
        for run in stopping:
            self.end(run.index, RunState.STOPPED, run.reason)
        return len(stopping) + len(closing)

    def confirm_starts(self) -> None:
        for run in list(self.history.live.values()):
            if run.state is RunState.STARTING:
                started = replace(run, state=RunState.RUNNING, started_at_s=self.now_s)
                self._entered(started)
                self._keep(started)

    def end(
        self,
        index: int,
        state: RunState,
        reason: str,
        exit_code: int | None = None,
        result: str | None = None,
        sandbox_open: bool = False,
        message: str = "",
    ) -> None:
        """The live run of `index` is over."""
        run = replace(
            self.live(index),
            state=state,
            reason=reason,
            message=message,
            exit_code=exit_code,
            ended_at_s=self.now_s,
            sandbox_open=sandbox_open,
        )
        if state in (RunState.SUCCEEDED, RunState.FAILED, RunState.LOST):
            self._entered(run)
        self.rows[run.name] = (run, result)
        self.waits.pop(run.name, None)
        self.history.ended(
            run,
            score=self._score(self.controller, run, result),
            superseded=is_superseded(self.controller, run),
            outdated=is_outdated(self.controller, run),
            wanted=self.controller.unit(index) is not None,
        )

    # -- helpers -----------------------------------------------------------------------------------

    def _begin(self, start: Start) -> None:
        name = f"run-{start.index}-{start.attempt}"
        unit = self.controller.unit(start.index)
        assert unit is not None, f"{name} starts and is not wanted"
        run = Run(
            name=name,
            uid="u1",
            index=start.index,
            attempt=start.attempt,
            state=RunState.STARTING,
            provider=start.provider,
            sandbox=start.sandbox or name,
            template_hash=start.template_hash,
            params=canonical_json(dict(start.params)),
            params_hash=start.params_hash,
            created_at_s=self.now_s,
            content=unit.content,
        )
        assert name not in self.rows, f"{name} is begun twice"
        self.rows[name] = (run, None)
        self.history.began(run)

    def _keep(self, run: Run) -> None:
        self.rows[run.name] = (run, None)
        self.history.changed(run)

    def _entered(self, run: Run) -> None:
        last = self.history.sandboxes[run.sandbox].last
        self.history.sandboxes.set_last_run(run)
        if last.name != run.name:
            self._let_go(last.name)

    def _close(self, sandbox: str) -> None:
        self._let_go(self.history.sandboxes[sandbox].last.name)
        self.history.sandboxes.closed(sandbox)

    def _let_go(self, name: str) -> None:
        run, result = self.rows[name]
        self.rows[name] = (replace(run, sandbox_open=False), result)

    def _stored(self) -> list[tuple[Run, str | None]]:
        return sorted(self.rows.values(), key=lambda row: (row[0].index, row[0].attempt))

    def _replayed_rows(self, controller: KindController) -> Iterator[ReplayedRun]:
        for run, result in self._stored():
            yield ReplayedRun(
                run,
                self._score(controller, run, result),
                superseded=is_superseded(controller, run),
                outdated=is_outdated(controller, run),
                wanted=controller.unit(run.index) is not None,
            )

    def _score(self, controller: KindController, run: Run, result: str | None) -> float | None:
        return controller.score(result, {}) if run.state is RunState.SUCCEEDED else None


def job(**fields: Any) -> dict[str, Any]:
    """The spec of a BatchJob of Python tasks."""
    return {"template": {"python": "SUBMIT(ok=True)"}, "completions": 3, **fields}

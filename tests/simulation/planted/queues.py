"""Bugs with work in queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from fleetctl.controllers.history import open_sandboxes
from fleetctl.controllers.model import Ended, Run, RunState
from fleetctl.controllers.queues import preemption
from fleetctl.controllers.queues.queue_admission import QueueAdmission
from fleetctl.controllers.queues.queue_state import QueueState, QueueStates
from fleetctl.engine.kinds.queues import Queues
from fleetctl.engine.observe import observations
from tests.simulation.planted.plant import Plant, around, swapped

Context = AbstractContextManager[object]


def preempted_work_counted_as_failed() -> Context:
    """A program that made room ended with an exit code, which counts."""

    def make(judge: Any) -> Any:
        def patched(run: Run, seen: Any, *, settled: bool) -> Any:
            after = judge(run, seen, settled=settled)
            made_room = run.state is RunState.STOPPING and run.reason == "Preempted"
            if made_room and isinstance(seen, Ended) and not seen.ok and after is not None:
                return replace(after, state=RunState.FAILED)
            return after

        return patched

    return around(observations, "conclude_run", make)


def what_is_being_stopped_takes_nothing() -> Context:
    """A run that makes room counts no more once it is asked to, and it is still there."""

    def make(use: Any) -> Any:
        def patched(self: Any, *args: Any, leaving: bool = False, **more: Any) -> None:
            if not leaving:
                use(self, *args, leaving=leaving, **more)

        return patched

    return around(QueueStates, "use", make)


def what_runs_is_forgotten_at_restart() -> Context:
    """After a restart a queue counts only what it has started itself."""

    def make(load: Any) -> Any:
        def patched(self: Queues) -> None:
            load(self)
            self._holders.clear()

        return patched

    return around(Queues, "load", make)


def an_idle_sandbox_takes_nothing() -> Context:
    """Between two tasks a sandbox is not counted."""

    def make(count: Any) -> Any:
        def patched(self: Any, name: str) -> None:
            count(self, name)
            box = self.get(name)
            if box is not None and not box.busy:
                self.held.set(name, None)

        return patched

    return around(open_sandboxes.OpenSandboxes, "count", make)


def whoever_asks_first_goes_first() -> Context:
    """Room is given to whoever is looked at, not to who comes first."""
    return swapped(QueueAdmission, "_find_waiter_before", lambda _self, _line, _vector: None)


def turns_are_not_taken() -> Context:
    """What a namespace uses makes no difference."""
    return swapped(QueueState, "share", lambda _self, _namespace: 0.0)


@contextmanager
def equals_make_room() -> Iterator[None]:
    """Work of the same priority is stopped for who waits, and for it again."""

    def may_stop(lines: QueueStates, there: QueueState, one: Any, case: Any) -> bool:
        return there is not case.line or one.priority <= case.waiter.priority

    anybody = swapped(preemption, "_may_ask", lambda _line, _waiter, _lowest: True)
    with anybody, swapped(preemption, "_may_stop", may_stop):
        yield


def a_task_in_a_used_sandbox_asks_nobody() -> Context:
    """A sandbox that takes tasks in turn goes on with them, whoever waits."""
    return swapped(QueueAdmission, "gives_way", lambda _self, _held: False)


PLANTS: tuple[Plant, ...] = (
    preempted_work_counted_as_failed,
    what_is_being_stopped_takes_nothing,
    what_runs_is_forgotten_at_restart,
    an_idle_sandbox_takes_nothing,
    whoever_asks_first_goes_first,
    turns_are_not_taken,
    equals_make_room,
    a_task_in_a_used_sandbox_asks_nobody,
)

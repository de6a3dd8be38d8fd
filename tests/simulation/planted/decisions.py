"""Bugs in deciding: wrong limits, forgotten waits, specs that are not carried out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from fleetctl.apply import propose
from fleetctl.controllers import reconcile
from fleetctl.controllers.history import attempts, outcome
from fleetctl.controllers.history import history as replaying
from fleetctl.controllers.history.history import History
from fleetctl.controllers.history.open_sandboxes import OpenSandboxes
from fleetctl.controllers.history.retry_limits import RetryLimits
from fleetctl.controllers.kinds import batchjob
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.planning.kind_controller import (
    KeepRunning,
    KindController,
    is_outdated,
    is_superseded,
)
from fleetctl.controllers.planning.plan import Drop, FreeScratch, Phase, Plan
from fleetctl.controllers.schedule import desired, end, starts
from fleetctl.engine.decide import intents, passes
from fleetctl.engine.sleeping import Sleepers
from fleetctl.engine.tick import Ticks
from fleetctl.tracking import load
from tests.simulation.planted.plant import Plant, around, swapped

Context = AbstractContextManager[object]


class _Uncounted(dict[str, Any]):
    """Live runs, of which those in some states do not count."""

    ignored: frozenset[RunState] = frozenset()

    def __len__(self) -> int:
        return sum(run.state not in self.ignored for run in self.values())


def _not_counting(*states: RunState) -> Context:
    kind = type("Uncounted", (_Uncounted,), {"ignored": frozenset(states)})

    def make(init: Callable[..., None]) -> Callable[..., None]:
        def patched(self: History, *facts: Any) -> None:
            init(self, *facts)
            self.live = kind()

        return patched

    return around(History, "__init__", make)


def starting_not_counted() -> Context:
    """A start whose outcome is unknown does not count against parallelism."""
    return _not_counting(RunState.STARTING)


def stopping_not_counted() -> Context:
    """A run that is being stopped does not count against parallelism."""
    return _not_counting(RunState.STOPPING)


def parallelism_off_by_one() -> Context:
    """One run too many."""

    def make(policy_of: Callable[..., Any]) -> Callable[..., Any]:
        def patched(spec: Any, *pins: Any, **options: Any) -> Any:
            policy = policy_of(spec, *pins, **options)
            return replace(policy, parallelism=(policy.parallelism or 0) + 1)

        return patched

    return around(batchjob, "policy_of", make)


def backoff_limit_off_by_one() -> Context:
    """One attempt too many."""

    def make(spent: Callable[..., bool]) -> Callable[..., bool]:
        return lambda limits, **counts: spent(
            replace(limits, backoff_limit_per_index=limits.backoff_limit_per_index + 1), **counts
        )

    return around(attempts, "are_retries_spent", make)


def backoff_ignored() -> Context:
    """A failed unit runs again at once."""
    return swapped(attempts, "due_at_s", lambda limits, run, **counts: 0.0)


def lost_costs_like_failed() -> Context:
    """An infrastructure failure counts against the application's limit."""

    def make(count: Callable[..., None]) -> Callable[..., None]:
        def patched(history: History, unit: Any, run: Any, *step: Any, **saved: Any) -> None:
            count(history, unit, replace(run, state=RunState.FAILED), *step, **saved)

        return patched

    return around(attempts, "_count_failure", make)


def older_failures_count() -> Context:
    """A failure under an older template counts against the present one."""

    def make(ended: Callable[..., None]) -> Callable[..., None]:
        def patched(self: History, run: Any, **options: Any) -> None:
            ended(self, run, **(options | {"superseded": False}))

        return patched

    return around(History, "ended", make)


def open_sandboxes_forgotten_at_restart() -> Context:
    """A restarted controller does not know the sandboxes that wait for a task."""

    def make(replay: Callable[..., None]) -> Callable[..., None]:
        def patched(history: History, rows: Any) -> None:
            replay(history, rows)
            idle = [name for name, box in history.sandboxes.items() if not box.busy]
            for name in idle:
                history.sandboxes.closed(name)

        return patched

    return around(load, "replay_runs", make)


def wake_time_ignored() -> Context:
    """A pass that must be made again at a time is not, where no full scan makes up for it."""

    def make(decide: Callable[..., Plan]) -> Callable[..., Plan]:
        return lambda *desired: replace(decide(*desired), wake_at_s=None)

    both = ExitStack()
    both.enter_context(around(passes, "reconcile_object", make))
    both.enter_context(swapped(Sleepers, "wake", lambda self, now_s: self.awake(now_s)))
    return both


def deadline_ignored() -> Context:
    """activeDeadlineSeconds is not looked at."""
    return swapped(desired, "deadline_at_s", lambda *_: None)


def suspend_only_in_status() -> Context:
    """A suspended object says so, and its runs go on."""
    return swapped(end, "stop_all", lambda known, reason, policy: [])


def suspend_unset_by_an_apply() -> Context:
    """An apply of a file that does not speak of `suspend` resumes what a person suspended."""
    return swapped(propose, "with_hand_fields", lambda stored, manifests: list(manifests))


def old_template_goes_on() -> Context:
    """A run that the spec does not want any more is left alone."""
    return swapped(KindController, "keep", lambda controller, history, run: KeepRunning())


def reuse_without_limit() -> Context:
    """A sandbox takes tasks for ever."""

    def make(policy_of: Callable[..., Any]) -> Callable[..., Any]:
        def patched(*spec: Any, **options: Any) -> Any:
            policy = policy_of(*spec, **options)
            return policy if policy.reuse == 1 else replace(policy, reuse=None)

        return patched

    return around(batchjob, "policy_of", make)


def a_worker_is_young_for_ever() -> Context:
    """Nobody asks how old a sandbox is before it gets another task."""
    return swapped(starts, "_is_old", lambda *_: False)


def a_worker_is_young_again_after_a_restart() -> Context:
    """A sandbox is taken to be as old as the last task in it."""

    def make(replay: Callable[..., None]) -> Callable[..., None]:
        def patched(self: OpenSandboxes, run: Run, *, used: int, since_s: float) -> None:
            replay(self, run, used=used, since_s=run.created_at_s)

        return patched

    return around(OpenSandboxes, "replay", make)


def dropped_while_live() -> Context:
    """A deleted object disappears before its runs do."""

    def delete(desired: Any, known: History, now_s: float) -> Plan | None:
        if not desired.deleted:
            return None
        action = Drop(desired.uid, "") if desired.swept else FreeScratch(desired.uid, False, "")
        return Plan((action,), Phase.DELETING, "Deleted")

    return swapped(reconcile, "RULES", (delete, *reconcile.RULES[1:]))


def end_forgotten_after_restart() -> Context:
    """A finished object is judged anew in each pass."""
    rules = tuple(rule for rule in reconcile.RULES if rule.__name__ != "_plan_finished")
    return swapped(reconcile, "RULES", rules)


def poison_stops_the_loop() -> Context:
    """An object whose pass raises takes the turn with it."""

    return swapped(Ticks, "_pass", lambda self, uid, now_s: self._passes.make(uid, now_s))


def volume_goes_before_its_users() -> Context:
    """The data of a deleted volume is removed while tasks still use it."""
    return swapped(intents, "_list_asset_users", lambda state, market, used: [])


def retain_ignored() -> Context:
    """The data of every deleted volume is removed."""

    def make(desired: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *facts: replace(desired(*facts), delete_data=True)

    return around(intents, "_desired_asset", make)


def program_is_no_content() -> Context:
    """A finished task counts whatever program it ran."""
    return swapped(batchjob, "content_of", lambda *told: "the same")


def outdated_counts_after_a_restart() -> Context:
    """Reading the rows back takes outdated successes for desired ones."""
    return swapped(load, "is_superseded", _superseded_without_content)


def _superseded_without_content(controller: Any, run: Any) -> bool:
    known = is_superseded(controller, run)
    return known and not is_outdated(controller, run)


def infra_retries_never_spent() -> Context:
    """What the infrastructure loses is tried again for ever."""

    def patched(limits: RetryLimits, *, app_failures: int, **_: object) -> bool:
        return app_failures > limits.backoff_limit_per_index

    return swapped(attempts, "are_retries_spent", patched)


def replay_cuts_at_the_first() -> Context:
    """A restart lets an outcome count that a later change of the spec had taken back."""

    def earliest(*places: Any, **default: int) -> Any:
        # With a default it is the cut; the other is the number of attempts.
        return min(*places, **default) if default else max(*places)

    return mock.patch.object(replaying, "max", earliest, create=True)


def fence_open() -> Context:
    """What was stopped because its spec had changed counts when it succeeds all the same."""
    return swapped(outcome, "FENCED", frozenset())


PLANTS: tuple[Plant, ...] = (
    program_is_no_content,
    outdated_counts_after_a_restart,
    starting_not_counted,
    stopping_not_counted,
    parallelism_off_by_one,
    backoff_limit_off_by_one,
    backoff_ignored,
    lost_costs_like_failed,
    older_failures_count,
    open_sandboxes_forgotten_at_restart,
    wake_time_ignored,
    deadline_ignored,
    suspend_only_in_status,
    suspend_unset_by_an_apply,
    old_template_goes_on,
    reuse_without_limit,
    a_worker_is_young_for_ever,
    a_worker_is_young_again_after_a_restart,
    dropped_while_live,
    end_forgotten_after_restart,
    poison_stops_the_loop,
    volume_goes_before_its_users,
    retain_ignored,
    infra_retries_never_spent,
    replay_cuts_at_the_first,
    fence_open,
)

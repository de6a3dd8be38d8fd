"""Decides when a failed unit runs again, and when it never does, and keeps the units that wait for
their next attempt. Pure.

Updated by history.py; read by the code that chooses starts and by the status.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from fleetctl.controllers.model import Run, RunState

# The reason of a run that ended because its sandbox reached the greatest age that the provider
# allows.
MAX_LIFETIME = "MaxLifetime"
MAKE_IT_FIT = "save checkpoints that the next attempt goes on from, or split the work"
# The reason of a start that waited too long for all of its nodes: the next one has fewer.
FEWER_NODES = "FewerNodes"
# The reason of a run whose result cannot be kept: another attempt would hand in the same.
RESULT_INVALID = "ResultInvalid"
# The reason of a run that wrote more than is kept: another attempt would write as much.
OUTPUTS_TOO_LARGE = "OutputsTooLarge"
# The reason of a run whose program is not there: another attempt would look for it in vain.
COMMAND_NOT_FOUND = "CommandNotFound"
# The reason of a prompt whose reply a content filter removed.
ANSWER_FILTERED = "AnswerFiltered"
ROLL_OVER_MIN_S = 5.0  # below, an attempt has started without saving
ROLL_OVERS_IDLE_MAX = 3  # in a row without progress; from then on the next one waits

SHOWN_MAX = 3  # units that a message may speak of
_AFTER_ALL_INDEXES = 1 << 62


class FailureAction(StrEnum):
    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL_INDEX = "FailIndex"
    FAIL_JOB = "FailJob"


@dataclass(frozen=True, slots=True)
class FailureRule:
    """First match wins. exit_codes: unset matches any code; `negated` turns In into NotIn; reasons
    empty matches any.
    """

    name: str
    action: FailureAction
    exit_codes: frozenset[int] | None = None
    negated: bool = False
    reasons: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """The limits on a unit's failures, and on its waits in between. Seconds; counts are per
    unit.
    """

    backoff_limit_per_index: int = 0
    max_infra_retries: int = 5
    backoff_initial_s: float = 1.0
    backoff_max_s: float = 300.0
    backoff_factor: float = 2.0
    rules: tuple[FailureRule, ...] = ()
    seed: int = 0
    # Reasons for which the kind itself ends a run permanently: its unit does not start again.
    final: frozenset[str] = frozenset()
    checkpoints: bool = False  # units report when they get further


def failure_action(limits: RetryLimits, run: Run) -> FailureAction:
    """Returns the failure policy's action for an ended run; an infrastructure failure is not the
    application's.
    """
    for rule in limits.rules:
        if _matches_rule(rule, run):
            return rule.action
    return FailureAction.COUNT


def _matches_rule(rule: FailureRule, run: Run) -> bool:
    if rule.exit_codes is not None:
        if run.exit_code in (None, 0):
            return False
        if (run.exit_code in rule.exit_codes) == rule.negated:
            return False
    # `ExitCode:2` is matched by `ExitCode` as well as by its full form.
    return (
        not rule.reasons or run.reason in rule.reasons or run.reason.split(":")[0] in rule.reasons
    )


def rolls_over(run: Run) -> bool:
    """Returns true if the run ended at its sandbox's greatest age: another attempt goes on with the
    same work.

    It counts as no failure, however long the work takes, as long as it progresses.
    """
    return run.state is RunState.LOST and run.reason == MAX_LIFETIME


def has_progressed(reached: int | None, step: int | None) -> bool:
    """Returns true if an attempt came further than earlier attempts. reached, step: the greatest
    step that earlier attempts and this one reported; None without a report.
    """
    return step is not None and (reached is None or step > reached)


def has_hardly_begun(run: Run) -> bool:
    """Returns true if the sandbox's greatest age leaves too little for any work: another one ends
    as soon.
    """
    if run.started_at_s is None or run.ended_at_s is None:
        return True
    return run.ended_at_s - run.started_at_s < ROLL_OVER_MIN_S


def are_retries_spent(
    limits: RetryLimits,
    *,
    app_failures: int,
    infra_failures: int,
    idle_lives: int,
) -> bool:
    """Returns True when no further attempt may be made. idle_lives: sandboxes in a row that grew
    too old without progress; one more would end the same way, and be paid.
    """
    return (
        app_failures > limits.backoff_limit_per_index
        or infra_failures > limits.max_infra_retries
        or idle_lives > limits.max_infra_retries
    )


def due_at_s(
    limits: RetryLimits,
    run: Run,
    *,
    failures: int,
) -> float:
    """Returns the earliest start of the next attempt, in seconds since the epoch, UTC.

    Doubles per application failure up to backoff_max_s, as the Kubernetes Job controller does,
    times a jitter in [0.5, 1.0) drawn from (seed, index, failure), so that tasks which fail
    together do not return together. A lost run does not back off: the provider's fault must not
    cost the user time. An attempt that hardly began before its sandbox was too old does: without a
    brake, such attempts follow one another for ever. So does the one after ROLL_OVERS_IDLE_MAX in a
    row without progress.

    failures: application failures so far; for attempts that grew too old, the number in a row.
    """
    ended_at_s = run.ended_at_s if run.ended_at_s is not None else run.created_at_s
    if failures == 0 or not (run.state is RunState.FAILED or rolls_over(run)):
        return ended_at_s
    delay_s = limits.backoff_initial_s * limits.backoff_factor ** min(failures - 1, 64)
    jitter = 0.5 + 0.5 * Random(f"{limits.seed}/{run.index}/{failures}").random()  # noqa: S311
    return ended_at_s + min(delay_s, limits.backoff_max_s) * jitter


class BackoffQueue:
    """Units with their due times, the longest due first. All but `due` costs O(log waiting)."""

    __slots__ = ("_units",)

    def __init__(self) -> None:
        self._units: list[tuple[float, int]] = []  # (due_at_s, index), sorted

    def add(self, index: int, due_at_s: float) -> None:
        insort(self._units, (due_at_s, index))

    def discard(self, index: int, due_at_s: float) -> None:
        at = bisect_left(self._units, (due_at_s, index))
        if at < len(self._units) and self._units[at] == (due_at_s, index):
            del self._units[at]

    def due(self, now_s: float) -> Iterator[int]:
        """Units whose next attempt may start now, the longest due first."""
        for due_s, index in self._units:
            if due_s > now_s:
                return
            yield index

    def next_due_at_s(self, now_s: float) -> float | None:
        """Returns when the next unit comes due after now_s; None when no unit waits."""
        at = bisect_left(self._units, (now_s, _AFTER_ALL_INDEXES))
        if at < len(self._units):
            return self._units[at][0]
        return None

    def backing_off(self, now_s: float) -> tuple[tuple[float, int], ...]:
        """Returns the first few units that wait for their next attempt, as (due_at_s, index)."""
        at = bisect_left(self._units, (now_s, _AFTER_ALL_INDEXES))
        return tuple(self._units[at : at + SHOWN_MAX])

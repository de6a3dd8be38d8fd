"""Decides if one more run of an object may start by its queue: every quota has capacity, and no
earlier object could use that capacity. Called by a pass for each run; the pass adds usage as it
decides. Pure except for that usage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fleetctl.controllers.queues.queue_state import (
    USD_PER_HOUR,
    QueueAsk,
    QueuedObject,
    QueueState,
    QueueStates,
    Quota,
    Vector,
    WaitingGroup,
    find_most,
)

FULL = "QueueFull"
TURN = "QueueTurn"
MISSING = "QueueMissing"
TOO_SMALL = "QueueTooSmall"
SUSPENDED = "QueueSuspended"
UNPRICED = "PriceUnknown"
UNKNOWN = "FunctionMissing"
LOWER_OR_RAISE = "raise its quota in the Queue, ask for less, or name another queue"
# Reasons for which an object waits in line; the others are those of a queue that does not serve.
IN_LINE = frozenset({FULL, TURN})


@dataclass(frozen=True, slots=True)
class QueueRefusal:
    """A reason why the queue admits no more runs of the object now."""

    reason: str
    message: str
    hint: str = ""


class QueueAdmission:
    """The admission of an object's runs in a pass. me: the object as a waiter; its asks are not
    read here.
    """

    __slots__ = ("_lines", "_now_s", "me")

    def __init__(
        self,
        lines: QueueStates,
        me: QueuedObject,
        now_s: float,
    ) -> None:
        self._lines = lines
        self.me = me
        self._now_s = now_s

    def refusal(self, ask: QueueAsk) -> QueueRefusal | None:
        """Returns why one more run may not start on that provider now; None when it may. Changes no
        usage.
        """
        line = self._lines.lines.get(self.me.queue)
        if line is None:
            hint = f"apply a `kind: Queue` with the name `{self.me.queue}`"
            text = f"there is no queue/{self.me.queue}, which it waits in"
            return QueueRefusal(MISSING, text, hint)
        name = f"queue/{line.rules.name}"
        if line.rules.suspend:
            hint = f"fleetctl set {name} suspend=false"
            return QueueRefusal(SUSPENDED, f"{name} is suspended", hint)
        if ask.takes is None:
            return QueueRefusal(
                UNKNOWN, "it is not known what one run takes: its Function is not there"
            )
        vector = line.vector(ask)
        if vector is None:
            text = f"{name} limits {USD_PER_HOUR}, and no price of it on `{ask.provider}` is known"
            hint = "give the provider a price, or ask for resources that have one"
            return QueueRefusal(UNPRICED, text, hint)
        never = self._lines.never(line, vector)
        if never is not None:
            return QueueRefusal(TOO_SMALL, _describe_shortage(line, never, vector), LOWER_OR_RAISE)
        lacking = self._lines.lacks(line, vector)
        if lacking is not None:
            return QueueRefusal(FULL, _explain_full(line, lacking, vector))
        first = self._find_waiter_before(line, vector)
        if first is None:
            return None
        return QueueRefusal(TURN, f"{name}: {_describe_waiter(first, self.me)} comes first")

    def take(self, ask: QueueAsk) -> None:
        """Adds the usage of a run that starts if the pass is written; the next count corrects
        it.
        """
        self._lines.taken.add(self.me.queue)
        self._lines.use(self.me.queue, self.me.namespace, ask)
        self._lines.lines[self.me.queue].served[self.me.namespace] = self._now_s

    def gives_way(self, held: QueueAsk) -> bool:
        """Returns true if a sandbox with this usage should end instead of taking another task: an
        object ahead could use what it holds.
        """
        line = self._lines.lines.get(self.me.queue)
        vector = line.vector(held) if line is not None else None
        if line is None or vector is None:
            return False
        if line.rules.suspend:
            return True
        with exclude_usage(line, self.me.namespace, vector):
            return self._find_waiter_before(line, vector) is not None

    def _find_waiter_before(self, line: QueueState, vector: Vector) -> QueuedObject | None:
        """Returns the waiter that would have to start first, or None."""
        mine = rank_in_queue(line, self.me)
        borrows = self._lines.borrows(line, vector)
        for other in self._lines.cohort(line):
            # Another queue's own quota does not concern this queue; lent quota does.
            if other.rules.suspend or (other is not line and not borrows):
                continue
            for group, waiter in self._lines.heads(other):
                first = waiter if waiter.uid != self.me.uid else _find_second(self._lines, group)
                if first is None or not blocks_others(
                    self._lines,
                    other,
                    group,
                    first,
                    self._now_s,
                ):
                    continue
                if other is line:
                    before = rank_in_queue(line, first) < mine
                else:
                    owns = not self._lines.borrows(other, group.vectors[0])
                    before = owns or first.rank < self.me.rank
                if before:
                    return first
        return None


Place = tuple[float, float, tuple[int, float, str]]


def rank_in_queue(line: QueueState, waiter: QueuedObject) -> Place:
    """Returns a sort key within one queue; lower starts first. Where namespaces take turns: by
    share, and among equal shares the longest without a turn first, or a priority would win each
    time. Then by priority, then by arrival.
    """
    if line.rules.weights is None:
        return 0.0, 0.0, waiter.rank
    served_s = line.served.get(waiter.namespace, float("-inf"))
    return line.share(waiter.namespace), served_s, waiter.rank


def blocks_others(
    lines: QueueStates,
    line: QueueState,
    group: WaitingGroup,
    waiter: QueuedObject,
    now_s: float,
) -> bool:
    """Returns true if objects behind this waiter may not start: it could start itself, now or once
    the runs being stopped are gone; or its queue allows no overtaking, or not for this long.
    """
    if line.rules.strict or now_s >= waiter.stands_since_s + line.rules.overtake_s:
        return True
    return any(lines.lacks(line, it, soon=True) is None for it in group.vectors)


@contextmanager
def exclude_usage(
    line: QueueState,
    namespace: str,
    vector: Vector,
) -> Iterator[None]:
    """Subtracts that usage from the queue while the context is open."""
    _change_usage(line, namespace, vector, -1)
    try:
        yield
    finally:
        _change_usage(line, namespace, vector, 1)


@contextmanager
def preserve_usage(lines: Sequence[QueueState]) -> Iterator[None]:
    """Allows changes of usage while the context is open, and restores it then."""
    kept = [
        (it, list(it.used), list(it.leaving), {k: list(v) for k, v in it.by_namespace.items()})
        for it in lines
    ]
    try:
        yield
    finally:
        for line, used, leaving, by_namespace in kept:
            line.used = used
            line.leaving = leaving
            line.by_namespace = by_namespace


def add_usage(
    line: QueueState,
    namespace: str,
    vector: Vector,
) -> None:
    """Adds one more run's usage, as a trial."""
    _change_usage(line, namespace, vector, 1)


def _change_usage(
    line: QueueState,
    namespace: str,
    vector: Vector,
    sign: int,
) -> None:
    own = line.by_namespace.setdefault(namespace, [0.0] * len(line.used))
    for at, amount in enumerate(vector):
        line.used[at] += sign * amount
        own[at] += sign * amount


def _find_second(lines: QueueStates, group: WaitingGroup) -> QueuedObject | None:
    if len(group.ranks) > 1:
        return lines.waiters[group.ranks[1][2]]
    return None


# -- sentences -----------------------------------------------------------------------------------


def _explain_full(
    line: QueueState,
    quota: Quota,
    vector: Vector,
) -> str:
    at = line.rules.quotas.index(quota)
    used = line.used[at]
    most = quota.nominal
    name = f"queue/{line.rules.name}"
    wants = f"the next run takes {format_amount(vector[at])}"
    if used + vector[at] <= most and line.rules.cohort:
        lent = f"others of cohort {line.rules.cohort} use what it lends"
        return (
            f"{name}: {format_amount(used)} of {format_amount(most)} {quota.name} are in "
            f"use, {wants}, and {lent}"
        )
    return (
        f"{name}: {format_amount(used)} of {format_amount(most)} {quota.name} are in use, "
        f"and {wants}"
    )


def _describe_shortage(
    line: QueueState,
    quota: Quota,
    vector: Vector,
) -> str:
    at = line.rules.quotas.index(quota)
    name = f"queue/{line.rules.name}"
    most = find_most(quota, line.rules.cohort)
    has = f"has {format_amount(quota.nominal)}"
    has += " and cannot borrow so much" if most > quota.nominal else ""
    return f"one run takes {format_amount(vector[at])} {quota.name}, and {name} {has}"


def _describe_waiter(waiter: QueuedObject, me: QueuedObject) -> str:
    rank = f" with priority {waiter.priority}" if waiter.priority != me.priority else ""
    return f"{waiter.key}{rank}"


def format_amount(amount: float) -> str:
    """Formats an amount: `8`, `2.5`."""
    return f"{round(amount, 4):g}"

"""Whether one more run of an object may start by its queue: there is room in every quota, and
nobody who comes before it could use that room. Asked by a pass for each run, and taken from as it
decides. Pure but for that taking.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fleetctl.controllers.queues.lines import Ask, Group, Line, Lines, Vector, Waiter, most_of
from fleetctl.controllers.queues.takes import USD_PER_HOUR, Quota
from fleetctl.specs.values.hints import with_hint

FULL, TURN, MISSING, TOO_SMALL = "QueueFull", "QueueTurn", "QueueMissing", "QueueTooSmall"
SUSPENDED, UNPRICED, UNKNOWN = "QueueSuspended", "PriceUnknown", "FunctionMissing"
# Reasons for which an object stands in line; the others are those of a queue that does not serve.
IN_LINE = frozenset({FULL, TURN})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the queue lets no more of it start now."""

    reason: str
    message: str


class Turn:
    """Of one object in one pass. me: the object as it would wait; its asks say nothing here."""

    __slots__ = ("_lines", "_now_s", "me")

    def __init__(self, lines: Lines, me: Waiter, now_s: float) -> None:
        self._lines, self.me, self._now_s = lines, me, now_s

    def refusal(self, ask: Ask) -> Refusal | None:
        """Why one more run may not start there now; None when it may. Nothing is taken."""
        line = self._lines.lines.get(self.me.queue)
        if line is None:
            hint = f"apply a `kind: Queue` with the name `{self.me.queue}`"
            text = with_hint(f"there is no queue/{self.me.queue}, which it waits in", hint)
            return Refusal(MISSING, text)
        name = f"queue/{line.rules.name}"
        if line.rules.suspend:
            hint = f"fleetctl set {name} suspend=false"
            return Refusal(SUSPENDED, with_hint(f"{name} is suspended", hint))
        if ask.takes is None:
            return Refusal(UNKNOWN, "what one run takes is not known: its Function is not there")
        vector = line.vector(ask)
        if vector is None:
            text = f"{name} limits {USD_PER_HOUR}, and no price of it on `{ask.provider}` is known"
            hint = "give the provider a price, or ask for resources that have one"
            return Refusal(UNPRICED, with_hint(text, hint))
        never = self._lines.never(line, vector)
        if never is not None:
            return Refusal(TOO_SMALL, _too_small(line, never, vector))
        lacking = self._lines.lacks(line, vector)
        if lacking is not None:
            return Refusal(FULL, _full(line, lacking, vector))
        first = self._before(line, vector)
        if first is None:
            return None
        return Refusal(TURN, f"{name}: {_called(first, self.me)} comes first")

    def take(self, ask: Ask) -> None:
        """It starts there, if the pass is written; the next count tells."""
        self._lines.taken.add(self.me.queue)
        self._lines.use(self.me.queue, self.me.namespace, ask)
        self._lines.lines[self.me.queue].served[self.me.namespace] = self._now_s

    def gives_way(self, held: Ask) -> bool:
        """Whether a sandbox that holds this is to go rather than take another task: somebody who
        comes first could use what it holds.
        """
        line = self._lines.lines.get(self.me.queue)
        vector = line.vector(held) if line is not None else None
        if line is None or vector is None:
            return False
        if line.rules.suspend:
            return True
        with without(line, self.me.namespace, vector):
            return self._before(line, vector) is not None

    def _before(self, line: Line, vector: Vector) -> Waiter | None:
        """Who would have to start before it."""
        mine = place_in(line, self.me)
        borrows = self._lines.borrows(line, vector)
        for other in self._lines.cohort(line):
            # What another queue has of its own is no matter of this one's; what is lent is.
            if other.rules.suspend or (other is not line and not borrows):
                continue
            for group, waiter in self._lines.heads(other):
                first = waiter if waiter.uid != self.me.uid else _second(self._lines, group)
                if first is None or not blocks(self._lines, other, group, first, self._now_s):
                    continue
                if other is line:
                    before = place_in(line, first) < mine
                else:
                    owns = not self._lines.borrows(other, group.vectors[0])
                    before = owns or first.rank < self.me.rank
                if before:
                    return first
        return None


Place = tuple[float, float, tuple[int, float, str]]


def place_in(line: Line, waiter: Waiter) -> Place:
    """Of two in one queue the lower goes first. Where namespaces take turns: by what each uses, and
    of equals whose last turn is longer ago, or a priority would win each time. Then the priority;
    then who came first.
    """
    if line.rules.weights is None:
        return 0.0, 0.0, waiter.rank
    served_s = line.served.get(waiter.namespace, float("-inf"))
    return line.share(waiter.namespace), served_s, waiter.rank


def blocks(lines: Lines, line: Line, group: Group, waiter: Waiter, now_s: float) -> bool:
    """Whether nobody behind it may start: it could start itself, now or once what is being stopped
    is gone; or its queue lets nobody overtake, or not for so long.
    """
    if line.rules.strict or now_s >= waiter.stands_since_s + line.rules.overtake_s:
        return True
    return any(lines.lacks(line, it, soon=True) is None for it in group.vectors)


@contextmanager
def without(line: Line, namespace: str, vector: Vector) -> Iterator[None]:
    """While this is open, the queue stands as if that were gone."""
    _add(line, namespace, vector, -1)
    try:
        yield
    finally:
        _add(line, namespace, vector, 1)


@contextmanager
def tried(lines: Sequence[Line]) -> Iterator[None]:
    """While this is open, what is used can be changed; it is as before then."""
    kept = [
        (it, list(it.used), list(it.leaving), {k: list(v) for k, v in it.by_namespace.items()})
        for it in lines
    ]
    try:
        yield
    finally:
        for line, used, leaving, by_namespace in kept:
            line.used, line.leaving, line.by_namespace = used, leaving, by_namespace


def add(line: Line, namespace: str, vector: Vector) -> None:
    """One more run, to try what would be then."""
    _add(line, namespace, vector, 1)


def _add(line: Line, namespace: str, vector: Vector, sign: int) -> None:
    own = line.by_namespace.setdefault(namespace, [0.0] * len(line.used))
    for at, amount in enumerate(vector):
        line.used[at] += sign * amount
        own[at] += sign * amount


def _second(lines: Lines, group: Group) -> Waiter | None:
    return lines.waiters[group.ranks[1][2]] if len(group.ranks) > 1 else None


# -- sentences -----------------------------------------------------------------------------------


def _full(line: Line, quota: Quota, vector: Vector) -> str:
    at = line.rules.quotas.index(quota)
    used, most = line.used[at], quota.nominal
    name = f"queue/{line.rules.name}"
    wants = f"the next run takes {figure(vector[at])}"
    if used + vector[at] <= most and line.rules.cohort:
        lent = f"others of cohort {line.rules.cohort} use what it lends"
        return (
            f"{name}: {figure(used)} of {figure(most)} {quota.name} are in use, {wants}, and {lent}"
        )
    return f"{name}: {figure(used)} of {figure(most)} {quota.name} are in use, and {wants}"


def _too_small(line: Line, quota: Quota, vector: Vector) -> str:
    at = line.rules.quotas.index(quota)
    name, most = f"queue/{line.rules.name}", most_of(quota, line.rules.cohort)
    has = f"has {figure(quota.nominal)}"
    has += " and cannot borrow so much" if most > quota.nominal else ""
    text = f"one run takes {figure(vector[at])} {quota.name}, and {name} {has}"
    return with_hint(text, "raise its quota in the Queue, ask for less, or name another queue")


def _called(waiter: Waiter, me: Waiter) -> str:
    rank = f" with priority {waiter.priority}" if waiter.priority != me.priority else ""
    return f"{waiter.key}{rank}"


def figure(amount: float) -> str:
    """`8`, `2.5`."""
    return f"{round(amount, 4):g}"

"""How every queue stands: its quotas, what of them is used, and who waits in which order. Kept as
objects come, start and end; a question costs as much as there are different asks, not objects.
Pure but for that keeping: holds no clock and does no I/O.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.controllers.queues.takes import Quota, Takes, takes_in

# Sums of many amounts are off by a few last digits.
SLACK = 1e-9

Vector = tuple[float, ...]  # one amount for each quota of a queue


@dataclass(frozen=True, slots=True)
class Rules:
    """A Queue's spec as plain data. weights: None = namespaces do not take turns. overtake_s: how
    long somebody who does not fit may be overtaken.
    """

    name: str
    quotas: tuple[Quota, ...]
    cohort: str = ""
    strict: bool = False
    overtake_s: float = 600.0
    within_queue: bool = False
    reclaim: str = "Never"  # Never | LowerPriority | Any
    weights: Mapping[str, float] | None = None
    suspend: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """What one more run would take at one place. takes: None = not known yet."""

    provider: str
    takes: Takes | None
    usd_per_s: float | None

    def told(self) -> dict[str, object]:
        """As a status has it."""
        takes = {} if self.takes is None else self.takes.told()
        return {"provider": self.provider, **takes, "usdPerSecond": self.usd_per_s}


def ask_in(fields: Mapping[str, Any]) -> Ask:
    """Of what `told` says."""
    takes = takes_in(fields) if "sandboxes" in fields else None
    return Ask(fields["provider"], takes, fields.get("usdPerSecond"))


Asks = tuple[Ask, ...]  # at each place where it may run, the best first


@dataclass(frozen=True, slots=True)
class Waiter:
    """An object that waits for its next run. key: for people. since_s: when it came to the queue;
    stands_since_s: since when nothing of it has started there.
    """

    uid: str
    key: str
    queue: str
    namespace: str
    priority: int
    since_s: float
    stands_since_s: float
    asks: Asks = ()

    @property
    def rank(self) -> tuple[int, float, str]:
        """The lower goes first, within one namespace or where they do not take turns."""
        return (-self.priority, self.since_s, self.uid)


@dataclass(slots=True)
class Group:
    """Those who ask for the same and are of one namespace: who is first stands for all."""

    queue: str
    namespace: str
    vectors: tuple[Vector, ...]  # one for each place where it could ever fit
    ranks: list[tuple[int, float, str]] = field(default_factory=list)  # sorted


@dataclass(slots=True)
class Line:
    """One queue. used, leaving: by quota; leaving is a part of used that is being stopped. served:
    when a namespace had its last start; a restart forgets that, and it decides between equals only.
    """

    rules: Rules
    used: list[float]
    leaving: list[float]
    by_namespace: dict[str, list[float]] = field(default_factory=dict)
    groups: dict[tuple[str, Asks], Group] = field(default_factory=dict)
    waiting: int = 0
    served: dict[str, float] = field(default_factory=dict)

    def vector(self, ask: Ask) -> Vector | None:
        """None: what it takes is unknown, or what it would cost where that is limited."""
        if ask.takes is None:
            return None
        amounts = [it.amount(ask.takes, ask.provider, ask.usd_per_s) for it in self.rules.quotas]
        known = [it for it in amounts if it is not None]
        return tuple(known) if len(known) == len(amounts) else None

    def share(self, namespace: str) -> float:
        """What it uses of the quota that it uses most of, by its weight; 0 where they take no
        turns.
        """
        if self.rules.weights is None:
            return 0.0
        used = self.by_namespace.get(namespace)
        if used is None:
            return 0.0
        quotas = self.rules.quotas
        shares = (it / max(quota.nominal, SLACK) for it, quota in zip(used, quotas, strict=True))
        return round(max(shares) / self.rules.weights.get(namespace, 1.0), 9)


class Lines:
    """All queues, by name."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.waiters: dict[str, Waiter] = {}  # by uid, also of queues that are not there
        self.taken: set[str] = set()  # of which a pass took something since they were counted
        self._cohorts: dict[str, list[Line]] = {}
        # Of each cohort and (resource, provider): the lines that lend and borrow it, and at which
        # place in their quotas.
        self._pools: dict[tuple[str, str, str], list[tuple[Line, int]]] = {}

    # -- what there is -------------------------------------------------------------------------

    def declare(self, rules: Iterable[Rules]) -> None:
        """These are the queues from now on; `use` says anew what is used."""
        before, self.lines = self.lines, {}
        for it in rules:
            zeros = [0.0] * len(it.quotas)
            self.lines[it.name] = line = Line(it, zeros, list(zeros))
            if it.name in before:
                line.served = before[it.name].served
        self._cohorts, self._pools = {}, {}
        for line in self.lines.values():
            cohort = line.rules.cohort
            self._cohorts.setdefault(_cohort_key(line.rules), []).append(line)
            for at, quota in enumerate(line.rules.quotas if cohort else ()):
                key = (cohort, quota.resource, quota.provider)
                self._pools.setdefault(key, []).append((line, at))
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters.values():
            self.put(waiter)

    def empty(self, name: str) -> None:
        """Nothing of this queue is used, until `use` says otherwise."""
        line = self.lines[name]
        line.used = [0.0] * len(line.used)
        line.leaving = list(line.used)
        line.by_namespace = {}

    def use(
        self, name: str, namespace: str, ask: Ask, *, count: int = 1, leaving: bool = False
    ) -> None:
        """So many runs, that are there. Of a run of unknown price, the price counts
        nothing.
        """
        line = self.lines.get(name)
        if line is None or ask.takes is None:
            return
        own = line.by_namespace.setdefault(namespace, [0.0] * len(line.used))
        for at, quota in enumerate(line.rules.quotas):
            amount = count * (quota.amount(ask.takes, ask.provider, ask.usd_per_s) or 0.0)
            line.used[at] += amount
            own[at] += amount
            if leaving:
                line.leaving[at] += amount

    def put(self, waiter: Waiter) -> None:
        """It waits, as it says now."""
        if self.waiters.get(waiter.uid) == waiter:
            return
        self.drop(waiter.uid)
        self.waiters[waiter.uid] = waiter
        line = self.lines.get(waiter.queue)
        if line is None:
            return
        line.waiting += 1
        key = (waiter.namespace, waiter.asks)
        group = line.groups.get(key)
        if group is None:
            vectors = [line.vector(ask) for ask in waiter.asks]
            fitting = tuple(it for it in vectors if it is not None and not self._never(line, it))
            group = Group(waiter.queue, waiter.namespace, fitting)
            line.groups[key] = group
        insort(group.ranks, waiter.rank)

    def drop(self, uid: str) -> None:
        """It waits no more. Idempotent."""
        waiter = self.waiters.pop(uid, None)
        line = self.lines.get(waiter.queue) if waiter is not None else None
        if waiter is None or line is None:
            return
        key = (waiter.namespace, waiter.asks)
        group = line.groups.get(key)
        if group is None:
            return
        line.waiting -= 1
        del group.ranks[bisect_left(group.ranks, waiter.rank)]
        if not group.ranks:
            del line.groups[key]

    def cohort(self, line: Line) -> list[Line]:
        """The queues that it shares something with, itself among them."""
        return self._cohorts[_cohort_key(line.rules)]

    def cohorts(self) -> Iterable[list[Line]]:
        return self._cohorts.values()

    # -- questions -----------------------------------------------------------------------------

    def lacks(self, line: Line, vector: Vector, *, soon: bool = False) -> Quota | None:
        """The first quota that has no room for this; None when it fits. soon: once what is being
        stopped is gone.
        """
        for at, (quota, amount) in enumerate(zip(line.rules.quotas, vector, strict=True)):
            if amount <= 0:
                continue
            used = line.used[at] - (line.leaving[at] if soon else 0.0) + amount
            if used > most_of(quota, line.rules.cohort) + SLACK:
                return quota
            if line.rules.cohort and self._pool_lacks(line, at, used, soon=soon):
                return quota
        return None

    def borrows(self, line: Line, vector: Vector) -> bool:
        """Whether one more such run would use what is another queue's own."""
        quotas = zip(line.rules.quotas, line.used, vector, strict=True)
        return any(
            amount > 0 and used + amount > quota.nominal + SLACK for quota, used, amount in quotas
        )

    def never(self, line: Line, vector: Vector) -> Quota | None:
        """The quota that could not hold this if nothing else ran; None: it has to wait alone."""
        return self._never(line, vector)

    def heads(self, line: Line) -> Iterator[tuple[Group, Waiter]]:
        """The first of each group of this queue that can ever fit, in no order."""
        for group in line.groups.values():
            if group.vectors:
                yield group, self.waiters[group.ranks[0][2]]

    # -- helpers -------------------------------------------------------------------------------

    def _pool_lacks(self, line: Line, at: int, used: float, *, soon: bool) -> bool:
        """Whether all queues of the cohort together would use more than they lend each other. What
        a queue does not lend is used by itself alone.
        """
        quota = line.rules.quotas[at]
        lent = taken = 0.0
        for other, there in self._pools[line.rules.cohort, quota.resource, quota.provider]:
            rule = other.rules.quotas[there]
            lends = rule.nominal if rule.lending is None else rule.lending
            leaving = other.leaving[there] if soon else 0.0
            now = used if other is line else other.used[there] - leaving
            lent += lends
            taken += max(0.0, now - (rule.nominal - lends))
        own = quota.nominal if quota.lending is None else quota.lending
        if used <= quota.nominal - own + SLACK:
            return False
        return taken > lent + SLACK

    def _never(self, line: Line, vector: Vector) -> Quota | None:
        for quota, amount in zip(line.rules.quotas, vector, strict=True):
            if amount <= 0:
                continue
            if amount > most_of(quota, line.rules.cohort) + SLACK:
                return quota
            if not line.rules.cohort:
                continue
            key = (line.rules.cohort, quota.resource, quota.provider)
            others = [it.rules.quotas[there] for it, there in self._pools[key] if it is not line]
            lent = sum(it.nominal if it.lending is None else it.lending for it in others)
            if amount > quota.nominal + lent + SLACK:
                return quota
        return None


def most_of(quota: Quota, cohort: str) -> float:
    """What a queue may use of it at most, whatever others leave."""
    if not cohort:
        return quota.nominal
    return float("inf") if quota.borrowing is None else quota.nominal + quota.borrowing


def _cohort_key(rules: Rules) -> str:
    # A queue of its own shares nothing; a cohort may be called like a queue.
    return f"cohort {rules.cohort}" if rules.cohort else f"queue {rules.name}"

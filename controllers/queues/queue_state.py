"""Keeps the state of every queue: its quotas, how much of them each run uses with all its nodes,
and the waiting objects in order.

The state is updated as objects come, start and end; a query costs as much as there are different
requests, not objects. The usage of a run is stored beside it before it starts, so that it stays
the same when the object's spec changes.
"""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

HOUR_S = 3600
SANDBOXES = "sandboxes"
CPUS = "cpus"
GPUS = "gpus"
USD_PER_HOUR = "usdPerHour"
ANY_SORT = "any"
# For a run that requests no number of cores: it has at least one.
CPUS_UNASKED = 1.0

# Sums of many amounts are off by a few last digits.
SLACK = 1e-9

Vector = tuple[float, ...]  # one amount for each quota of a queue


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """gpus: (sort, how many) of each sort that it may get, of which it gets one. parts: of runs
    that start together, whose GPUs are then counted in place of `gpus`.
    """

    sandboxes: int = 1
    cpus: float = CPUS_UNASKED
    gpus: tuple[tuple[str, int], ...] = ()
    parts: tuple[QueueUsage, ...] = ()

    def to_fields(self) -> dict[str, object]:
        """Returns the fields for JSON."""
        gpus = {"gpus": [list(it) for it in self.gpus]} if self.gpus else {}
        parts = {"parts": [it.to_fields() for it in self.parts]} if self.parts else {}
        return {"sandboxes": self.sandboxes, "cpus": self.cpus, **gpus, **parts}


def sum_usages(usages: Sequence[QueueUsage]) -> QueueUsage:
    """Returns the usage of runs that start together."""
    return QueueUsage(
        sum(it.sandboxes for it in usages),
        sum(it.cpus for it in usages),
        parts=tuple(usages),
    )


def takes_in(fields: Mapping[str, Any]) -> QueueUsage:
    """Reads a QueueUsage back from the fields that `to_fields` wrote."""
    gpus = tuple((str(sort), int(count)) for sort, count in fields.get("gpus", ()))
    parts = tuple(takes_in(it) for it in fields.get("parts", ()))
    return QueueUsage(fields["sandboxes"], fields["cpus"], gpus, parts)


@dataclass(frozen=True, slots=True)
class Quota:
    """One rule of a queue. provider: "" = any. borrowing, lending: unset = no limit of its own."""

    resource: str
    nominal: float
    provider: str = ""
    borrowing: float | None = None
    lending: float | None = None

    @property
    def name(self) -> str:
        """Returns the name for users: `gpu/A100`, `sandboxes on modal`."""
        if self.provider:
            return f"{self.resource} on {self.provider}"
        return self.resource

    def amount(
        self,
        takes: QueueUsage,
        provider: str,
        usd_per_s: float | None,
    ) -> float | None:
        """Returns the usage of a run with these takes on that provider; None: its price is
        unknown.
        """
        if self.provider not in ("", provider):
            return 0.0
        match self.resource:
            case "sandboxes":
                return takes.sandboxes
            case "cpus":
                return takes.cpus
            case "usdPerHour":
                return None if usd_per_s is None else usd_per_s * HOUR_S
        return sum(self._count_gpus(it) for it in takes.parts or (takes,))

    def _count_gpus(self, takes: QueueUsage) -> int:
        """Returns the GPUs of a run that this quota limits."""
        if self.resource == "gpus":
            return max((count for _, count in takes.gpus), default=0)
        # Until it runs it may get any of several sorts, so it counts for each.
        wanted = sort_of(self.resource.partition("/")[2])
        found = [count for sort, count in takes.gpus if sort_of(sort) in (wanted, sort_of("any"))]
        return max(found, default=0)


def sort_of(name: str) -> str:
    """Returns the sort of a GPU: `H100!` and `h100` are one sort; `A100` and `A100-80GB` are
    two.
    """
    return name.rstrip("!+").upper()


def text_of(queue: str, takes: QueueUsage) -> str:
    """Returns the text stored beside a run; few different ones, so that the store keeps each
    once.
    """
    return json.dumps({"queue": queue, **takes.to_fields()}, separators=(",", ":"))


@lru_cache(maxsize=4096)
def parse_usage(text: str) -> tuple[str, QueueUsage]:
    """Parses (queue, usage of the run) from the text that `text_of` wrote."""
    fields = json.loads(text)
    return fields["queue"], takes_in(fields)


@dataclass(frozen=True, slots=True)
class QueueRules:
    """A Queue's spec as plain data. weights: unset = namespaces do not take turns. overtake_s: how
    long an object that does not fit may be overtaken, in seconds.
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
class QueueAsk:
    """The usage of another run on a provider. takes: None = not known yet."""

    provider: str
    takes: QueueUsage | None
    usd_per_s: float | None

    def to_fields(self) -> dict[str, object]:
        """Returns the fields for a status."""
        takes = {} if self.takes is None else self.takes.to_fields()
        return {"provider": self.provider, **takes, "usdPerSecond": self.usd_per_s}


def parse_ask(fields: Mapping[str, Any]) -> QueueAsk:
    """Reads a QueueAsk back from the fields that `to_fields` wrote."""
    takes = takes_in(fields) if "sandboxes" in fields else None
    return QueueAsk(fields["provider"], takes, fields.get("usdPerSecond"))


Asks = tuple[QueueAsk, ...]  # one for each provider where it may run, the best first


@dataclass(frozen=True, slots=True)
class QueuedObject:
    """An object that waits for its next run. key: shown to users. since_s: when it came to the
    queue; stands_since_s: since when none of its runs has started there.
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
        """Returns a sort key; lower goes first, within one namespace or where namespaces do not
        take turns.
        """
        return (-self.priority, self.since_s, self.uid)


@dataclass(slots=True)
class WaitingGroup:
    """Waiters in a namespace with equal requests: the first represents all."""

    queue: str
    namespace: str
    vectors: tuple[Vector, ...]  # one for each provider where it could ever fit
    ranks: list[tuple[int, float, str]] = field(default_factory=list)  # sorted


@dataclass(slots=True)
class QueueState:
    """One queue. used, leaving: by quota; leaving is a part of used that is being stopped. served:
    when a namespace had its last start; a restart forgets that, and it decides between equals only.
    """

    rules: QueueRules
    used: list[float]
    leaving: list[float]
    by_namespace: dict[str, list[float]] = field(default_factory=dict)
    groups: dict[tuple[str, Asks], WaitingGroup] = field(default_factory=dict)
    waiting: int = 0
    served: dict[str, float] = field(default_factory=dict)

    def vector(self, ask: QueueAsk) -> Vector | None:
        """Returns the usage by quota; None while the usage is unknown, or the price where cost is
        limited.
        """
        if ask.takes is None:
            return None
        amounts = [it.amount(ask.takes, ask.provider, ask.usd_per_s) for it in self.rules.quotas]
        known = [it for it in amounts if it is not None]
        if len(known) == len(amounts):
            return tuple(known)
        return None

    def share(self, namespace: str) -> float:
        """Returns the namespace's share of its most used quota, divided by its weight; 0 where
        namespaces do not take turns.
        """
        if self.rules.weights is None:
            return 0.0
        used = self.by_namespace.get(namespace)
        if used is None:
            return 0.0
        quotas = self.rules.quotas
        shares = (it / max(quota.nominal, SLACK) for it, quota in zip(used, quotas, strict=True))
        return round(max(shares) / self.rules.weights.get(namespace, 1.0), 9)


class QueueStates:
    """All queues, by name."""

    def __init__(self) -> None:
        self.lines: dict[str, QueueState] = {}
        self.waiters: dict[str, QueuedObject] = {}  # by uid, also of queues that are not there
        self.taken: set[str] = set()  # of which a pass took something since they were counted
        self._cohorts: dict[str, list[QueueState]] = {}
        # For each cohort and (resource, provider): the lines that lend and borrow it, and its index
        # in their quotas.
        self._pools: dict[tuple[str, str, str], list[tuple[QueueState, int]]] = {}

    # -- what there is -------------------------------------------------------------------------

    def declare(self, rules: Iterable[QueueRules]) -> None:
        """Replaces the queues; the caller then reports all usage again with `use`."""
        before = self.lines
        self.lines = {}
        for it in rules:
            zeros = [0.0] * len(it.quotas)
            self.lines[it.name] = line = QueueState(it, zeros, list(zeros))
            if it.name in before:
                line.served = before[it.name].served
        self._cohorts = {}
        self._pools = {}
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
        """Sets the usage of this queue to zero, until `use` adds to it."""
        line = self.lines[name]
        line.used = [0.0] * len(line.used)
        line.leaving = list(line.used)
        line.by_namespace = {}

    def use(
        self,
        name: str,
        namespace: str,
        ask: QueueAsk,
        *,
        count: int = 1,
        leaving: bool = False,
    ) -> None:
        """Adds `count` existing runs to the usage. A run of unknown price adds zero to a price
        quota.
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

    def put(self, waiter: QueuedObject) -> None:
        """Adds or replaces a waiting object."""
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
            fitting = tuple(
                it for it in vectors if it is not None and not self._find_exceeded_quota(line, it)
            )
            group = WaitingGroup(waiter.queue, waiter.namespace, fitting)
            line.groups[key] = group
        insort(group.ranks, waiter.rank)

    def drop(self, uid: str) -> None:
        """Removes a waiting object. Idempotent."""
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

    def cohort(self, line: QueueState) -> list[QueueState]:
        """Returns the queues that it shares quota with, itself among them."""
        return self._cohorts[_cohort_key(line.rules)]

    def cohorts(self) -> Iterable[list[QueueState]]:
        return self._cohorts.values()

    # -- questions -----------------------------------------------------------------------------

    def lacks(
        self,
        line: QueueState,
        vector: Vector,
        *,
        soon: bool = False,
    ) -> Quota | None:
        """Returns the first quota without capacity for this; None when it fits. soon: counts the
        runs that are being stopped as gone.
        """
        for at, (quota, amount) in enumerate(zip(line.rules.quotas, vector, strict=True)):
            if amount <= 0:
                continue
            used = line.used[at] - (line.leaving[at] if soon else 0.0) + amount
            if used > find_most(quota, line.rules.cohort) + SLACK:
                return quota
            if line.rules.cohort and self._pool_lacks(line, at, used, soon=soon):
                return quota
        return None

    def borrows(self, line: QueueState, vector: Vector) -> bool:
        """Returns true if one more such run would use quota that another queue owns."""
        quotas = zip(line.rules.quotas, line.used, vector, strict=True)
        return any(
            amount > 0 and used + amount > quota.nominal + SLACK for quota, used, amount in quotas
        )

    def never(self, line: QueueState, vector: Vector) -> Quota | None:
        """Returns the quota that could not hold this even if no other run existed; None: it only
        has to wait.
        """
        return self._find_exceeded_quota(line, vector)

    def heads(self, line: QueueState) -> Iterator[tuple[WaitingGroup, QueuedObject]]:
        """Yields the first waiter of each group of this queue that can ever fit, in no order."""
        for group in line.groups.values():
            if group.vectors:
                yield group, self.waiters[group.ranks[0][2]]

    # -- helpers -------------------------------------------------------------------------------

    def _pool_lacks(
        self,
        line: QueueState,
        at: int,
        used: float,
        *,
        soon: bool,
    ) -> bool:
        """Returns true if all queues of the cohort together would use more than they lend each
        other. Quota that a queue does not lend is available to that queue alone.
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

    def _find_exceeded_quota(self, line: QueueState, vector: Vector) -> Quota | None:
        for quota, amount in zip(line.rules.quotas, vector, strict=True):
            if amount <= 0:
                continue
            if amount > find_most(quota, line.rules.cohort) + SLACK:
                return quota
            if not line.rules.cohort:
                continue
            key = (line.rules.cohort, quota.resource, quota.provider)
            others = [it.rules.quotas[there] for it, there in self._pools[key] if it is not line]
            lent = sum(it.nominal if it.lending is None else it.lending for it in others)
            if amount > quota.nominal + lent + SLACK:
                return quota
        return None


def find_most(quota: Quota, cohort: str) -> float:
    """Returns the most of a quota that a queue may use, however idle the other queues are."""
    if not cohort:
        return quota.nominal
    if quota.borrowing is None:
        return float("inf")
    return quota.nominal + quota.borrowing


def _cohort_key(rules: QueueRules) -> str:
    # A queue without a cohort shares no quota; a cohort may have the name of a queue.
    if rules.cohort:
        return f"cohort {rules.cohort}"
    return f"queue {rules.name}"

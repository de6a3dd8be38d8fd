"""Picks the next workloads of a cohort to admit and the runs to preempt for them. Pure; called by
the engine in a tick in which something about the cohort changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleetctl.controllers.queues.queue_admission import add_usage, preserve_usage, rank_in_queue
from fleetctl.controllers.queues.queue_state import (
    QueueAsk,
    QueuedObject,
    QueueState,
    QueueStates,
    Vector,
    WaitingGroup,
)


@dataclass(frozen=True, slots=True)
class PreemptableRun:
    """A run that could be preempted."""

    run: str
    uid: str
    queue: str
    namespace: str
    priority: int
    began_s: float
    ask: QueueAsk


@dataclass(frozen=True, slots=True)
class Eviction:
    run: str
    uid: str
    message: str


def next_up(
    lines: QueueStates,
    cohort: Sequence[QueueState],
    now_s: float,
    *,
    most: int,
) -> list[str]:
    """Returns the uids of the objects that could start a run now, first to start first. Each object
    decides for itself when its pass runs, so only the first uid has to be right.
    """
    woken: list[str] = []
    with preserve_usage(cohort):
        closed: set[str] = set()  # queues in which objects further behind may not start
        for line, group, _ in _list_in_order(lines, cohort):
            if line.rules.name in closed:
                continue
            for rank in group.ranks:
                if len(woken) >= most:
                    return woken
                vector = _find_fitting(lines, line, group)
                if vector is None:
                    waiter = lines.waiters[rank[2]]
                    late = now_s >= waiter.stands_since_s + line.rules.overtake_s
                    if line.rules.strict or late:
                        closed.add(line.rules.name)
                    break
                woken.append(rank[2])
                add_usage(line, group.namespace, vector)
    return woken


def choose_evictions(
    lines: QueueStates,
    cohort: Sequence[QueueState],
    running: Callable[[], Iterable[PreemptableRun]],
) -> list[Eviction]:
    """Picks runs to stop so that a waiting object can start: for the first object that may preempt
    and for which stopping runs frees enough. At most one object of a cohort at once: the freed
    quota is seen before the next.

    running: runs of the queues of this cohort, without those already being stopped.
    """
    if not any(it.rules.within_queue or it.rules.reclaim != "Never" for it in cohort):
        return []
    with preserve_usage(cohort):
        known: list[PreemptableRun] | None = None
        lowest: dict[str, int] = {}  # by queue, the priority of what runs there
        for line, group, waiter in _list_in_order(lines, cohort):
            soon = (it for it in group.vectors if lines.lacks(line, it, soon=True) is None)
            if (vector := next(soon, None)) is not None:
                # It starts once what is being stopped is gone, and that is spoken for.
                add_usage(line, group.namespace, vector)
                continue
            if not (line.rules.within_queue or line.rules.reclaim != "Never"):
                continue
            if known is None:
                known = sorted(running(), key=lambda it: (it.priority, -it.began_s, it.run))
                lowest = {it.queue: it.priority for it in reversed(known)}
            if not _may_ask(line, waiter, lowest):
                continue  # most waiters, possibly thousands, request other resources
            found = _making_room(
                lines, cohort, _AdmissionCase(line, waiter, group.vectors[0]), known
            )
            if found:
                return [Eviction(it.run, it.uid, _explain_eviction(it, waiter)) for it in found]
    return []


def _may_ask(
    line: QueueState,
    waiter: QueuedObject,
    lowest: Mapping[str, int],
) -> bool:
    """Returns true if any run ranks behind the waiter; `_may_stop` checks each run."""
    rules = line.rules
    first = waiter.priority
    if rules.within_queue and lowest.get(rules.name, first) < first:
        return True
    others = [it for name, it in lowest.items() if name != rules.name]
    match rules.reclaim:
        case "Any":
            return bool(others)
        case "LowerPriority":
            return min(others, default=first) < first
    return False


@dataclass(frozen=True, slots=True)
class _AdmissionCase:
    """A waiting object, its queue and the quota that it requests."""

    line: QueueState
    waiter: QueuedObject
    vector: Vector


def _making_room(
    lines: QueueStates,
    cohort: Sequence[QueueState],
    case: _AdmissionCase,
    known: Sequence[PreemptableRun],
) -> list[PreemptableRun]:
    """Chooses as few runs as needed, of other queues first, then the lowest priority, the youngest
    first; all the needed ones or an empty list.
    """
    line = case.line
    vector = case.vector
    by_name = {it.rules.name: it for it in cohort}
    others = [it for it in known if it.queue != line.rules.name]
    own = [it for it in known if it.queue == line.rules.name]
    chosen: list[PreemptableRun] = []
    with preserve_usage(cohort):
        for one in (*others, *own):
            there = by_name[one.queue]
            gives = there.vector(one.ask) or _count_unpriced(there, one.ask)
            if not _may_stop(lines, there, one, case) or not _frees_needed(
                line, there, vector, gives
            ):
                continue
            add_usage(there, one.namespace, tuple(-it for it in gives))
            chosen.append(one)
            if lines.lacks(line, vector, soon=True) is None:
                break
        else:
            return []
        return _without_needless(lines, by_name, case, chosen)


def _without_needless(
    lines: QueueStates,
    by_name: dict[str, QueueState],
    case: _AdmissionCase,
    chosen: list[PreemptableRun],
) -> list[PreemptableRun]:
    """Drops early choices that later ones made unnecessary: a run that still fits goes on."""
    needed = list(chosen)
    for one in chosen[:-1]:
        there = by_name[one.queue]
        gives = there.vector(one.ask) or _count_unpriced(there, one.ask)
        add_usage(there, one.namespace, gives)
        if lines.lacks(case.line, case.vector, soon=True) is None:
            needed.remove(one)
        else:
            add_usage(there, one.namespace, tuple(-it for it in gives))
    return needed


def _may_stop(
    lines: QueueStates,
    there: QueueState,
    one: PreemptableRun,
    case: _AdmissionCase,
) -> bool:
    """Returns true if this run may be stopped for that waiter, given that the runs chosen so far
    are gone. A stopped run must rank behind the admitted one afterwards as well, or the two would
    take turns stopping each other.
    """
    rules = case.line.rules
    waiter = case.waiter
    if there is case.line:
        if not rules.within_queue or one.priority >= waiter.priority:
            return False
        if rules.weights is None or one.namespace == waiter.namespace:
            return True
        return there.share(one.namespace) > there.share(waiter.namespace)
    if rules.reclaim == "Never" or lines.borrows(case.line, case.vector):
        return False
    if rules.reclaim == "LowerPriority" and one.priority >= waiter.priority:
        return False
    quotas = zip(there.rules.quotas, there.used, there.leaving, strict=True)
    return any(used - leaving > quota.nominal for quota, used, leaving in quotas)


def _frees_needed(
    line: QueueState,
    there: QueueState,
    vector: Vector,
    gives: Vector,
) -> bool:
    """Returns true if the run frees a resource that the waiter requests."""
    wanted = {
        (quota.resource, quota.provider)
        for quota, amount in zip(line.rules.quotas, vector, strict=True)
        if amount > 0
    }
    return any(
        amount > 0 and (quota.resource, quota.provider) in wanted
        for quota, amount in zip(there.rules.quotas, gives, strict=True)
    )


def _count_unpriced(line: QueueState, ask: QueueAsk) -> Vector:
    """Returns the quota usage of a run whose price is unknown."""
    assert ask.takes is not None, "what runs took something"
    return tuple(
        it.amount(ask.takes, ask.provider, ask.usd_per_s) or 0.0 for it in line.rules.quotas
    )


def _list_in_order(
    lines: QueueStates, cohort: Sequence[QueueState]
) -> Iterator[tuple[QueueState, WaitingGroup, QueuedObject]]:
    """Yields the first waiter of each group, of each queue in its order; among several queues, a
    queue within its own quota comes before one that borrows. Usage added by the caller meanwhile
    counts.
    """
    left = {}
    for line in cohort:
        heads = [] if line.rules.suspend else list(lines.heads(line))
        heads.sort(key=lambda it: rank_in_queue(line, it[1]), reverse=True)
        if heads:
            left[line.rules.name] = line, heads
    while left:
        line, heads = min(
            left.values(),
            key=lambda it: (lines.borrows(it[0], it[1][-1][0].vectors[0]), it[1][-1][1].rank),
        )
        group, waiter = heads.pop()
        if not heads:
            del left[line.rules.name]
        yield line, group, waiter


def _find_fitting(
    lines: QueueStates,
    line: QueueState,
    group: WaitingGroup,
) -> Vector | None:
    return next((it for it in group.vectors if lines.lacks(line, it) is None), None)


def _explain_eviction(one: PreemptableRun, waiter: QueuedObject) -> str:
    whose = f"queue/{waiter.queue}"
    if one.queue != waiter.queue:
        return f"{whose} takes back what is its own, for {waiter.key}"
    return f"{waiter.key} with priority {waiter.priority} comes first in {whose}"

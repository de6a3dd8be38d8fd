"""Who of a cohort is looked at next, and whose runs make room for whom. Pure; asked by the engine
in a tick in which something about the cohort changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleetctl.controllers.queues.lines import Ask, Group, Line, Lines, Vector, Waiter
from fleetctl.controllers.queues.turn import add, place_in, tried


@dataclass(frozen=True, slots=True)
class Running:
    """A run that could be asked to make room."""

    run: str
    uid: str
    queue: str
    namespace: str
    priority: int
    began_s: float
    ask: Ask


@dataclass(frozen=True, slots=True)
class Eviction:
    run: str
    uid: str
    message: str


def next_up(lines: Lines, cohort: Sequence[Line], now_s: float, *, most: int) -> list[str]:
    """The uids of those that could start a run now, first to start first. Each decides for itself
    when it is looked at, so that this needs to be right of the first alone.
    """
    woken: list[str] = []
    with tried(cohort):
        closed: set[str] = set()  # queues in which nobody behind may start
        for line, group, _ in _in_order(lines, cohort):
            if line.rules.name in closed:
                continue
            for rank in group.ranks:
                if len(woken) >= most:
                    return woken
                vector = _fitting(lines, line, group)
                if vector is None:
                    waiter = lines.waiters[rank[2]]
                    late = now_s >= waiter.stands_since_s + line.rules.overtake_s
                    if line.rules.strict or late:
                        closed.add(line.rules.name)
                    break
                woken.append(rank[2])
                add(line, group.namespace, vector)
    return woken


def evictions(
    lines: Lines,
    cohort: Sequence[Line],
    running: Callable[[], Iterable[Running]],
) -> list[Eviction]:
    """Runs to stop so that one who waits can start: for the first that may ask for it and that
    enough make room for. Of one cohort no more at once: what that frees is seen before the next.

    running: of the queues of this cohort, without those that are being stopped.
    """
    if not any(it.rules.within_queue or it.rules.reclaim != "Never" for it in cohort):
        return []
    with tried(cohort):
        known: list[Running] | None = None
        lowest: dict[str, int] = {}  # by queue, the priority of what runs there
        for line, group, waiter in _in_order(lines, cohort):
            soon = (it for it in group.vectors if lines.lacks(line, it, soon=True) is None)
            if (vector := next(soon, None)) is not None:
                # It starts once what is being stopped is gone, and that is spoken for.
                add(line, group.namespace, vector)
                continue
            if not (line.rules.within_queue or line.rules.reclaim != "Never"):
                continue
            if known is None:
                known = sorted(running(), key=lambda it: (it.priority, -it.began_s, it.run))
                lowest = {it.queue: it.priority for it in reversed(known)}
            if not _may_ask(line, waiter, lowest):
                continue  # most waiters, of which there may be thousands that ask for other things
            found = _making_room(lines, cohort, _Case(line, waiter, group.vectors[0]), known)
            if found:
                return [Eviction(it.run, it.uid, _why(it, waiter)) for it in found]
    return []


def _may_ask(line: Line, waiter: Waiter, lowest: Mapping[str, int]) -> bool:
    """Whether anything runs at all that the waiter comes before; `_may_stop` looks at each."""
    rules, first = line.rules, waiter.priority
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
class _Case:
    """Who waits, in which queue, for what."""

    line: Line
    waiter: Waiter
    vector: Vector


def _making_room(
    lines: Lines, cohort: Sequence[Line], case: _Case, known: Sequence[Running]
) -> list[Running]:
    """As few as it takes, of other queues first, then the lowest priority, the youngest first; all
    or none.
    """
    line, vector = case.line, case.vector
    by_name = {it.rules.name: it for it in cohort}
    others = [it for it in known if it.queue != line.rules.name]
    own = [it for it in known if it.queue == line.rules.name]
    chosen: list[Running] = []
    with tried(cohort):
        for one in (*others, *own):
            there = by_name[one.queue]
            gives = there.vector(one.ask) or _priceless(there, one.ask)
            if not _may_stop(lines, there, one, case) or not _helps(line, there, vector, gives):
                continue
            add(there, one.namespace, tuple(-it for it in gives))
            chosen.append(one)
            if lines.lacks(line, vector, soon=True) is None:
                break
        else:
            return []
        return _without_needless(lines, by_name, case, chosen)


def _without_needless(
    lines: Lines, by_name: dict[str, Line], case: _Case, chosen: list[Running]
) -> list[Running]:
    """The last ones may have made the first ones needless: what still fits beside goes on."""
    needed = list(chosen)
    for one in chosen[:-1]:
        there = by_name[one.queue]
        gives = there.vector(one.ask) or _priceless(there, one.ask)
        add(there, one.namespace, gives)
        if lines.lacks(case.line, case.vector, soon=True) is None:
            needed.remove(one)
        else:
            add(there, one.namespace, tuple(-it for it in gives))
    return needed


def _may_stop(lines: Lines, there: Line, one: Running, case: _Case) -> bool:
    """Whether this run may be stopped for that waiter, as things are once those chosen so far are
    gone. Who is stopped comes behind who is let in, also afterwards: or the two would take turns
    stopping each other.
    """
    rules, waiter = case.line.rules, case.waiter
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


def _helps(line: Line, there: Line, vector: Vector, gives: Vector) -> bool:
    """Whether what it gives back is something that is asked for."""
    wanted = {
        (quota.resource, quota.provider)
        for quota, amount in zip(line.rules.quotas, vector, strict=True)
        if amount > 0
    }
    return any(
        amount > 0 and (quota.resource, quota.provider) in wanted
        for quota, amount in zip(there.rules.quotas, gives, strict=True)
    )


def _priceless(line: Line, ask: Ask) -> Vector:
    """What a run counts for of unknown price."""
    assert ask.takes is not None, "what runs took something"
    return tuple(
        it.amount(ask.takes, ask.provider, ask.usd_per_s) or 0.0 for it in line.rules.quotas
    )


def _in_order(lines: Lines, cohort: Sequence[Line]) -> Iterator[tuple[Line, Group, Waiter]]:
    """The first of each group: of each queue in its order; of several, who uses what is its queue's
    own before who borrows. What is tried meanwhile counts.
    """
    left = {}
    for line in cohort:
        heads = [] if line.rules.suspend else list(lines.heads(line))
        heads.sort(key=lambda it: place_in(line, it[1]), reverse=True)
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


def _fitting(lines: Lines, line: Line, group: Group) -> Vector | None:
    return next((it for it in group.vectors if lines.lacks(line, it) is None), None)


def _why(one: Running, waiter: Waiter) -> str:
    whose = f"queue/{waiter.queue}"
    if one.queue != waiter.queue:
        return f"{whose} takes back what is its own, for {waiter.key}"
    return f"{waiter.key} with priority {waiter.priority} comes first in {whose}"

"""Formats queues for screens: cells of `get queues`, the lines of `describe queue/x`, its tables of
admitted and waiting objects, and the position and estimated start of a waiting object.

Computed on request from the statuses of all waiting objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.common.text import and_more, count_noun, escape_line, format_age
from fleetctl.specs.values.namespaces import object_key
from fleetctl.views.details import ROWS_MAX, DetailCell, DetailRow, DetailTable
from fleetctl.views.kinds import Target
from fleetctl.views.objects import as_mapping, build_view, explain_status, parse_document

if TYPE_CHECKING:
    from fleetctl.controllers.queues.queue_state import QueuedObject, QueueRules
    from fleetctl.views.objects import View
    from fleetctl.views.store_reading import StoreReading

SHOWN_MAX = 10
NONE = "-"
ADMITTED_COLUMNS = ("OBJECT", "STATUS", "PRIORITY", "RUNS", "EACH ASKS", "SINCE", "WHERE")
WAITING_COLUMNS = (
    *("#", "OBJECT", "PRIORITY", "RUNS LEFT", "EACH ASKS", "IN ALL", "SINCE"),
    *("STARTS IN", "WHY"),
)


class QueueWaiters(NamedTuple):
    """The objects that wait in a queue, in the order of their starts.

    left: how many runs each has yet to start, by uid. run_s: median seconds of a run of the queue;
    None when no run has ended. at_once: how many runs of the queue are running.
    """

    order: list[QueuedObject]
    left: Mapping[str, int]
    run_s: float | None
    at_once: int


def list_waiters(queue: View, reading: StoreReading) -> QueueWaiters:
    """Returns the objects that wait in a queue. Reads the status of each unfinished object."""
    # Imported here: lists, which have some tens of milliseconds, do without.
    from statistics import median

    from fleetctl.controllers.queues.queue_position import order_waiters, parse_rules, parse_waiter

    rules = parse_rules(queue.resource.name, queue.spec())
    waiters = []
    left = {}
    for row in reading.waiting():
        status = parse_document(row.status)
        key = object_key(row.kind, row.name, row.namespace)
        waiter = parse_waiter(row.uid, key, row.namespace, status)
        if waiter is not None and waiter.queue == queue.resource.name:
            waiters.append(waiter)
            left[row.uid] = _count_left(status)
    shares = {
        name: [float(it) for it in used] if isinstance(used, list) else []
        for name, used in queue.map("shares").items()
    }
    fitting = {name: it for name, it in shares.items() if len(it) == len(rules.quotas)}
    durations_s = reading.durations_in_queue(queue.resource.name)
    order = order_waiters(rules, fitting, waiters)
    return QueueWaiters(
        order, left, median(durations_s) if durations_s else None, queue.count("running")
    )


def format_queue_position(seen: View, reading: StoreReading) -> str:
    """Returns `gpu, position 3 of 12, its first run in about 2h`; "" for an object in no queue."""
    queued = seen.map("queued")
    if not queued:
        return ""
    name = str(queued.get("queue"))
    priority = queued.get("priority")
    parts = [name, *([f"priority {priority}"] if priority else [])]
    if "waitingSince" not in queued or seen.over:
        return escape_line(", ".join(parts))
    queue = reading.queue(name)
    if queue is None:
        return escape_line(", ".join([*parts, "which does not exist"]))
    from fleetctl.controllers.queues.queue_position import estimate_wait_s, find_position

    waiters = list_waiters(queue, reading)
    position = find_position(waiters.order, seen.resource.uid, waiters.left)
    if position is None:
        return escape_line(", ".join(parts))
    parts.append(f"position {position.position} of {position.of}")
    next_ = "next run" if seen.count("active") else "first run"
    until_s = estimate_wait_s(position, at_once=waiters.at_once, run_s=waiters.run_s)
    if until_s is None:
        parts.append(f"its {next_} at an unknown time: no run of the queue has ended yet")
    else:
        parts.append(f"its {next_} in about {format_age(until_s)}")
    return escape_line(", ".join(parts))


def queue_lines(
    seen: View,
    _reading: StoreReading,
    _now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (label, text) of each line of `describe queue/x`."""
    for quota in _list_quotas(seen):
        yield str(quota.get("resource")), _format_quota(quota)
    namespaces = [
        f"{name} {'/'.join(_format_figure(it) for it in used if isinstance(it, (int, float)))}"
        for name, used in seen.map("shares").items()
        if isinstance(used, list)
    ]
    if seen.spec().get("fairShare") is not None and namespaces:
        yield "Shares", and_more(namespaces, most=SHOWN_MAX)
    yield "Running", count_noun(seen.count("running"), "run")


def queue_tables(
    seen: View,
    reading: StoreReading,
    _now_s: float,
) -> Iterator[DetailTable]:
    """Yields the objects with runs in the queue, and those that wait, in the order of their
    starts."""
    # Imported here: lists, which have some tens of milliseconds, do without.
    from fleetctl.controllers.queues.queue_position import parse_rules

    waiters = list_waiters(seen, reading)
    rules = parse_rules(seen.resource.name, seen.spec())
    views = {it.resource.uid: it for it in list_queued(seen, reading)}
    admitted = sorted((it for it in views.values() if it.active), key=_rank_admitted)
    known = {it.uid: _format_ask(it, rules, 1) for it in waiters.order}
    rows = tuple(
        _build_admitted_row(it, known.get(it.resource.uid, it.text("gpu")))
        for it in admitted[:ROWS_MAX]
    )
    yield DetailTable("Admitted", ADMITTED_COLUMNS, rows, _count_others(admitted))
    rows = tuple(_build_waiter_rows(waiters, rules, views))
    yield DetailTable("Waiting", WAITING_COLUMNS, rows, _count_others(waiters.order))


def list_queued(queue: View, reading: StoreReading) -> list[View]:
    """Returns the unfinished objects of a queue, those with runs in it too; without their specs."""
    name = queue.resource.name
    views = (build_view(row, lambda: "{}") for row in reading.queued())
    return [it for it in views if it.map("queued").get("queue") == name and not it.over]


def _count_others(found: Sequence[object]) -> str:
    """Returns the note below a table of these objects."""
    if not found:
        return "none"
    left = len(found) - ROWS_MAX
    return f"and {left:,} more" if left > 0 else ""


def _rank_admitted(seen: View) -> tuple[float, float]:
    """Returns a sort key: the highest priority first, then the oldest."""
    return -_read_priority(seen), seen.time_s("startTime") or 0.0


def _read_priority(seen: View) -> float:
    found = seen.map("queued").get("priority")
    return found if isinstance(found, (int, float)) else 0


def _build_admitted_row(seen: View, asks: str) -> DetailRow:
    """asks: of each of its runs, as far as its status has that."""
    places = ", ".join(f"{name} {count}" for name, count in seen.map("where").items())
    return _build_row(
        seen,
        (
            DetailCell(escape_line(seen.phase)),
            DetailCell(f"{_read_priority(seen):g}"),
            DetailCell(str(seen.active)),
            DetailCell(escape_line(asks) or NONE),
            DetailCell(NONE, at_s=seen.time_s("startTime")),
            DetailCell(escape_line(places) or NONE),
        ),
    )


def _build_row(seen: View, cells: tuple[DetailCell, ...], position: str = "") -> DetailRow:
    """Returns a row about an object, with its name in front, behind its position."""
    target = Target(seen.kind, seen.resource.name, seen.resource.namespace)
    named = DetailCell(escape_line(seen.key), target, private=True)
    first = (DetailCell(position), named) if position else (named,)
    return DetailRow((*first, *cells), seen.resource.namespace)


def _build_waiter_rows(
    waiters: QueueWaiters,
    rules: QueueRules,
    views: Mapping[str, View],
) -> Iterator[DetailRow]:
    from fleetctl.controllers.queues.queue_position import QueuePosition, estimate_wait_s

    ahead = 0
    for number, waiter in enumerate(waiters.order[:ROWS_MAX], 1):
        left = max(1, waiters.left.get(waiter.uid, 1))
        place = QueuePosition(number, len(waiters.order), ahead)
        ahead += left
        seen = views.get(waiter.uid)
        if seen is None:
            continue  # it began or ended between two reads
        until_s = estimate_wait_s(place, at_once=waiters.at_once, run_s=waiters.run_s)
        yield _build_row(
            seen,
            (
                DetailCell(str(waiter.priority)),
                DetailCell(f"{left:,}"),
                DetailCell(_format_ask(waiter, rules, 1)),
                DetailCell(_format_ask(waiter, rules, left)),
                DetailCell(NONE, at_s=waiter.stands_since_s),
                DetailCell(NONE if until_s is None else f"about {format_age(until_s)}"),
                DetailCell(escape_line(explain_status(seen)) or NONE, private=True),
            ),
            str(number),
        )


def _format_ask(waiter: QueuedObject, rules: QueueRules, runs: int) -> str:
    """Returns `gpu/A100 8, usdPerHour 3.2`: the amount of each quota that so many runs take, at the
    provider that it would like best."""
    if not waiter.asks or waiter.asks[0].takes is None:
        return NONE
    ask = waiter.asks[0]
    parts = []
    for quota in rules.quotas:
        amount = quota.amount(waiter.asks[0].takes, ask.provider, ask.usd_per_s)
        if amount != 0:
            figure = _format_figure(None if amount is None else amount * runs)
            parts.append(f"{quota.name} {figure}")
    return escape_line(", ".join(parts)) or NONE


def used_cell(seen: View, _now_s: float) -> str:
    """Returns `gpu/A100 6/8, usdPerHour 3.2/12`; a `+` marks the borrowed part."""
    shown = [f"{_format_name(it)} {_format_quota_cell(it)}" for it in _list_quotas(seen)]
    return escape_line(", ".join(shown)) or NONE


def borrowed_cell(seen: View, _now_s: float) -> str:
    shown = [
        f"{_format_name(it)} {_format_figure(it.get('borrowed'))}"
        for it in _list_quotas(seen)
        if it.get("borrowed")
    ]
    return escape_line(", ".join(shown)) or NONE


def cohort_cell(seen: View, _now_s: float) -> str:
    return escape_line(str(seen.spec().get("cohort") or NONE))


def strategy_cell(seen: View, _now_s: float) -> str:
    return escape_line(str(seen.spec().get("strategy") or "BestEffortFIFO"))


def _list_quotas(seen: View) -> list[Mapping[str, object]]:
    found = seen.status.get("quotas")
    if isinstance(found, list):
        return [as_mapping(it) for it in found]
    return []


def _format_name(quota: Mapping[str, object]) -> str:
    provider = quota.get("provider")
    return f"{quota.get('resource')}" + (f" on {provider}" if provider else "")


def _format_quota_cell(quota: Mapping[str, object]) -> str:
    return f"{_format_figure(quota.get('used'))}/{_format_figure(quota.get('nominal'))}"


def _format_quota(quota: Mapping[str, object]) -> str:
    provider = f" on {quota['provider']}" if quota.get("provider") else ""
    text = (
        f"{_format_figure(quota.get('used'))} of {_format_figure(quota.get('nominal'))}{provider}"
    )
    borrowed = quota.get("borrowed")
    return text + (f", {_format_figure(borrowed)} of it borrowed" if borrowed else "")


def _format_figure(value: object) -> str:
    if isinstance(value, (int, float)):
        return f"{round(value, 2):g}"
    return "?"


def _count_left(status: Mapping[str, object]) -> int:
    """Returns the number of runs that an object has yet to start; 1 where its total is unknown."""
    total = status.get("total")
    if not isinstance(total, int):
        return 1
    begun = (status.get(key) for key in ("succeeded", "failed", "stopped", "active"))
    return max(1, total - sum(it for it in begun if isinstance(it, int)))

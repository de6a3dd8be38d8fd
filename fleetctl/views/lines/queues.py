"""What screens tell of queues: cells of their list, who waits in which order, and when an object's
turn may come. Told from the statuses of all who wait, when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.common.text import age, and_more, plural, safe
from fleetctl.specs.values.namespaces import object_key
from fleetctl.views.objects import mapping, parsed

if TYPE_CHECKING:
    from fleetctl.controllers.queues.lines import Waiter
    from fleetctl.views.objects import View
    from fleetctl.views.reading import Reading

SHOWN_MAX = 10
CELLS_MAX = 40
NONE = "-"


class Waiting(NamedTuple):
    """All who wait in a queue, in their order; left: by uid, how many runs each has yet to start.
    run_s: what a run of it takes, as a rule; None: none has ended.
    """

    order: list[Waiter]
    left: Mapping[str, int]
    run_s: float | None
    at_once: int


def waiting_in(queue: View, reading: Reading) -> Waiting:
    """Costs as much as there are objects that are not over."""
    # Here: lists, which have some tens of milliseconds, do without.
    from statistics import median

    from fleetctl.controllers.queues.standing import in_order, rules_in, waiter_in

    rules = rules_in(queue.resource.name, queue.spec())
    waiters, left = [], {}
    for row in reading.waiting():
        status = parsed(row.status)
        key = object_key(row.kind, row.name, row.namespace)
        waiter = waiter_in(row.uid, key, row.namespace, status)
        if waiter is not None and waiter.queue == queue.resource.name:
            waiters.append(waiter)
            left[row.uid] = _left(status)
    shares = {
        name: [float(it) for it in used] if isinstance(used, list) else []
        for name, used in queue.map("shares").items()
    }
    fitting = {name: it for name, it in shares.items() if len(it) == len(rules.quotas)}
    took_s = reading.durations_in_queue(queue.resource.name)
    order = in_order(rules, fitting, waiters)
    return Waiting(order, left, median(took_s) if took_s else None, queue.count("running"))


def place_line(seen: View, reading: Reading) -> str:
    """`gpu, position 3 of 12, about 2h until it starts`; empty where it is in no queue."""
    stands = seen.map("queued")
    if not stands:
        return ""
    name, priority = str(stands.get("queue")), stands.get("priority")
    parts = [name, *([f"priority {priority}"] if priority else [])]
    if "waitingSince" not in stands or seen.over:
        return safe(", ".join(parts))
    queue = reading.queue(name)
    if queue is None:
        return safe(", ".join([*parts, "which is not there"]))
    from fleetctl.controllers.queues.standing import standing_of, waits_s

    found = waiting_in(queue, reading)
    standing = standing_of(found.order, seen.resource.uid, found.left)
    if standing is None:
        return safe(", ".join(parts))
    parts.append(f"position {standing.position} of {standing.of}")
    next_ = "next run" if seen.count("active") else "first run"
    until_s = waits_s(standing, at_once=found.at_once, run_s=found.run_s)
    unknown = f"its {next_} at an unknown time: no run of the queue has ended yet"
    parts.append(unknown if until_s is None else f"its {next_} in about {age(until_s)}")
    return safe(", ".join(parts))


def queue_lines(seen: View, reading: Reading) -> Iterator[tuple[str, str]]:
    """(label, text) of each line of `describe queue/x`."""
    for quota in _quotas(seen):
        yield str(quota.get("resource")), _quota_text(quota)
    namespaces = [
        f"{name} {'/'.join(_figure(it) for it in used if isinstance(it, (int, float)))}"
        for name, used in seen.map("shares").items()
        if isinstance(used, list)
    ]
    if seen.spec().get("fairShare") is not None and namespaces:
        yield "Shares", and_more(namespaces, most=SHOWN_MAX)
    yield "Running", plural(seen.count("running"), "run")
    if not seen.count("waiting"):
        yield "Waiting", "nobody"
        return
    found = waiting_in(seen, reading)
    for at, waiter in enumerate(found.order[:SHOWN_MAX]):
        rank = f" priority {waiter.priority}" if waiter.priority else ""
        yield ("" if at else "Waiting"), f"{at + 1}. {waiter.key}{rank}"
    if len(found.order) > SHOWN_MAX:
        yield "", f"and {len(found.order) - SHOWN_MAX} more"


def used_cell(seen: View, _now_s: float) -> str:
    """`gpu/A100 6/8, usdPerHour 3.2/12`; with a `+` what is borrowed."""
    shown = [f"{_name(it)} {_quota_short(it)}" for it in _quotas(seen)]
    return safe(", ".join(shown)) or NONE


def borrowed_cell(seen: View, _now_s: float) -> str:
    shown = [
        f"{_name(it)} {_figure(it.get('borrowed'))}" for it in _quotas(seen) if it.get("borrowed")
    ]
    return safe(", ".join(shown)) or NONE


def cohort_cell(seen: View, _now_s: float) -> str:
    return safe(str(seen.spec().get("cohort") or NONE))


def strategy_cell(seen: View, _now_s: float) -> str:
    return safe(str(seen.spec().get("strategy") or "BestEffortFIFO"))


def _quotas(seen: View) -> list[Mapping[str, object]]:
    found = seen.status.get("quotas")
    return [mapping(it) for it in found] if isinstance(found, list) else []


def _name(quota: Mapping[str, object]) -> str:
    provider = quota.get("provider")
    return f"{quota.get('resource')}" + (f" on {provider}" if provider else "")


def _quota_short(quota: Mapping[str, object]) -> str:
    return f"{_figure(quota.get('used'))}/{_figure(quota.get('nominal'))}"


def _quota_text(quota: Mapping[str, object]) -> str:
    provider = f" on {quota['provider']}" if quota.get("provider") else ""
    text = f"{_figure(quota.get('used'))} of {_figure(quota.get('nominal'))}{provider}"
    borrowed = quota.get("borrowed")
    return text + (f", {_figure(borrowed)} of it borrowed" if borrowed else "")


def _figure(value: object) -> str:
    return f"{round(value, 2):g}" if isinstance(value, (int, float)) else "?"


def _left(status: Mapping[str, object]) -> int:
    """Runs that it has yet to start; one where that is unknown."""
    total = status.get("total")
    if not isinstance(total, int):
        return 1
    begun = (status.get(key) for key in ("succeeded", "failed", "stopped", "active"))
    return max(1, total - sum(it for it in begun if isinstance(it, int)))

"""Formats Endpoints for screens: cells of `get endpoints`, and the figures, servers and batches
that `describe` and the page show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fleetctl.common.text import HOUR_S, count_noun, escape_line, format_money
from fleetctl.specs.values.namespaces import object_key
from fleetctl.views.details import ROWS_MAX, DetailCell, DetailRow, DetailTable
from fleetctl.views.kinds import target_with
from fleetctl.views.objects import NONE, View, as_mapping
from fleetctl.views.store_reading import StoreReading

MINUTES = 60  # of an hour
SERVER_COLUMNS = ("ADDRESS", "FUNCTION", "STATE", "IN FLIGHT", "SLOTS", "RESTS", "$/H")
BATCH_COLUMNS = ("BATCH", "STATE", "DONE", "ROWS", "FAILED", "TROUBLE")


def servers_cell(seen: View, _now_s: float) -> str:
    """Returns `2/3`: two of its three servers respond."""
    servers = endpoint_servers(seen)
    declared = seen.spec().get("servers")
    ready = sum(it.get("state") == "Ready" for it in servers)
    return f"{ready}/{len(declared) if isinstance(declared, list) else len(servers)}"


def answered_cell(seen: View, _now_s: float) -> str:
    """Returns the 95th percentile of its recent response times."""
    spent = seen.map("latency").get("answerMsP95")
    if isinstance(spent, (int, float)):
        return f"{spent:.0f}ms"
    return NONE


def endpoint_servers(seen: View) -> Sequence[Mapping[str, object]]:
    """Returns the servers as its gateway last found them."""
    servers = seen.status.get("servers")
    if isinstance(servers, list):
        return [as_mapping(it) for it in servers]
    return []


def endpoint_lines(
    seen: View,
    reading: StoreReading,
    _now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (label, text); no line for uncounted figures."""
    if warning := seen.text("warning"):
        yield "Warning", warning
    count = {key: _as_whole(seen.status.get(key)) for key in _COUNTED}
    if "concurrency" in seen.status:
        waiting = f", {count_noun(count['queue'], 'request')} waiting" if count["queue"] else ""
        yield "Slots", f"{count['concurrency']} at once, {count['inFlight']} taken{waiting}"
    if gathering := _as_whole(seen.status.get("gathering")):
        yield "Gathering", f"{count_noun(gathering, 'row')} for a batch"
    if "calls" not in seen.status:
        return
    others = [f"{count[key]} {what}" for key, what in _BESIDE if count[key]]
    tries = count["tries"]
    said = f"{count['calls']} in {tries} {'try' if tries == 1 else 'tries'}"
    yield "Calls", ", ".join([said, *others])
    minute = seen.map("lastMinute")
    if minute:
        requests, tokens = (_as_whole(minute.get(it)) for it in ("requests", "tokens"))
        yield "Rate", f"{count_noun(requests, 'request')} and {tokens:,} tokens in the last minute"
    yield "Tokens", f"{count['tokensIn']} in, {count['tokensOut']} out"
    yield from _describe_cost(seen, reading)
    latency = seen.map("latency")
    if latency:
        yield (
            "Answers",
            _format_latency(latency, "answerMs")
            + f"; {_format_latency(latency, 'waitingMs')} for a slot",
        )


_COUNTED = (
    "calls", "tries", "fallbacks", "cacheHits", "refusedCalls", "tokensIn", "tokensOut",
    "concurrency", "inFlight", "queue",
)  # fmt: skip
_BESIDE = (("cacheHits", "from its cache"), ("fallbacks", "fell back"), ("refusedCalls", "refused"))


def _describe_cost(seen: View, reading: StoreReading) -> Iterator[tuple[str, str]]:
    """Yields the cost of its calls so far, and what it costs an hour at the pace of the last
    minute, with the containers of its Functions."""
    cost = seen.map("cost")
    spent = cost.get("actual")
    unpriced = _as_whole(cost.get("unpricedCalls"))
    parts = [format_money(spent)] if isinstance(spent, (int, float)) and spent else []
    if unpriced:
        parts.append(f"{count_noun(unpriced, 'call')} without a known price")
    if parts:
        yield "Cost", " and ".join(parts)
    paid = seen.map("lastMinute").get("usd")
    calls = paid * MINUTES if isinstance(paid, (int, float)) else 0.0
    rates = [_find_rate(it, reading) for it in endpoint_servers(seen)]
    servers = sum(it for it in rates if it is not None)
    each = ((calls, "for calls"), (servers, "for containers"))
    hourly = [f"{format_money(usd)}/h {what}" for usd, what in each if usd]
    if hourly:
        yield "Spend now", ", ".join(hourly)


def _find_rate(server: Mapping[str, object], reading: StoreReading) -> float | None:
    """Returns the USD an hour of the containers of a server that is a Function; None for another
    server, and while no container has a known price."""
    key = server.get("function")
    found = reading.find(target_with(str(key))) if key else None
    rate = found.map("warm").get("usdPerSecond") if found is not None else None
    return rate * HOUR_S if isinstance(rate, (int, float)) else None


def _format_latency(latency: Mapping[str, object], of: str) -> str:
    middle = latency.get(f"{of}P50")
    most = latency.get(f"{of}P95")
    if not isinstance(middle, (int, float)) or not isinstance(most, (int, float)):
        return "-"
    return f"p50 {middle:.0f}ms, p95 {most:.0f}ms"


def endpoint_tables(
    seen: View,
    reading: StoreReading,
    _now_s: float,
) -> Iterator[DetailTable]:
    """Yields its servers, and the batches that they work on."""
    servers = endpoint_servers(seen) or _list_declared(seen)
    rows = tuple(_build_server_row(it, seen, reading) for it in servers[:ROWS_MAX])
    yield DetailTable("Servers", SERVER_COLUMNS, rows, "" if rows else "none is declared")
    listed = seen.status.get("batches")
    batches = [as_mapping(it) for it in listed] if isinstance(listed, list) else []
    if batches:
        rows = tuple(_build_batch_row(it) for it in batches[:ROWS_MAX])
        left = len(batches) - len(rows)
        yield DetailTable("Batches", BATCH_COLUMNS, rows, f"and {left} more" if left else "")


def _list_declared(seen: View) -> Sequence[Mapping[str, object]]:
    """Returns the servers of its spec, in the form of its status: of an endpoint whose gateway has
    not looked at them, or that has none."""
    declared = seen.spec().get("servers")
    rows = [as_mapping(it) for it in declared] if isinstance(declared, list) else []
    return [
        {
            "url": it.get("url"),
            "function": it.get("function")
            and object_key("Function", str(it["function"]), seen.resource.namespace),
        }
        for it in rows
    ]


def _build_server_row(server: Mapping[str, object], seen: View, reading: StoreReading) -> DetailRow:
    key = str(server.get("function") or "")
    resting = server.get("restingSeconds")
    rate = _find_rate(server, reading)
    texts = (
        str(server.get("url") or NONE),
        str(server.get("state") or NONE),
        *(NONE if server.get(it) is None else str(server[it]) for it in ("inFlight", "slots")),
        f"{resting:.0f}s" if isinstance(resting, (int, float)) else NONE,
        NONE if rate is None else format_money(rate),
    )
    url, *others = (DetailCell(escape_line(it)) for it in texts)
    function = DetailCell(escape_line(key), target_with(key)) if key else DetailCell(NONE)
    return DetailRow((url, function, *others), seen.resource.namespace)


def _build_batch_row(batch: Mapping[str, object]) -> DetailRow:
    done, rows, failed = (f"{_as_whole(batch.get(it)):,}" for it in ("done", "rows", "failed"))
    head = (str(batch.get("id") or NONE), str(batch.get("state") or NONE))
    texts = (*head, done, rows, failed, str(batch.get("trouble") or NONE))
    return DetailRow(tuple(DetailCell(escape_line(it)) for it in texts))


def _as_whole(value: object) -> int:
    if isinstance(value, (int, float)):
        return int(value)
    return 0

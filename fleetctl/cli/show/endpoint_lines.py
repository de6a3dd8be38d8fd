"""The lines of `describe endpoint/x` beside its spec: its servers, its requests, its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.common.text import count_noun, format_money
from fleetctl.views.objects import View, as_mapping
from fleetctl.views.sections.assets import endpoint_servers
from fleetctl.views.store_reading import StoreReading


def endpoint_lines(
    seen: View,
    _reading: StoreReading,
    _now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (label, text); no line for uncounted figures."""
    if warning := seen.text("warning"):
        yield "Warning", warning
    for server in endpoint_servers(seen):
        busy = f"{server.get('inFlight')} of {server.get('slots')} slots"
        resting = server.get("restingSeconds")
        rest = f", rests {resting:.0f}s" if isinstance(resting, (int, float)) else ""
        yield "Server", f"{server.get('url')} {server.get('state')}, {busy}{rest}"
    count = {key: _as_whole(seen.status.get(key)) for key in _COUNTED}
    if "concurrency" in seen.status:
        waiting = f", {count_noun(count['queue'], 'request')} waiting" if count["queue"] else ""
        yield "Slots", f"{count['concurrency']} at once, {count['inFlight']} taken{waiting}"
    batches = seen.status.get("batches")
    for batch in map(as_mapping, batches) if isinstance(batches, list) else ():
        yield "Batch", _format_batch(batch)
    if gathering := _as_whole(seen.status.get("gathering")):
        yield "Gathering", f"{count_noun(gathering, 'row')} for a batch"
    if "calls" not in seen.status:
        return
    others = [f"{count[key]} {what}" for key, what in _BESIDE if count[key]]
    tries = count["tries"]
    said = f"{count['calls']} in {tries} {'try' if tries == 1 else 'tries'}"
    yield "Calls", ", ".join([said, *others])
    yield "Tokens", f"{count['tokensIn']} in, {count['tokensOut']} out"
    yield from _describe_cost(seen)
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


def _format_batch(batch: Mapping[str, object]) -> str:
    done, rows, failed = (_as_whole(batch.get(it)) for it in ("done", "rows", "failed"))
    faults = f", {failed:,} failed" if failed else ""
    trouble = f"; {batch['trouble']}" if batch.get("trouble") else ""
    head = f"{batch.get('id') or '-'} {batch.get('state')}"
    return f"{head}, {done:,} of {rows:,} done{faults}{trouble}"


def _describe_cost(seen: View) -> Iterator[tuple[str, str]]:
    cost = seen.map("cost")
    spent = cost.get("actual")
    unpriced = _as_whole(cost.get("unpricedCalls"))
    parts = [format_money(spent)] if isinstance(spent, (int, float)) and spent else []
    if unpriced:
        parts.append(f"{count_noun(unpriced, 'call')} without a known price")
    if parts:
        yield "Cost", " and ".join(parts)


def _format_latency(latency: Mapping[str, object], of: str) -> str:
    middle = latency.get(f"{of}P50")
    most = latency.get(f"{of}P95")
    if not isinstance(middle, (int, float)) or not isinstance(most, (int, float)):
        return "-"
    return f"p50 {middle:.0f}ms, p95 {most:.0f}ms"


def _as_whole(value: object) -> int:
    if isinstance(value, (int, float)):
        return int(value)
    return 0

"""What `describe endpoint/x` tells besides its spec: its servers, what it was asked, its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.common.text import plural, usd
from fleetctl.views.lines.assets import endpoint_servers
from fleetctl.views.objects import View, mapping


def endpoint_lines(seen: View, _now_s: float) -> Iterator[tuple[str, str]]:
    """(label, text); nothing of what nobody counted."""
    if warning := seen.text("warning"):
        yield "Warning", warning
    for server in endpoint_servers(seen):
        busy = f"{server.get('inFlight')} of {server.get('slots')} slots"
        resting = server.get("restingSeconds")
        rest = f", rests {resting:.0f}s" if isinstance(resting, (int, float)) else ""
        yield "Server", f"{server.get('url')} {server.get('state')}, {busy}{rest}"
    count = {key: _whole(seen.status.get(key)) for key in _COUNTED}
    if "concurrency" in seen.status:
        waiting = f", {plural(count['queue'], 'request')} waiting" if count["queue"] else ""
        yield "Slots", f"{count['concurrency']} at once, {count['inFlight']} taken{waiting}"
    batches = seen.status.get("batches")
    for batch in map(mapping, batches) if isinstance(batches, list) else ():
        yield "Batch", _batch(batch)
    if gathering := _whole(seen.status.get("gathering")):
        yield "Gathering", f"{plural(gathering, 'row')} for a batch"
    if "calls" not in seen.status:
        return
    others = [f"{count[key]} {what}" for key, what in _BESIDE if count[key]]
    tries = count["tries"]
    said = f"{count['calls']} in {tries} {'try' if tries == 1 else 'tries'}"
    yield "Calls", ", ".join([said, *others])
    yield "Tokens", f"{count['tokensIn']} in, {count['tokensOut']} out"
    yield from _money(seen)
    latency = seen.map("latency")
    if latency:
        yield "Answers", _span(latency, "answerMs") + f"; {_span(latency, 'waitingMs')} for a slot"


_COUNTED = (
    "calls", "tries", "fallbacks", "cacheHits", "refusedCalls", "tokensIn", "tokensOut",
    "concurrency", "inFlight", "queue",
)  # fmt: skip
_BESIDE = (("cacheHits", "from its cache"), ("fallbacks", "fell back"), ("refusedCalls", "refused"))


def _batch(batch: Mapping[str, object]) -> str:
    done, rows, failed = (_whole(batch.get(it)) for it in ("done", "rows", "failed"))
    faults = f", {failed:,} failed" if failed else ""
    trouble = f"; {batch['trouble']}" if batch.get("trouble") else ""
    head = f"{batch.get('id') or '-'} {batch.get('state')}"
    return f"{head}, {done:,} of {rows:,} done{faults}{trouble}"


def _money(seen: View) -> Iterator[tuple[str, str]]:
    cost = seen.map("cost")
    spent, unpriced = cost.get("actual"), _whole(cost.get("unpricedCalls"))
    parts = [usd(spent)] if isinstance(spent, (int, float)) and spent else []
    if unpriced:
        parts.append(f"{plural(unpriced, 'call')} without a known price")
    if parts:
        yield "Cost", " and ".join(parts)


def _span(latency: Mapping[str, object], of: str) -> str:
    middle, most = latency.get(f"{of}P50"), latency.get(f"{of}P95")
    if not isinstance(middle, (int, float)) or not isinstance(most, (int, float)):
        return "-"
    return f"p50 {middle:.0f}ms, p95 {most:.0f}ms"


def _whole(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) else 0

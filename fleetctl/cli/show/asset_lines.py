"""The `describe` of an object that does no work: its spec, a line a field, with long programs and
lists cut, then the lines of its kind: an Endpoint's servers and requests, a Function's warm
containers, a Budget's amounts.

The whole, to be read back, is `get -o yaml`; this one loads no YAML library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

from fleetctl.common.text import (
    HOUR_S,
    count_noun,
    escape_line,
    format_assignments,
    format_duration,
    format_money,
    format_scalar,
    format_timestamp,
)
from fleetctl.manifest.plain_scalars import resolve_scalar
from fleetctl.specs.kinds.shown import DescribeField
from fleetctl.views.objects import View, as_mapping
from fleetctl.views.sections.assets import endpoint_servers
from fleetctl.views.store_reading import StoreReading

LINES_SHOWN_MAX = 6
ITEMS_SHOWN_MAX = 6
LINE_CELLS_MAX = 120
STEP = "  "
# A plain text of YAML cannot begin with these, as far as `scalar` leaves it bare.
_MARKS = frozenset("-?:&*!|>%@`#")


def asset_lines(
    seen: View,
    reading: StoreReading,
    now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (label, text) of each line."""
    yield from _describe_fields(seen)
    if seen.kind.lines:
        module, _, name = seen.kind.lines.partition(":")
        yield from getattr(import_module(module), name)(seen, reading, now_s)


def _describe_fields(seen: View) -> Iterator[tuple[str, str]]:
    """Yields the fields of a spec: those with a default first, as its kind's row has them, then the
    others in their order. A Secret's has references, never values.
    """
    rows = {it.path: it for it in seen.kind.fields}
    defaults = {it.path: it.default for it in rows.values() if it.default is not None}
    for key, value in {**defaults, **seen.shown_spec()}.items():
        row = rows.get(key) or DescribeField(key[:1].upper() + key[1:], key)
        shown = _FORMATS[row.format](value)
        if shown and row.title:
            yield row.title, shown


def _format_sources(value: object) -> str:
    """Returns `TOKEN from HF_TOKEN`."""
    if not isinstance(value, dict):
        return _format_list(value)
    return ", ".join(f"{name} from {source}" for name, source in value.items())


def _format_span(value: object) -> str:
    return format_duration(value) if isinstance(value, (int, float)) else _format_list(value)


def _format_usd(value: object) -> str:
    return format_money(value) if isinstance(value, (int, float)) else _format_list(value)


def _format_list(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_format_value(item) for item in value)
    return _format_value(value)


def _format_value(value: object) -> str:
    if isinstance(value, dict):
        return format_assignments(dict(_walk_leaves(value)))
    if value is None:
        return ""
    return format_scalar(value).strip('"')


def _walk_leaves(value: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    """Yields the fields of a block, by dotted names; whole numbers as users write them."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _walk_leaves(inner, f"{above}{name}.")
        elif isinstance(inner, float) and inner.is_integer():
            yield above + name, int(inner)
        else:
            yield above + name, inner


_FORMATS: Mapping[str, Callable[[object], str]] = {
    "": _format_list,
    "duration": _format_span,
    "money": _format_usd,
    "sources": _format_sources,
}


def spec_lines(spec: Mapping[str, object]) -> Iterator[str]:
    """Yields lines that are safe for a terminal."""
    for name, value in spec.items():
        yield from _format_field(escape_line(name), value)


def _format_field(name: str, value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield f"{name}:"
        yield from (STEP + line for line in spec_lines(value))
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        yield f"{name}:"
        yield from _format_items(value)
    elif isinstance(value, list):
        shown = [_format_spec_value(item) for item in value[:ITEMS_SHOWN_MAX]]
        yield f"{name}: [{', '.join([*shown, *_format_rest(value)])}]"
    elif isinstance(value, str) and len(lines := value.splitlines()) > 1:
        yield f"{name}: |"
        yield from (STEP + _cut_text(line) for line in lines[:LINES_SHOWN_MAX])
        left = len(lines) - LINES_SHOWN_MAX
        if left > 0:
            yield f"{STEP}... {count_noun(left, 'more line')}"
    else:
        yield f"{name}: {_format_spec_value(value)}"


def _format_items(value: list[object]) -> Iterator[str]:
    for item in value[:ITEMS_SHOWN_MAX]:
        lines = list(spec_lines(item)) if isinstance(item, dict) else [_format_spec_value(item)]
        for mark, line in zip(["- ", *[STEP] * len(lines)], lines, strict=False):
            yield mark + line
    yield from _format_rest(value)


def _format_rest(value: list[object]) -> list[str]:
    left = len(value) - ITEMS_SHOWN_MAX
    if left > 0:
        return [f"... {left} more"]
    return []


def _format_spec_value(value: object) -> str:
    if isinstance(value, str) and _needs_quotes(value):
        return _cut_text(json.dumps(value, ensure_ascii=False))
    return _cut_text("null" if value is None else format_scalar(value))


def _needs_quotes(text: str) -> bool:
    """Returns true where YAML would read it as a number, a truth value or null, or as a mark of its
    own."""
    try:
        return text[:1] in _MARKS or text.endswith(":") or not isinstance(resolve_scalar(text), str)
    except ValueError:  # a number that is too large
        return True


def _cut_text(text: str) -> str:
    return escape_line(text if len(text) <= LINE_CELLS_MAX else f"{text[:LINE_CELLS_MAX]} ...")


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


def function_lines(
    seen: View,
    _reading: StoreReading,
    now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (label, text); no line for one that never kept a container warm, or for free ones."""
    warm = seen.map("warm")
    cost = seen.map("cost")
    rate = _as_number(warm.get("usdPerSecond"))
    since_s = _as_number(warm.get("since"))
    spent = _as_number(cost.get("actual")) or 0.0
    if warm and rate is not None and since_s is not None:
        spent += rate * max(0.0, now_s - since_s)
    parts = [f"{format_money(spent)} {'so far' if warm else 'spent'}"] if spent else []
    if warning := seen.text("warning"):
        yield "Warning", f"a container did not become ready: {warning}"
    if url := seen.text("url"):
        yield "URL", url
    serves = "port" in seen.spec()
    if serves and not warm:
        yield "Containers", "asleep: the next call of its Endpoint starts one"
    if warm and serves:
        each = "an unknown price" if rate is None else f"{format_money(rate * HOUR_S)}/h"
        count = int(_as_number(warm.get("containers")) or 0)
        parts.append(f"{each} now: {count_noun(count, 'container')}")
    elif warm:
        each = "an unknown price" if rate is None else f"{format_money(rate * HOUR_S)}/h"
        count = int(_as_number(warm.get("containers")) or 0)
        stays = "stays" if count == 1 else "stay"
        many = f"{count_noun(count, 'container')} {stays} warm, whether or not anything runs"
        parts.append(f"{each} while it exists: {many}")
    if parts:
        yield "Cost", ", ".join(parts)


def _as_number(value: object) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    return None


def budget_lines(
    seen: View,
    _reading: StoreReading,
    _now_s: float,
) -> Iterator[tuple[str, str]]:
    """Yields (label, text); no line before a controller has counted."""
    status = seen.status
    most, used, left = (_as_number(status.get(key)) for key in ("maxCost", "used", "left"))
    if most is None or used is None or left is None:
        return
    reserved = _as_number(status.get("reserved"))
    yield "Used", f"{format_money(used)} of {format_money(most)} by runs that have ended"
    endless = "no limit: a live run has no timeoutSeconds; set template.timeoutSeconds"
    yield (
        "Reserved",
        endless if reserved is None else f"{format_money(reserved)} at worst by live runs",
    )
    until_s = _as_number(status.get("until"))
    yield (
        "Left",
        format_money(left) + (f" until {format_timestamp(until_s)}" if until_s is not None else ""),
    )
    unpriced_s = _as_number(status.get("unpricedSeconds"))
    if unpriced_s:
        seconds = count_noun(round(unpriced_s), "second")
        yield "Unpriced", f"{seconds} of runs, counted at the price of what would start"

"""Cells and lines of kinds that run no work themselves: volumes, functions, providers, budgets,
policies.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.text import (
    HOUR_S,
    count_noun,
    escape_line,
    format_money,
    format_scalar,
    format_timestamp,
    shorten_text,
)
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.views.objects import NONE, View, as_mapping, explain_status
from fleetctl.views.store_reading import StoreReading

# A sentence in a table is a pointer; `describe` has the whole sentence.
WHY_CHARS_MAX = 80

PREFIX = "policy."  # of the annotation; without any, the reader of exemptions is not loaded


def provider_cell(seen: View, _now_s: float) -> str:
    return escape_line(str(seen.spec().get("provider") or DEFAULT_PROVIDER))


def slots_cell(seen: View, _now_s: float) -> str:
    """Returns `5/10` sandboxes; `5` without a limit."""
    slots = seen.map("slots")
    limit = slots.get("limit")
    used = format_scalar(slots.get("used", 0))
    if limit is None:
        return used
    return f"{used}/{format_scalar(limit)}"


def creates_cell(seen: View, _now_s: float) -> str:
    most = as_mapping(seen.spec().get("limits")).get("createsPerMinute")
    if most is None:
        return NONE
    return f"{format_scalar(most)}/min"


def spend_cell(seen: View, _now_s: float) -> str:
    """Returns `$1.20/$2.00` an hour; `+3?` for three sandboxes of unknown price."""
    spend = seen.map("spend")
    most = as_mapping(seen.spec().get("breaker")).get("maxSpendPerHour")
    now = spend.get("usdPerHour", 0.0)
    unpriced = spend.get("unpriced")
    return (
        (format_money(now) if isinstance(now, (int, float)) else NONE)
        + (f"+{format_scalar(unpriced)}?" if unpriced else "")
        + (f"/{format_money(most)}" if isinstance(most, (int, float)) else "")
    )


def format_value(value: object) -> str:
    """Returns a value of a status or a spec, as it is."""
    return escape_line(format_scalar(value))


def format_amount(value: object) -> str:
    """Returns `$4.20`; `?` for an amount that is not known, such as that of a live run without a
    limit of time."""
    return format_money(value) if isinstance(value, (int, float)) else "?"


def why_cell(seen: View, _now_s: float) -> str:
    return escape_line(shorten_text(explain_status(seen), WHY_CHARS_MAX)) or NONE


def full_cell(seen: View, _now_s: float) -> str:
    """Returns the reason why no new run starts there; empty when one can."""
    return escape_line(shorten_text(seen.text("message"), WHY_CHARS_MAX)) or NONE


def state_cell(seen: View, _now_s: float) -> str:
    """Returns the state of a Budget, which has a word of its own for it."""
    return escape_line(seen.text("state") or seen.phase)


def cap_cell(seen: View, _now_s: float) -> str:
    most = seen.spec().get("maxCost")
    if isinstance(most, (int, float)):
        return format_money(most)
    return NONE


def period_cell(seen: View, _now_s: float) -> str:
    return escape_line(str(seen.spec().get("period") or "month"))


def selector_cell(seen: View, _now_s: float) -> str:
    chosen = as_mapping(seen.spec().get("selector"))
    return escape_line(",".join(f"{key}={value}" for key, value in chosen.items())) or "all"


def deletion_cell(seen: View, _now_s: float) -> str:
    return escape_line(str(seen.spec().get("deletionPolicy") or "Retain"))


def gpu_cell(seen: View, _now_s: float) -> str:
    """Returns `H100:1 A100:1`, the preferred one first."""
    gpu = as_mapping(seen.spec().get("resources")).get("gpu")
    return (
        escape_line(" ".join(_list_names(gpu if isinstance(gpu, list) else [gpu] if gpu else [])))
        or NONE
    )


def containers_cell(seen: View, _now_s: float) -> str:
    """Returns `0-8`; `0-` where only the jobs' parallelism limits them."""
    spec = seen.spec()
    most = spec.get("maxContainers", 1 if "port" in spec else None)
    least = format_scalar(spec.get("minContainers", 0))
    return f"{least}-{'' if most is None else format_scalar(most)}"


def warm_cell(seen: View, _now_s: float) -> str:
    """Returns the cost of its warm containers."""
    return format_per_hour(seen) or NONE


def format_per_hour(seen: View) -> str:
    """Returns `$63.20`; `unknown`; empty without warm containers that cost."""
    warm = as_mapping(seen.status.get("warm"))
    rate = warm.get("usdPerSecond")
    if not warm:
        return ""
    return format_money(rate * HOUR_S) if isinstance(rate, (int, float)) else "unknown"


def secret_cell(seen: View, _now_s: float) -> str:
    """Returns the source of a secret's values; never the values, which the store does not have."""
    spec = seen.spec()
    found = [f"env:{name}" for name in _list_names(spec.get("fromEnv"))]
    found += [f"file:{name}" for name in _list_names(spec.get("fromFile"))]
    if spec.get("fromProvider"):
        found.append("provider")
    return escape_line(",".join(found) or NONE)


def _list_names(value: object) -> list[str]:
    if isinstance(value, (list, dict)):
        return [str(name) for name in value]
    return []


def provider_lines(
    seen: View,
    _reading: StoreReading,
    _now_s: float,
) -> Iterator[tuple[str, str]]:
    slots = seen.map("slots")
    spend = seen.map("spend")
    used = slots.get("used")
    limit = slots.get("limit")
    if isinstance(used, int):
        most = f" of {limit}" if isinstance(limit, int) else ""
        yield "In use", f"{used}{most} sandboxes"
    rate = spend.get("usdPerHour")
    unpriced = spend.get("unpriced")
    if isinstance(rate, (int, float)):
        dark = unpriced if isinstance(unpriced, int) else 0
        yield (
            "Spend",
            f"{format_money(rate)}/h now"
            + (f", {dark} of them at an unknown price" if dark else ""),
        )


def _format_match(seen: View, field: str) -> str:
    found = as_mapping(seen.spec().get("match")).get(field)
    if isinstance(found, list) and found:
        return escape_line(",".join(map(str, found)))
    return "all"


def kinds_cell(seen: View, _now_s: float) -> str:
    return _format_match(seen, "kinds")


def namespaces_cell(seen: View, _now_s: float) -> str:
    return _format_match(seen, "namespaces")


def rules_cell(seen: View, _now_s: float) -> str:
    """Returns `3 deny, 1 warn`."""
    rules = seen.spec().get("rules")
    each = [as_mapping(it).get("action", "Deny") for it in rules] if isinstance(rules, list) else []
    counts = ((each.count("Deny"), "deny"), (each.count("Warn"), "warn"))
    return ", ".join(f"{count} {word}" for count, word in counts if count) or "-"


def exempt_line(seen: View, now_s: float) -> str:
    """Returns `limits until 2026-12-31, because ...`; empty for an object without exemptions."""
    if not any(key.startswith(PREFIX) for key in seen.resource.annotations):
        return ""
    from fleetctl.specs.values.exempt import exemptions_of

    try:
        found = exemptions_of(seen.resource.annotations)
    except ValueError as error:
        return str(error)
    parts = []
    for name, it in found.items():
        ended = " (this has ended)" if it.over(now_s) else ""
        parts.append(f"policy/{name} {it.sentence}{ended}")
    return "; ".join(parts)


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


def _as_number(value: object) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    return None

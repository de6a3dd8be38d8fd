"""What `describe` tells of an object that does no work: its spec, a line a field, and what its kind
knows besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from fleetctl.cli.show.description.budget_lines import budget_lines
from fleetctl.cli.show.endpoint_lines import endpoint_lines
from fleetctl.cli.show.function_lines import function_lines
from fleetctl.common.text import assignments, duration, scalar, usd
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.views.lines.queues import queue_lines
from fleetctl.views.lines.schedules import schedule_lines
from fleetctl.views.lines.settings import settings_lines
from fleetctl.views.lines.sources import source_lines
from fleetctl.views.objects import View
from fleetctl.views.reading import Reading

# A stored spec leaves out what has its default; these are worth seeing all the same.
DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "Volume": {"provider": DEFAULT_PROVIDER, "deletionPolicy": "Retain"},
    "Function": {"provider": DEFAULT_PROVIDER, "minContainers": 0, "scaledownSeconds": 60},
    "Schedule": {
        "schedule": "",
        "timeZone": "UTC",
        "concurrencyPolicy": "Allow",
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    },
    "Queue": {"strategy": "BestEffortFIFO"},
    "Source": {"prune": False, "drift": "Repair", "onDisruption": "Wait"},
    "Budget": {"period": "month", "onExceeded": "Suspend"},
}
LABELS = {
    "apiKey": "Key",
    "backup": "",
    "deletionPolicy": "On delete",
    "fromEnv": "From env",
    "fromFile": "From file",
    "maxCost": "Max cost",
    "maxPrune": "Max prune",
    "onDisruption": "Disruption",
    "minContainers": "Kept warm",
    "onExceeded": "When over",
    "fairShare": "Fair share",
    "overtakeSeconds": "Overtaken for",
    "quotas": "",
    "scaledownSeconds": "Scaledown",
    "retention": "",
    "selector": "Selects",
    "servers": "",
    "concurrencyPolicy": "Concurrency",
    "failedJobsHistoryLimit": "Kept failed",
    "startingDeadlineSeconds": "May be late",
    "successfulJobsHistoryLimit": "Kept",
    "template": "",
    "timeZone": "Time zone",
    "timeoutSeconds": "Timeout",
    "warnAt": "Warn at",
}


def asset_lines(seen: View, reading: Reading, now_s: float) -> Iterator[tuple[str, str]]:
    """(label, text) of each line."""
    yield from _fields(seen)
    if seen.resource.kind == "Queue":
        yield from queue_lines(seen, reading)
    of_kind = _OF_KIND.get(seen.kind.name)
    if of_kind is not None:
        yield from of_kind(seen, now_s)


def _volume(seen: View, _now_s: float) -> Iterator[tuple[str, str]]:
    from fleetctl.cli.show.lists.volume_size import asked  # here: it may load a provider's SDK

    yield "Size", asked(seen)


def _provider(seen: View, _now_s: float) -> Iterator[tuple[str, str]]:
    slots, spend = seen.map("slots"), seen.map("spend")
    used, limit = slots.get("used"), slots.get("limit")
    if isinstance(used, int):
        most = f" of {limit}" if isinstance(limit, int) else ""
        yield "In use", f"{used}{most} sandboxes"
    rate, unpriced = spend.get("usdPerHour"), spend.get("unpriced")
    if isinstance(rate, (int, float)):
        dark = unpriced if isinstance(unpriced, int) else 0
        yield (
            "Spend",
            f"{usd(rate)}/h now" + (f", {dark} of them at an unknown price" if dark else ""),
        )


def _budget(seen: View, _now_s: float) -> Iterator[tuple[str, str]]:
    return budget_lines(seen)


_OF_KIND: Mapping[str, Callable[[View, float], Iterator[tuple[str, str]]]] = {
    "Budget": _budget,
    "Endpoint": endpoint_lines,
    "Function": function_lines,
    "Provider": _provider,
    "Schedule": schedule_lines,
    "Settings": settings_lines,
    "Source": source_lines,
    "Volume": _volume,
}


def _fields(seen: View) -> Iterator[tuple[str, str]]:
    """A Secret's has references, never values."""
    for key, value in {**DEFAULTS.get(seen.resource.kind, {}), **seen.spec()}.items():
        shown = _field(key, value)
        if shown and LABELS.get(key) != "":  # told with what is known of them
            yield LABELS.get(key, key[:1].upper() + key[1:]), shown


def _field(key: str, value: object) -> str:
    """A field of a spec in a line: `gpu.L4=0.8 cpu=0.02`, `$5.00`, `TOKEN from HF_TOKEN`."""
    if key in ("fromEnv", "fromFile") and isinstance(value, dict):
        return ", ".join(f"{name} from {source}" for name, source in value.items())
    if key in ("overtakeSeconds", "scaledownSeconds", "startingDeadlineSeconds") and isinstance(
        value, (int, float)
    ):
        return duration(value)
    if key == "maxCost" and isinstance(value, (int, float)):
        return usd(value)
    if isinstance(value, list):
        return ", ".join(_one(item) for item in value)
    return _one(value)


def _one(value: object) -> str:
    if isinstance(value, dict):
        return assignments(dict(_leaves(value)))
    return "" if value is None else scalar(value).strip('"')


def _leaves(value: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    """Of a block, by dotted names; whole numbers as people write them."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _leaves(inner, f"{above}{name}.")
        elif isinstance(inner, float) and inner.is_integer():
            yield above + name, int(inner)
        else:
            yield above + name, inner

"""The server's `/metrics` for Prometheus, by its official client. The names and labels are stable;
docs/reference/server-metrics.md has them all.

Read from the store at each scrape, and from the controller's own figures where one runs; a scrape
starts no controller and asks no provider.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError
from fleetctl.common.version import VERSION
from fleetctl.daemon.client.socket_client import NotRunning, send_request
from fleetctl.views.objects import as_mapping

if TYPE_CHECKING:
    from prometheus_client import Metric

    from fleetctl.views.objects import View
    from fleetctl.views.store_reading import StoreReading

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
FIGURES_WAIT_S = 2.0
BUCKETS_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ServerMetrics:
    """The metrics of one server."""

    def __init__(self, home: Path) -> None:
        self._home = home
        disable_created_metrics()  # series that nothing reads
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._http = Histogram(
            "fleetctl_http_request_duration_seconds",
            "Requests of this server, until their answer was complete or its stream began.",
            ("route", "method", "code"),
            buckets=BUCKETS_S,
            registry=self._registry,
        )
        self._controller = Histogram(
            "fleetctl_change_duration_seconds",
            "Changes, from the request to the controller until its reply: they are durable then.",
            ("verb",),
            buckets=BUCKETS_S,
            registry=self._registry,
        )
        self._streams = Gauge(
            "fleetctl_open_streams",
            "Watches and followed logs that are open.",
            registry=self._registry,
        )

    def time_request(self, verb: str) -> AbstractContextManager[object]:
        """Returns a context that measures a request to the controller."""
        return self._controller.labels(verb).time()

    def note_http(
        self,
        route: str,
        method: str,
        code: int,
        took_s: float,
    ) -> None:
        self._http.labels(route, method, str(code)).observe(took_s)

    def render(self, reading: StoreReading, streams: int) -> bytes:
        """Returns the text of all metrics."""
        self._streams.set(streams)
        figures = _ask_controller(self._home)
        registry = CollectorRegistry()
        registry.register(_StoredFigures(reading, figures))
        return generate_latest(registry) + generate_latest(self._registry)


def _ask_controller(home: Path) -> Mapping[str, object] | None:
    """Returns the controller's figures; None where none runs or replies."""
    try:
        reply = send_request(home, {"verb": "ping", "figures": True}, wait_s=FIGURES_WAIT_S)
    except (NotRunning, FleetctlError):
        return None
    return as_mapping(reply.get("figures"))


class _StoredFigures(Collector):
    """The metrics of one moment."""

    def __init__(self, reading: StoreReading, figures: Mapping[str, object] | None) -> None:
        self._reading = reading
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        now_s = SystemClock().now_s()
        views = self._reading.views()
        yield _make_gauge(
            "fleetctl_build_info", "1, with the version.", ("version",), {(VERSION,): 1}
        )
        yield _make_gauge(
            "fleetctl_controller_up",
            "1 where a controller runs and replies.",
            (),
            {(): float(self._figures is not None)},
        )
        yield from _count_objects(views)
        yield from _count_waiting(views, now_s)
        yield from self._count_runs(now_s)
        yield from _sum_money(views)
        yield from _list_controller(self._figures or {})

    def _count_runs(self, now_s: float) -> Iterator[Metric]:
        runs: Counter[tuple[str, ...]] = Counter()
        rate_usd: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for provider, state, many, usd_per_s in self._reading.runs_by_state():
            runs[provider, state] += many
            rate_usd[(provider,)] += (usd_per_s or 0.0) * 3600
        yield _make_gauge(
            "fleetctl_runs",
            "Runs of the stored objects, by provider and state.",
            ("provider", "state"),
            runs,
        )
        yield _make_gauge(
            "fleetctl_spend_usd_per_hour",
            "Cost of the live runs in USD per hour, as far as their prices are known.",
            ("provider",),
            rate_usd,
        )
        del now_s


def _count_objects(views: list[View]) -> Iterator[Metric]:
    found: Counter[tuple[str, ...]] = Counter()
    for seen in views:
        found[seen.resource.kind, seen.resource.namespace, seen.phase] += 1
    yield _make_gauge(
        "fleetctl_objects",
        "Stored objects, by kind, namespace and phase.",
        ("kind", "namespace", "phase"),
        found,
    )


def _count_waiting(views: list[View], now_s: float) -> Iterator[Metric]:
    """Yields how many units wait for their turn, and for how long the oldest object has waited."""
    depth: Counter[tuple[str, ...]] = Counter()
    age_s: dict[tuple[str, ...], float] = {}
    for seen in views:
        if not seen.kind.runs or seen.over or seen.resource.deleted_at_s is not None:
            continue
        waits = max(0, seen.count("total") - seen.settled - seen.count("active"))
        labels = (str(seen.map("queued").get("queue") or ""), seen.resource.namespace)
        depth[labels] += waits
        if waits and not seen.count("active"):
            age_s[labels] = max(age_s.get(labels, 0.0), now_s - seen.resource.created_at_s)
    yield _make_gauge(
        "fleetctl_queue_depth",
        "Tasks that wait for their turn; queue is empty for work in none.",
        ("queue", "namespace"),
        depth,
    )
    yield _make_gauge(
        "fleetctl_queue_oldest_seconds",
        "How long the oldest object of which nothing runs has been waiting.",
        ("queue", "namespace"),
        age_s,
    )


def _sum_money(views: list[View]) -> Iterator[Metric]:
    cost: defaultdict[tuple[str, ...], float] = defaultdict(float)
    left: dict[tuple[str, ...], float] = {}
    used: dict[tuple[str, ...], float] = {}
    for seen in views:
        spent = seen.map("cost").get("actual")
        if isinstance(spent, int | float):
            cost[seen.resource.kind, seen.resource.namespace] += spent
        if seen.resource.kind != "Budget":
            continue
        labels = (seen.resource.namespace, seen.resource.name)
        for name, into in (("left", left), ("used", used)):
            value = seen.status.get(name)
            if isinstance(value, int | float):
                into[labels] = value
    yield _make_gauge(
        "fleetctl_cost_usd",
        "USD that the stored objects have cost, by kind and namespace.",
        ("kind", "namespace"),
        cost,
    )
    yield _make_gauge(
        "fleetctl_budget_left_usd",
        "USD of a Budget that are neither used nor reserved.",
        ("namespace", "budget"),
        left,
    )
    yield _make_gauge(
        "fleetctl_budget_used_usd",
        "USD of a Budget that are used.",
        ("namespace", "budget"),
        used,
    )


def _list_controller(figures: Mapping[str, object]) -> Iterator[Metric]:
    """Yields what only the controller knows; it counts from its own start."""
    names = {
        "ticks": ("fleetctl_ticks_total", "Turns of the controller's loop that had work."),
        "tickSeconds": (
            "fleetctl_tick_seconds_total",
            "Seconds that these took, their commits included.",
        ),
        "tickFailures": ("fleetctl_tick_failures_total", "Turns that were undone."),
        "commitSeconds": (
            "fleetctl_commit_seconds_total",
            "Seconds until the turns' transactions were durable.",
        ),
    }
    for key, (name, words) in names.items():
        value = figures.get(key)
        if isinstance(value, int | float):
            yield _make_counter(name, words, (), {(): float(value)})
    due = figures.get("due")
    if isinstance(due, int):
        yield _make_gauge(
            "fleetctl_due_objects", "Objects that the loop will look at.", (), {(): due}
        )
    calls = as_mapping(figures.get("calls"))
    orphans = as_mapping(figures.get("orphans"))
    # With a zero for each provider: Prometheus sees no increase in a series that begins with 1.
    yield _make_counter(
        "fleetctl_orphans_ended_total",
        "Sandboxes of this fleet without a record, which the sweep found and ended.",
        ("provider",),
        {(provider,): _as_float(orphans.get(provider)) for provider in calls},
    )
    for key, name, words in (
        ("calls", "fleetctl_provider_calls_total", "Calls of a provider's API."),
        ("seconds", "fleetctl_provider_call_seconds_total", "Seconds that these calls took."),
        (
            "limited",
            "fleetctl_provider_rate_limited_total",
            "Those of them that were answered 429.",
        ),
        ("failed", "fleetctl_provider_unavailable_total", "Those of them that it could not serve."),
    ):
        values: dict[tuple[str, ...], float] = {
            (provider,): _as_float(as_mapping(it).get(key)) for provider, it in calls.items()
        }
        yield _make_counter(name, words, ("provider",), values)


def _as_float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _make_gauge(
    name: str,
    words: str,
    labels: tuple[str, ...],
    values: Mapping[tuple[str, ...], float],
) -> GaugeMetricFamily:
    made = GaugeMetricFamily(name, words, labels=labels)
    for key in sorted(values):
        made.add_metric(key, values[key])
    return made


def _make_counter(
    name: str,
    words: str,
    labels: tuple[str, ...],
    values: Mapping[tuple[str, ...], float],
) -> CounterMetricFamily:
    made = CounterMetricFamily(name, words, labels=labels)
    for key in sorted(values):
        made.add_metric(key, values[key])
    return made

"""Serves the port of probes: `/healthz`, `/readyz`, and the `/metrics` of this operator in the text
form of Prometheus.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.specs.kinds.registry import KINDS
from fleetctl.views.objects import as_mapping, parse_document

if TYPE_CHECKING:
    from fleetctl.engine.shared.engine_state import EngineState
    from fleetctl.operator.mirror.resource_mirror import ResourceMirror


Labels = Mapping[str, str]
Sample = tuple[Labels, float]
_STARTED_AT_S = time.time()
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

ASK_S = 5.0
HEAD_BYTES_MAX = 8192
_OF_PAGES = (b"origin:", b"sec-fetch-")  # headers that browsers send, and no kubelet
TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
_WORDS = {200: "OK", 403: "Forbidden", 404: "Not Found", 503: "Service Unavailable"}


class RequestCounter:
    """Counts requests to the API server by their method."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, method: str, path: str) -> None:
        del path  # one series for each object would be thousands
        self.counts[method] += 1


def metrics_text(
    requests: RequestCounter,
    *,
    leads: bool,
    state: EngineState | None,
    mirror: ResourceMirror | None,
) -> str:
    """Returns the text of the metrics. state, mirror: None for a replica that does not lead."""
    parts = [
        *_format_metric(
            "fleetctl_leader", "gauge", "1 of the replica that works.", [({}, float(leads))]
        ),
        *_format_metric(
            "fleetctl_api_requests_total",
            "counter",
            "RequestCounter to the API server.",
            [({"method": it}, float(count)) for it, count in sorted(requests.counts.items())],
        ),
        *_process_metrics(),
    ]
    if state is not None:
        parts += _of_objects(state)
    if mirror is not None:
        parts += _of_mirror(mirror)
    return "\n".join(parts) + "\n"


def _of_objects(state: EngineState) -> Iterator[str]:
    phases: Counter[tuple[str, str]] = Counter()
    cost_usd: dict[str, float] = {}
    for row in state.store.resources.list():
        status = parse_document(row.status)
        phase = "Deleting" if row.deleted_at_s is not None else status.get("phase") or "Pending"
        phases[row.kind, str(phase)] += 1
        actual = as_mapping(status.get("cost")).get("actual")
        if isinstance(actual, int | float):
            cost_usd[row.kind] = cost_usd.get(row.kind, 0.0) + actual
    yield from _format_metric(
        "fleetctl_objects",
        "gauge",
        "Stored objects by kind and phase.",
        [({"kind": it[0], "phase": it[1]}, float(n)) for it, n in sorted(phases.items())],
    )
    yield from _format_metric(
        "fleetctl_cost_usd",
        "gauge",
        "USD that the stored objects have cost, by kind.",
        [({"kind": it}, float(usd)) for it, usd in sorted(cost_usd.items())],
    )
    runs = float(len(state.owner_of))
    yield from _format_metric(
        "fleetctl_runs_live", "gauge", "Live runs at all providers.", [({}, runs)]
    )


def _of_mirror(mirror: ResourceMirror) -> Iterator[str]:
    problems = mirror.kinds.problems()
    yield from _format_metric(
        "fleetctl_kind_served",
        "gauge",
        "1 of a kind whose definition is there and no older than this operator.",
        [
            ({"kind": it.plural}, float(it.plural not in problems))
            for it in sorted(KINDS.values(), key=lambda one: one.plural)
        ],
    )
    yield from _format_metric(
        "fleetctl_mirror_keys",
        "gauge",
        "Custom resources that wait for a look, are looked at, or failed at the last look.",
        [({"state": name}, value) for name, value in mirror.figures().items()],
    )


def _process_metrics() -> Iterator[str]:
    used = os.times()
    yield from _format_metric(
        "process_cpu_seconds_total", "counter", "CPU.", [({}, used.user + used.system)]
    )
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = float(int(file.read().split()[1]) * _PAGE_BYTES)
    yield from _format_metric("process_resident_memory_bytes", "gauge", "Memory.", [({}, resident)])
    yield from _format_metric(
        "process_start_time_seconds", "gauge", "Since the epoch.", [({}, _STARTED_AT_S)]
    )


def _format_metric(
    name: str,
    sort: str,
    words: str,
    samples: list[Sample],
) -> Iterator[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {sort}"
    for labels, value in samples:
        named = ",".join(f'{key}="{_escape_label(text)}"' for key, text in labels.items())
        yield f"{name}{{{named}}} {value:.10g}" if named else f"{name} {value:.10g}"


def _escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class ProbePage(NamedTuple):
    code: int
    text: str
    sort: str = TEXT


ProbePages = Mapping[str, Callable[[], ProbePage]]


def ready_page(problems: Mapping[str, str]) -> ProbePage:
    """Returns the page of /readyz. problems: by plural, why a kind is not looked at."""
    if not problems:
        return ProbePage(200, "ok")
    lines = [f"{plural}: {why}\n" for plural, why in sorted(problems.items())]
    return ProbePage(503, f"not ready: {len(lines)} of the kinds\n{''.join(lines)}")


async def answer_probes(port: int, pages: ProbePages) -> asyncio.Server:
    """Serves probes on all addresses, as the kubelet connects from outside the pod. pages: by path,
    each made for its request.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                head = await reader.readuntil(b"\r\n")
                by_page = False
                while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
                    by_page = by_page or line.lower().startswith(_OF_PAGES)
            path = head.split(b" ")[1].partition(b"?")[0] if head.count(b" ") == 2 else b""
            make = pages.get(path.decode("ascii", "replace"))
            page = make() if make is not None else ProbePage(404, "not found")
            page = ProbePage(403, "not for pages") if by_page else page
            body = page.text.encode()
            lines = (
                f"HTTP/1.1 {page.code} {_WORDS[page.code]}",
                f"Content-Type: {page.sort}",
                f"Content-Length: {len(body)}",
                "Connection: close",
            )
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            await writer.drain()
        except (
            TimeoutError,
            ConnectionError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            pass  # the client is gone, or sent no request
        finally:
            writer.close()

    return await asyncio.start_server(answer, port=port, limit=HEAD_BYTES_MAX)

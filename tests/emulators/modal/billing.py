"""What the account pays: the workspace's name, its rates, and a report of what ran.

The keys and figures of the rates are those of a real account in September 2026, per hour.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from typing import Any

from google.protobuf.empty_pb2 import Empty
from modal_proto import api_pb2

from .function_fleet import fleet_of
from .gpus import parse

WORKSPACE = "emulated"  # an older field of the protocol; the SDK reads the other one
HOUR_S = 3600
SMALLEST_USD = Decimal("1e-12")
# What is requested when nobody says; the least that is charged.
DEFAULT_CORES, DEFAULT_GIB = Decimal("0.125"), Decimal("0.125")

RATES = {
    "cpu_hour_cost": "0.04730",
    "cpu_hour_cost_sandbox": "0.141900",
    "mem_gib_hour_cost": "0.00800",
    "mem_gib_hour_cost_sandbox": "0.024000",
    "gpu_hour_cost_t4": "0.59",
    "gpu_hour_cost_l4": "0.80",
    "gpu_hour_cost_a10g": "1.10",
    "gpu_hour_cost_l40s": "1.95",
    "gpu_hour_cost_a100_40gb": "2.10",
    "gpu_hour_cost_a100_80gb": "2.50",
    "gpu_hour_cost_rtx6000": "3.03",
    "gpu_hour_cost_h100": "3.95",
    "gpu_hour_cost_h200": "4.54",
    "gpu_hour_cost_b200": "6.25",
    "gpu_hour_cost_b300": "7.10",
}
_GPU_KEYS = {"A10": "a10g", "RTX-PRO-6000": "rtx6000"}


def hour_usd(resources: api_pb2.Resources, gpu: str, *, sandbox: bool) -> dict[str, Decimal]:
    """By resource. `gpu` is a label such as `A100:4`, or empty."""
    suffix = "_sandbox" if sandbox else ""
    cores = max(Decimal(resources.milli_cpu) / 1000, DEFAULT_CORES)
    gib = max(Decimal(resources.memory_mb) / 1024, DEFAULT_GIB)
    costs = {
        "CPU": cores * Decimal(RATES["cpu_hour_cost" + suffix]),
        "Memory": gib * Decimal(RATES["mem_gib_hour_cost" + suffix]),
    }
    if gpu:
        kind, count = parse(gpu)
        key = _GPU_KEYS.get(kind, kind.lower().replace("-", "_"))
        costs["GPU"] = count * Decimal(RATES["gpu_hour_cost_" + key])
    return costs


class Billing:
    """Needs self.world (state.World)."""

    world: Any

    async def WorkspaceNameLookup(self, _: Empty) -> api_pb2.WorkspaceNameLookupResponse:
        username = self.world.settings.workspace
        return api_pb2.WorkspaceNameLookupResponse(workspace_name=WORKSPACE, username=username)

    async def WorkspaceBillingRates(
        self, _: api_pb2.WorkspaceBillingRatesRequest
    ) -> api_pb2.WorkspaceBillingRatesResponse:
        formatted = "\n".join(f"{key:28} ${value}" for key, value in RATES.items())
        return api_pb2.WorkspaceBillingRatesResponse(rates=RATES, formatted=formatted)

    async def WorkspaceBillingReport(
        self, request: api_pb2.WorkspaceBillingReportRequest
    ) -> AsyncIterator[api_pb2.WorkspaceBillingReportItem]:
        """One row an app with all that it ever cost, in the interval in which the request begins.
        Sandboxes and function containers are charged while they run, for what they request."""
        costs: dict[str, dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
        for app_id, rates, seconds in [*self._of_sandboxes(), *self._of_functions()]:
            for name, rate in rates.items():
                costs[app_id][name] += rate * Decimal(seconds) / HOUR_S
        for app_id, exact in costs.items():
            by_resource = {name: cost.quantize(SMALLEST_USD) for name, cost in exact.items()}
            app = self.world.app(app_id)
            wanted = None if "*" in request.tag_names else set(request.tag_names)
            yield api_pb2.WorkspaceBillingReportItem(
                object_id=app_id,
                description=app.name,
                environment_name=app.environment,
                interval=request.start_timestamp,
                cost=str(sum(by_resource.values())),
                tags={k: v for k, v in app.tags.items() if wanted is None or k in wanted},
                cost_by_resource={name: str(cost) for name, cost in by_resource.items()},
            )

    def _of_sandboxes(self) -> Iterator[tuple[str, dict[str, Decimal], float]]:
        """App, dollars an hour by resource, and seconds."""
        for sandbox in self.world.sandboxes.by_id.values():
            if sandbox.started_at_s:
                seconds = (sandbox.finished_at_s or time.time()) - sandbox.started_at_s
                resources = sandbox.definition.resources
                yield sandbox.app_id, hour_usd(resources, sandbox.gpu, sandbox=True), seconds

    def _of_functions(self) -> Iterator[tuple[str, dict[str, Decimal], float]]:
        for pool, container in fleet_of(self.world).containers():
            if container.started_at:
                seconds = (container.ended_at or time.time()) - container.started_at
                rates = hour_usd(pool.function.definition.resources, container.gpu, sandbox=False)
                yield pool.function.app_id, rates, seconds

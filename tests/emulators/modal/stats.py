"""What a sandbox used and cost: SandboxGetStats. Charged is what it asked for, while it had it."""

from __future__ import annotations

import time
from decimal import Decimal

from modal_proto import api_pb2

from .billing import DEFAULT_CORES, DEFAULT_GIB, HOUR_S, hour_usd
from .sandboxes import Sandbox
from .state import World


class Stats:
    world: World

    async def SandboxGetStats(
        self, request: api_pb2.SandboxGetStatsRequest
    ) -> api_pb2.SandboxGetStatsResponse:
        """Of the time between `since` and `until`, as far as the sandbox ran in it."""
        sandbox = self.world.sandboxes.get(request.sandbox_id)
        seconds = _seconds(sandbox, request)
        resources = sandbox.definition.resources
        hours = Decimal(seconds) / HOUR_S
        rates = hour_usd(resources, sandbox.gpu, sandbox=True)
        costs = {name: rate * hours for name, rate in rates.items()}
        return api_pb2.SandboxGetStatsResponse(
            cost=str(sum(costs.values())),
            cost_by_resource={name: str(cost) for name, cost in costs.items()},
            duration_hours=seconds / HOUR_S,
            billed_cpu_core_seconds=max(resources.milli_cpu / 1000, float(DEFAULT_CORES)) * seconds,
            billed_memory_gib_seconds=max(resources.memory_mb / 1024, float(DEFAULT_GIB)) * seconds,
        )


def _seconds(sandbox: Sandbox, request: api_pb2.SandboxGetStatsRequest) -> float:
    if not sandbox.started_at_s:
        return 0.0
    begin, end = sandbox.started_at_s, sandbox.finished_at_s or time.time()
    if request.HasField("since"):
        begin = max(begin, request.since.ToNanoseconds() / 1e9)
    if request.HasField("until"):
        end = min(end, request.until.ToNanoseconds() / 1e9)
    return max(end - begin, 0.0)

"""Containers that take an input together: those of a clustered function, which are scheduled all or
none, meet before their first input, and of which the first alone answers. Of any other function
each container is a cluster of one.

Made by function_pool.py; the RPCs through which containers meet are here, too.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any

from grpclib import GRPCError, Status
from modal_proto import api_pb2

from .gpus import COUNT_MAX, COUNT_MAX_ELSE, TYPES
from .ids import base62_id

if TYPE_CHECKING:
    from .function_container import Container

SIZE_MAX, GPUS_MAX = 32, 256


class Cluster:
    """members: by rank. Their addresses are of the loopback, on which all boxes are."""

    def __init__(self) -> None:
        self.cluster_id = base62_id("cu")
        self.members: list[Container] = []
        self.survives = False  # the loss of a container that does not answer
        self._network = f"127.{1 + secrets.randbelow(254)}.{secrets.randbelow(256)}"
        self._told: dict[int, str] = {}  # rank -> the address that its container told
        self._met = asyncio.Event()

    @property
    def idle(self) -> bool:
        return all(one.state == "idle" and not one.draining for one in self.members)

    def idle_s(self) -> float:
        """For how long all of it has been."""
        return min(time.time() - one.idle_since for one in self.members)

    def address(self, rank: int) -> str:
        """An IPv6 one, which leads to the IPv4 one."""
        return f"::ffff:{self._network}.{2 + rank}"

    async def hello(self, rank: int, address: str) -> api_pb2.TaskClusterHelloResponse:
        """Answers when all have said it."""
        self._told[rank] = address
        if len(self._told) == len(self.members):
            self._met.set()
        await self._met.wait()
        addresses = [self._told[rank] for rank in range(len(self.members))]
        return api_pb2.TaskClusterHelloResponse(
            cluster_id=self.cluster_id,
            cluster_rank=rank,
            container_ips=addresses,
            container_ipv4_ips=[one.removeprefix("::ffff:") for one in addresses],
        )

    async def kill(self, reason: str) -> None:
        await asyncio.gather(*(one.kill(reason) for one in self.members if one.state != "ended"))


class Clusters:
    """Needs self.world (state.World)."""

    world: Any

    async def TaskClusterHello(
        self, request: api_pb2.TaskClusterHelloRequest
    ) -> api_pb2.TaskClusterHelloResponse:
        for _, container in self.world.functions.containers():
            if container.task_id == request.task_id:
                cluster: Cluster = container.cluster
                return await cluster.hello(container.rank, request.container_ip)
        raise GRPCError(Status.NOT_FOUND, f"Task '{request.task_id}' not found")

    async def ClusterGet(self, request: api_pb2.ClusterGetRequest) -> api_pb2.ClusterGetResponse:
        for _, container in self.world.functions.containers():
            if container.cluster.cluster_id == request.cluster_id:
                members = container.cluster.members
                stats = api_pb2.ClusterStats(
                    cluster_id=request.cluster_id, task_ids=[one.task_id for one in members]
                )
                return api_pb2.ClusterGetResponse(cluster=stats)
        raise GRPCError(Status.NOT_FOUND, f"Cluster '{request.cluster_id}' not found")


def check(definition: api_pb2.Function) -> None:
    """Raises INVALID_ARGUMENT for a cluster that the service does not make, in guessed words."""
    size, gpu = definition._experimental_group_size, definition.resources.gpu_config
    if size <= 1:
        return
    kind = TYPES.get(gpu.gpu_type.upper(), "")
    whole = COUNT_MAX.get(kind, COUNT_MAX_ELSE)
    settings = definition.autoscaler_settings
    counts = (settings.min_containers, settings.max_containers, settings.buffer_containers)
    if not gpu.count:
        problem = "CPU-only clusters are not supported"
    elif gpu.count != whole:
        problem = f"Clustered functions must request all {whole} GPUs of a host, not {gpu.count}"
    elif size > SIZE_MAX or size * gpu.count > GPUS_MAX:
        problem = f"A cluster has at most {SIZE_MAX} containers and {GPUS_MAX} GPUs"
    elif any(one % size for one in counts):
        problem = f"Numbers of containers must be multiples of the cluster size ({size})"
    elif definition.batch_max_size or definition.HasField("webhook_config"):
        problem = "Clustered functions support neither batching nor web endpoints"
    else:
        return
    raise GRPCError(Status.INVALID_ARGUMENT, problem)

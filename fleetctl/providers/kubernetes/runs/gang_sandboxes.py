"""The Jobs of our store with several nodes: every node is followed as if it were a run of its own,
and the end of node 0 is reported as the end of the run, once all are over.

Made by kubernetes_provider.py instead of job_sandboxes.py; runs with a single pod are passed
on to that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property

from fleetctl.common.errors import Unavailable
from fleetctl.guest.nodes.gang import build_group_variables, node_name, strip_node
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.kubernetes.manifests import gang_manifests
from fleetctl.providers.kubernetes.manifests.jobs import GRACE_SLACK_S, RAY_MARK
from fleetctl.providers.kubernetes.manifests.labels import tags_of
from fleetctl.providers.kubernetes.runs import pod_statuses
from fleetctl.providers.kubernetes.runs.job_informers import JobInformers
from fleetctl.providers.kubernetes.runs.job_sandboxes import JobSandboxes
from fleetctl.providers.kubernetes.runs.pod_statuses import JobHandle, parse_handle
from fleetctl.providers.remote.gangs.gang_nodes import Meeting
from fleetctl.providers.remote.gangs.node_gang import NodeGang
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, Fate, RunWork, StreamOffsets

JOINED_AGAIN_S = 1.0
GRACE_S = 30.0  # for a Job that is not there any more to name its own
Follow = Callable[[str, str], Awaitable[None]]


class GangSandboxes(JobSandboxes):
    """gangs: those that are looked after, by Job."""

    @cached_property
    def gangs(self) -> dict[str, NodeGang]:
        return {}

    async def join(
        self,
        run: str,
        handle: str,
        *,
        journal: Callable[[int], bytes],
        follow: Follow,
    ) -> None:
        one = parse_handle(handle)
        if one.job in self.gangs or self.ends.by_us(handle):
            return
        cluster = await self.cluster_of(handle)
        if one.job in self.gangs:
            return
        job = cluster.job(one.job) or {}
        self.gangs[one.job] = NodeGang(
            handle,
            [_node_address(cluster, one.job, rank) for rank in range(one.nodes)],
            grace_s=_grace_s(job),
            at_once=RAY_MARK in tags_of(job),
            journal=journal,
            ask_stop=lambda rank, grace_s: self._stop_node(one, rank, run, grace_s),
        )
        for rank, node in await self.others(handle):
            await follow(node_name(run, rank), node)

    def nodes_in(self, handle: str) -> int:
        return parse_handle(handle).nodes

    def gang(self, handle: str) -> NodeGang | None:
        return self.gangs.get(parse_handle(handle).job)

    async def others(self, handle: str) -> list[tuple[int, str]]:
        one = parse_handle(handle)
        cluster = await self.cluster(one.namespace)
        pods = [_pod_of(cluster, one.job, rank) or {} for rank in range(one.nodes)]
        made = [
            JobHandle(one.job, pod_statuses.name_of(pod), node=rank, namespace=one.namespace)
            for rank, pod in enumerate(pods)
        ]
        return [(it.node, str(it)) for it in made[1:]]

    async def meeting(self, handle: str) -> Meeting:
        job = parse_handle(handle).job
        namespace = (await self.cluster_of(handle)).link.namespace
        return Meeting(gang_manifests.host_name(job, namespace, 0), gang_manifests.PORT)

    async def acquaint(self, request: RunRequest) -> RunRequest:
        """Returns the request with the addresses of all groups of its run, for node 0; the others
        have their own rank and host, see gang_nodes.py.
        """
        if request.groups is None:
            return request
        cluster = await self.cluster_of(request.handle)
        groups = gang_manifests.build_groups(request, cluster.link.namespace)
        groups[0]["hosts"][0] = _node_address(cluster, parse_handle(request.handle).job, 0)
        told = build_group_variables(groups[0], 0, groups)
        return replace(request, variables={**request.variables, **told})

    # -- the Sandboxes protocol --------------------------------------------------------------------

    async def stream(
        self,
        handle: str,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> AsyncGenerator[bytes, None]:
        one = parse_handle(handle)
        if one.nodes > 1:
            frames = self._stream_all(handle, run, work, at)
        else:  # in its pod a node goes by the name of the run
            frames = super().stream(handle, strip_node(run), work, at)
        async with aclosing(frames):
            async for data in frames:
                yield data

    async def fate(self, handle: str) -> Fate | None:
        one = parse_handle(handle)
        gang = self.gangs.get(one.job)
        if one.node:
            return await self._fate_of_node(one, gang)
        if gang is None:
            return await super().fate(handle)
        fate = await self.look(handle)
        if fate is None or fate.cause is Cause.STOPPED:
            return fate
        if fate.cause is Cause.UNKNOWN and not gang.failed:
            return fate
        await gang.settled(0, fate)
        return None  # the next stream reports the end of all

    async def end(self, handle: str) -> None:
        one = parse_handle(handle)
        if one.node:  # its pod goes with the Job
            if (gang := self.gangs.get(one.job)) is not None:
                await gang.settled(one.node)
            return
        await super().end(handle)
        if (gang := self.gangs.pop(one.job, None)) is not None:
            await gang.close()

    async def ask_stop(
        self,
        handle: str,
        run: str,
        grace_s: float,
    ) -> None:
        one = parse_handle(handle)
        if one.nodes == 1:
            await super().ask_stop(handle, run, grace_s)
            return
        if (gang := self.gangs.get(one.job)) is not None:
            gang.stop_asked(time.time())
        each = (self._stop_node(one, rank, run, grace_s) for rank in range(one.nodes))
        await asyncio.gather(*each)

    async def age_s(self, handle: str) -> float:
        """Returns the age of its oldest pod: the first pod ends first, and the others end with
        it.
        """
        one = parse_handle(handle)
        if one.nodes == 1:
            return await super().age_s(handle)
        pods = (await self.cluster_of(handle)).pods_of(one.job)
        began = [at_s for pod in pods if (at_s := pod_statuses.began_at_s(pod)) is not None]
        if began:
            return max(0.0, time.time() - min(began))
        return 0.0

    async def close(self) -> None:
        for gang in self.gangs.values():
            await gang.close()
        await super().close()

    # -- helpers -----------------------------------------------------------------------------------

    async def _stream_all(
        self,
        handle: str,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> AsyncGenerator[bytes, None]:
        """Yields the frames of node 0; its end follows with the ends of all."""
        gang = self.gangs.get(parse_handle(handle).job)
        if gang is None:
            raise Unavailable("its nodes are not looked after yet", retry_after_s=JOINED_AGAIN_S)
        frames = super().stream(handle, run, work, at)
        async with aclosing(gang.stream_all(frames, heard=at.journal > 0)) as story:
            async for data in story:
                yield data

    async def _fate_of_node(self, one: JobHandle, gang: NodeGang | None) -> Fate | None:
        """Returns a node's fate. Without a gang the Job was ended. The Job reports the fate of a
        pod that was never seen.
        """
        if gang is None:
            return Fate(Cause.STOPPED)
        if one.pod:
            fate = await self.look(str(one))
        else:
            cluster = await self.cluster(one.namespace)
            job = await self._look(cluster.link, "jobs", one.job)
            condition = None if job is None else pod_statuses.failed_condition(job)
            fate = None if condition is None else pod_statuses.fate_of_job(condition)
        if fate is None or fate.cause is Cause.UNKNOWN:
            return None  # the Job reports it soon, or is ended
        await gang.settled(one.node, fate)
        return fate

    async def _pod(self, cluster: JobInformers, handle: str) -> tuple[str, Object | None]:
        one = parse_handle(handle)
        if one.node and not one.pod:
            return one.job, _pod_of(cluster, one.job, one.node)
        return await super()._pod(cluster, handle)

    async def _stop_node(
        self,
        one: JobHandle,
        rank: int,
        run: str,
        grace_s: float,
    ) -> None:
        pod = _pod_of(await self.cluster(one.namespace), one.job, rank)
        if pod is not None:
            there = JobHandle(one.job, pod_statuses.name_of(pod), namespace=one.namespace)
            await super().ask_stop(str(there), run, grace_s)


def _pod_of(
    cluster: JobInformers,
    job: str,
    rank: int,
) -> Object | None:
    return next((pod for pod in cluster.pods_of(job) if pod_statuses.node_of(pod) == rank), None)


def _node_address(
    cluster: JobInformers,
    job: str,
    rank: int,
) -> str:
    """Returns a node's address for its peers; by name, once its pod is gone."""
    told = ((_pod_of(cluster, job, rank) or {}).get("status") or {}).get("podIP")
    return str(told or gang_manifests.host_name(job, cluster.link.namespace, rank))


def _grace_s(job: Object) -> float:
    """Returns the pods' grace in seconds, without the part that is ours."""
    pod = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    given = pod.get("terminationGracePeriodSeconds")
    if given is None:
        return GRACE_S
    return max(0.0, float(given) - GRACE_SLACK_S)

"""The Jobs of our store, those of several nodes among them: every node is followed as if it were a
run of its own, and the end of node 0 is told as that of all, once all are over.

Made by provider.py in place of runs/sandboxes.py; what has one pod goes on to that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import cached_property

from fleetctl.common.errors import Unavailable
from fleetctl.guest.nodes.names import node_name, whole_name
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.gangs.conclusion import ENDED, EOF, RESULT
from fleetctl.providers.kubernetes.gangs.gang import Gang
from fleetctl.providers.kubernetes.manifests import gangs
from fleetctl.providers.kubernetes.manifests.jobs import GRACE_SLACK_S, RAY_MARK
from fleetctl.providers.kubernetes.manifests.labels import tags_of
from fleetctl.providers.kubernetes.runs import statuses
from fleetctl.providers.kubernetes.runs.cluster import Cluster
from fleetctl.providers.kubernetes.runs.handles import Handle, parsed
from fleetctl.providers.kubernetes.runs.sandboxes import JobSandboxes
from fleetctl.providers.remote.sandboxes.base import At, Work
from fleetctl.providers.remote.sandboxes.fates import Cause, Fate

JOINED_AGAIN_S = 1.0
GRACE_S = 30.0  # of a Job that is not there any more to say its own
Follow = Callable[[str, str], Awaitable[None]]


class GangSandboxes(JobSandboxes):
    """gangs: those that are looked after, by Job."""

    @cached_property
    def gangs(self) -> dict[str, Gang]:
        return {}

    async def join(
        self, run: str, handle: str, *, journal: Callable[[int], bytes], follow: Follow
    ) -> None:
        """Look after the nodes of a run from now on, unless its Job was ended here. journal: what a
        node has told; follow: (its name, its handle) begins to follow it.
        """
        one = parsed(handle)
        if one.job in self.gangs or self.ends.by_us(handle):
            return
        cluster = await self.cluster()
        if one.job in self.gangs:
            return
        job = cluster.job(one.job) or {}
        self.gangs[one.job] = Gang(
            handle,
            [_address(cluster, one.job, rank) for rank in range(one.nodes)],
            grace_s=_grace_s(job),
            at_once=RAY_MARK in tags_of(job),
            journal=journal,
            ask_stop=lambda rank, grace_s: self._stop_node(one.job, rank, run, grace_s),
        )
        for node in await self.others(one):
            await follow(node_name(run, node.node), str(node))

    async def others(self, one: Handle) -> list[Handle]:
        """The nodes beside the first, as they are followed."""
        cluster = await self.cluster()
        pods = [_pod_of(cluster, one.job, rank) or {} for rank in range(one.nodes)]
        return [
            Handle(one.job, statuses.name_of(pod), node=rank)
            for rank, pod in enumerate(pods)
            if rank
        ]

    async def namespace(self) -> str:
        return (await self.cluster()).link.namespace

    # -- what the shared part asks -----------------------------------------------------------------

    async def stream(
        self, handle: str, run: str, work: Work | None, at: At
    ) -> AsyncGenerator[bytes, None]:
        one = parsed(handle)
        if one.nodes > 1:
            frames = self._story_of_all(handle, run, work, at)
        else:  # in its pod a node goes by the name of the run
            frames = super().stream(handle, whole_name(run), work, at)
        async with aclosing(frames):
            async for data in frames:
                yield data

    async def fate(self, handle: str) -> Fate | None:
        one = parsed(handle)
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
        return None  # the next stream tells the end of all

    async def end(self, handle: str) -> None:
        one = parsed(handle)
        if one.node:  # its pod goes with the Job
            if (gang := self.gangs.get(one.job)) is not None:
                await gang.settled(one.node)
            return
        await super().end(handle)
        if (gang := self.gangs.pop(one.job, None)) is not None:
            await gang.close()

    async def ask_stop(self, handle: str, run: str, grace_s: float) -> None:
        one = parsed(handle)
        if one.nodes == 1:
            await super().ask_stop(handle, run, grace_s)
            return
        if (gang := self.gangs.get(one.job)) is not None:
            gang.stop_asked(time.time())
        each = (self._stop_node(one.job, rank, run, grace_s) for rank in range(one.nodes))
        await asyncio.gather(*each)

    async def age_s(self, handle: str) -> float:
        """Of its oldest pod: who came first ends first, and the others end with it."""
        one = parsed(handle)
        if one.nodes == 1:
            return await super().age_s(handle)
        pods = (await self.cluster()).pods_of(one.job)
        began = [at_s for pod in pods if (at_s := statuses.began_at_s(pod)) is not None]
        return max(0.0, time.time() - min(began)) if began else 0.0

    async def close(self) -> None:
        for gang in self.gangs.values():
            await gang.close()
        await super().close()

    # -- helpers -----------------------------------------------------------------------------------

    async def _story_of_all(
        self, handle: str, run: str, work: Work | None, at: At
    ) -> AsyncGenerator[bytes, None]:
        """Of node 0, but for its end: that is told with the ends of all."""
        gang = self.gangs.get(parsed(handle).job)
        if gang is None:
            raise Unavailable("its nodes are not looked after yet", retry_after_s=JOINED_AGAIN_S)
        heard, tail = at.journal > 0, b""
        last: dict[bytes, bytes] = {}
        if gang.ends[0] is None:
            async with aclosing(super().stream(handle, run, work, at)) as frames:
                async for data in frames:
                    *lines, tail = (tail + data).split(b"\n")
                    if passed := b"".join(_kept_back(lines, last)):
                        heard = True
                        yield passed
                    if EOF in last:
                        await gang.first_ended(last.get(ENDED, b""), last.get(RESULT, b""))
                        break
        if gang.ends[0] is not None:
            async for data in gang.story(from_start=not heard):
                yield data

    async def _fate_of_node(self, one: Handle, gang: Gang | None) -> Fate | None:
        """Without a gang the Job was ended. Of a pod that nobody has seen the Job tells."""
        if gang is None:
            return Fate(Cause.STOPPED)
        if one.pod:
            fate = await self.look(str(one))
        else:
            cluster = await self.cluster()
            job = await self._look(cluster.link, "jobs", one.job)
            condition = None if job is None else statuses.failed_condition(job)
            fate = None if condition is None else statuses.fate_of_job(condition)
        if fate is None or fate.cause is Cause.UNKNOWN:
            return None  # the Job says so soon, or is ended
        await gang.settled(one.node, fate)
        return fate

    async def _pod(self, cluster: Cluster, handle: str) -> tuple[str, Object | None]:
        one = parsed(handle)
        if one.node and not one.pod:
            return one.job, _pod_of(cluster, one.job, one.node)
        return await super()._pod(cluster, handle)

    async def _stop_node(self, job: str, rank: int, run: str, grace_s: float) -> None:
        pod = _pod_of(await self.cluster(), job, rank)
        if pod is not None:
            await super().ask_stop(str(Handle(job, statuses.name_of(pod))), run, grace_s)


def _kept_back(lines: list[bytes], last: dict[bytes, bytes]) -> list[bytes]:
    """The lines to hand on; what tells the end is put into `last`, by what it is."""
    passed = []
    for line in lines:
        whole = line + b"\n"
        sort = next((it for it in (RESULT, ENDED, EOF) if whole.startswith(it)), None)
        if sort is None:
            passed.append(whole)
        else:
            last[sort] = whole
    return passed


def _pod_of(cluster: Cluster, job: str, rank: int) -> Object | None:
    return next((pod for pod in cluster.pods_of(job) if statuses.node_of(pod) == rank), None)


def _address(cluster: Cluster, job: str, rank: int) -> str:
    """As its peers reach it; by name, once its pod is gone."""
    told = ((_pod_of(cluster, job, rank) or {}).get("status") or {}).get("podIP")
    return str(told or gangs.host(job, cluster.link.namespace, rank))


def _grace_s(job: Object) -> float:
    """What its pods were given, without what is ours of it."""
    pod = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    given = pod.get("terminationGracePeriodSeconds")
    return GRACE_S if given is None else max(0.0, float(given) - GRACE_SLACK_S)

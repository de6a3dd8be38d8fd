"""The Jobs of our store in a cluster: looked up, told whose they are, followed, ended, listed.

Made by provider.py; the shared part (providers/remote) asks it through its five verbs. A handle
names Job and pod: a run begins in that pod alone, and the Job is ended with all that it made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.contract.base import Owned
from fleetctl.providers.kubernetes.connection.channel import run as run_in
from fleetctl.providers.kubernetes.connection.client import Connection, Link
from fleetctl.providers.kubernetes.connection.errors import asking, is_not_found
from fleetctl.providers.kubernetes.connection.settings import Settings
from fleetctl.providers.kubernetes.manifests.jobs import GUEST_MARK, MAIN, name_of
from fleetctl.providers.kubernetes.manifests.labels import JOB_NAME, selector, tags_of
from fleetctl.providers.kubernetes.runs import statuses, story, streams
from fleetctl.providers.kubernetes.runs.cluster import Cluster
from fleetctl.providers.kubernetes.runs.ends import Ends
from fleetctl.providers.kubernetes.runs.handles import handle_of, parts
from fleetctl.providers.kubernetes.runs.streams import Line
from fleetctl.providers.kubernetes.runs.talk import Talk
from fleetctl.providers.remote.runs.follower import SandboxOver
from fleetctl.providers.remote.sandboxes import names
from fleetctl.providers.remote.sandboxes.base import At, Sandboxes, Work
from fleetctl.providers.remote.sandboxes.fates import Cause, Fate

log = logging.getLogger("fleetctl.providers")
Opened = TypeVar("Opened")

OPENED_AT_ONCE = 64  # commands that are being begun
STRANDED_AFTER_S = 15.0
LAST_WORDS_S = 3.0  # for what a pod that ended has said to come through its line


class JobSandboxes:
    def __init__(
        self,
        connection: Connection,
        store_id: str,
        settings: Settings,
        *,
        changed: Callable[[str], None] = lambda _: None,
    ) -> None:
        """changed: told the name of a Job about which something changed."""
        self._connection = connection
        self._store_id = store_id
        self._settings = settings
        self._tell = changed
        self._cluster: Cluster | None = None
        self._lines: dict[str, Line] = {}  # those that wait for another run of their pod
        self._open: dict[str, set[tuple[str, Line]]] = {}  # by Job, the followed ones of its pods
        self._read: set[str] = set()  # handles whose pod's log was asked for what it tells
        self._opening = asyncio.Semaphore(OPENED_AT_ONCE)
        self._lock = asyncio.Lock()
        self.ends = Ends()

    # -- what the shared part asks -----------------------------------------------------------------

    async def stream(
        self, handle: str, run: str, work: Work | None, at: At
    ) -> AsyncGenerator[bytes, None]:
        cluster = await self.cluster()
        job, pod = await self._pod(cluster, handle)
        if pod is None:
            raise SandboxOver(handle)
        if statuses.is_over(pod):
            frames = await self._told(cluster.link, handle, statuses.name_of(pod), run, at)
            if not frames:
                raise SandboxOver(handle)
            yield frames
            return
        async with self._opening:  # only the opening stands in line
            line = await self._line(cluster.link, handle, pod, run, work, at)
        following = self._open.setdefault(job, set())
        following.add(place := (statuses.name_of(pod), line))
        try:
            async for data in line.frames():
                yield data
        finally:
            following.discard(place)
            if not following:
                self._open.pop(job, None)
            if line.ended and line.takes_more:
                self._lines[handle] = line
            else:
                await line.channel.close()

    async def fate(self, handle: str) -> Fate | None:
        """Asked only when a stream is over: an informer's word that all is well may be old."""
        fate = await self.look(handle)
        if fate is not None and fate.cause is not Cause.UNKNOWN:
            await self.end(handle)
        return fate

    async def look(self, handle: str) -> Fate | None:
        """What became of its pod; ends nothing."""
        cluster = await self.cluster()
        job, name = parts(handle)
        ours = self.ends.by_us(handle)
        pod = cluster.pod(job, name)
        if pod is None or not statuses.is_over(pod):
            pod = await self._look(cluster.link, "pods", name) if name else None
        if pod is not None and not statuses.is_over(pod):
            self._refuse_stranded(pod)
            return None
        if pod is not None:
            if not ours and handle not in self._read:
                return None  # the next stream reads what its log tells, and only then it goes
            return statuses.fate_of(pod, ours=ours)
        return await self._fate_without_pod(cluster, job, name, ours=ours)

    async def end(self, handle: str) -> None:
        """End the Job and its pod by their names, whatever a look-up says."""
        cluster = await self.cluster()
        job, pod = parts(handle)
        self.ends.begun(handle)
        if (waiting := self._lines.pop(handle, None)) is not None:
            await waiting.channel.close()
        await self.ends.end(cluster, job, pod)
        self.ends.confirmed(handle)
        self._read.discard(handle)

    async def ask_stop(self, handle: str, run: str, grace_s: float) -> None:
        cluster = await self.cluster()
        _, pod = await self._pod(cluster, handle)
        if pod is None or not statuses.is_ready(pod):
            return
        argv = streams.stop_command(guest_of(pod), run, grace_s)
        async with asking(f"run `{run}` cannot be asked to stop", deadline_s=self._settings.call_s):
            channel = await run_in(cluster.link, statuses.name_of(pod), argv, container=MAIN)
            try:
                async for _frame in channel.frames():
                    pass  # it says nothing: the end of the command is what is waited for
            finally:
                await channel.close()

    async def find(self, run: str) -> str | None:
        """Raises Refused when what has the name is not ours."""
        cluster = await self.cluster()
        job = await self.named(cluster, run)
        if job is None:
            return None
        name = statuses.name_of(job)
        pod = cluster.pod_of(name) or await self._listed_pod(cluster.link, name)
        return handle_of(job, pod)

    async def line(self, handle: str, run: str) -> Talk:
        """See Lines of the relay."""
        cluster = await self.cluster()
        _, pod = await self._pod(cluster, handle)
        if pod is None or statuses.is_over(pod):
            raise SandboxOver(handle)
        argv = streams.relay_command(guest_of(pod), run)
        async with self._opening:
            channel = await self._begun(
                run_in(cluster.link, statuses.name_of(pod), argv, container=MAIN, stdin=True)
            )
        return Talk(channel)

    # -- what the provider asks --------------------------------------------------------------------

    async def cluster(self) -> Cluster:
        """With both lists there. Raises Refused and Unavailable."""
        link = await self._connection.link()
        async with self._lock:
            if self._cluster is not None and self._cluster.link is not link:
                await self._cluster.close()  # the account is another one now
                self._cluster = None
            if self._cluster is None:
                self._cluster = Cluster(link, selector(self._store_id), changed=self._changed)
        await self._cluster.ready(deadline_s=self._settings.call_s)
        return self._cluster

    async def named(self, cluster: Cluster, run: str) -> Object | None:
        """The Job of a run, asked for now. Raises Refused when what has its name is not ours."""
        name = name_of(run)
        job = await self._look(cluster.link, "jobs", name)
        if job is not None and not names.is_of(tags_of(job), self._store_id, run):
            raise Refused(
                f"job `{name}` in namespace `{cluster.link.namespace}` has the name of run `{run}`"
                " and is not ours",
                hint=f"kubectl delete job {name} -n {cluster.link.namespace}",
            )
        return job

    async def is_ours(self, handle: str) -> bool:
        """Raises Unavailable when its labels cannot be read: then nobody may touch it."""
        return names.is_ours(await self.tags(handle), self._store_id)

    async def tags(self, handle: str) -> dict[str, str]:
        """Of the Job; {} when it no longer exists."""
        cluster = await self.cluster()
        name, _ = parts(handle)
        job = cluster.job(name) or await self._look(cluster.link, "jobs", name)
        return {} if job is None else tags_of(job)

    async def age_s(self, handle: str) -> float:
        """How long its pod has been on its node, by our clock and the node's."""
        cluster = await self.cluster()
        _, pod = await self._pod(cluster, handle)
        began_at_s = None if pod is None else statuses.began_at_s(pod)
        return 0.0 if began_at_s is None else max(0.0, time.time() - began_at_s)

    async def owned(self) -> list[Owned]:
        """Every Job of our store whose end nobody has asked for, as far as the watch knows."""
        cluster = await self.cluster()
        if cluster.troubled is not None:
            raise cluster.troubled
        found = []
        for job in cluster.jobs():
            carried, handle = tags_of(job), handle_of(job, cluster.pod_of(statuses.name_of(job)))
            if not statuses.is_leaving(job) and not self.ends.lately(handle):
                found.append(Owned(names.run_of(carried), handle, names.made_at_s(carried)))
        return found

    async def close(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()
        for line in list(self._lines.values()):
            await line.channel.close()

    # -- helpers -----------------------------------------------------------------------------------

    async def _line(
        self, link: Link, handle: str, pod: Object, run: str, work: Work | None, at: At
    ) -> Line:
        name, guest = statuses.name_of(pod), guest_of(pod)
        if work is None:
            return await self._begun(streams.follow(link, name, guest, run, at))
        waiting = self._lines.pop(handle, None)
        if waiting is not None:
            await streams.hand(waiting, run, work)
            return waiting
        return await self._begun(streams.begin(link, name, guest, run, work, at))

    async def _begun(self, command: Coroutine[Any, Any, Opened]) -> Opened:
        """What it opens. Raises ConnectionError for what the pod or its kubelet refuses: whether
        the pod is over, a look at it tells.
        """
        try:
            async with asyncio.timeout(self._settings.call_s):
                return await command
        except ApiError as error:
            raise ConnectionError(str(error)) from error

    async def _pod(self, cluster: Cluster, handle: str) -> tuple[str, Object | None]:
        """(the Job's name, the pod of the handle), asked for where the watch does not know it."""
        job, name = parts(handle)
        pod = cluster.pod(job, name)
        if pod is None and name:
            pod = await self._look(cluster.link, "pods", name)
        return job, pod

    async def _look(self, link: Link, plural: str, name: str) -> Object | None:
        """What is there under a name, asked now; None when the API server knows none."""
        what = f"{plural[:-1]} `{name}` cannot be looked up"
        try:
            async with asking(what, deadline_s=self._settings.call_s):
                return await link.get(plural, name)
        except Exception as error:
            if is_not_found(error):
                return None
            raise

    async def _listed_pod(self, link: Link, job: str) -> Object | None:
        what = f"the pod of job `{job}` cannot be looked up"
        async with asking(what, deadline_s=self._settings.call_s):
            listed = await link.list("pods", {"labelSelector": f"{JOB_NAME}={job}"})
        return next((pod for pod in listed if statuses.node_of(pod) == 0), None)

    async def _told(self, link: Link, handle: str, pod: str, run: str, at: At) -> bytes:
        """What the log of a pod that is over tells of a run."""
        self._read.add(handle)
        what = f"the log of pod `{pod}` cannot be read"
        with suppress(Refused):
            try:
                async with asking(what, deadline_s=self._settings.call_s):
                    text = await link.api.text(link.path("pods", pod, "log"), {"container": MAIN})
            except Exception as error:
                if is_not_found(error):
                    return b""
                raise
            return story.frames_of(text, run, at)
        return b""

    async def _fate_without_pod(
        self, cluster: Cluster, job: str, pod: str, *, ours: bool
    ) -> Fate | None:
        if ours:
            return Fate(Cause.STOPPED)
        last = cluster.last(pod)
        if last is not None and statuses.was_taken(last):
            return statuses.fate_of(last, ours=False)
        found = await self._look(cluster.link, "jobs", job)
        condition = None if found is None else statuses.failed_condition(found)
        if condition is not None:
            return statuses.fate_of_job(condition)
        if pod and found is not None and (found.get("spec") or {}).get("suspend"):
            return Fate(Cause.PREEMPTED, "its Job was suspended, as Kueue does to preempt it")
        return Fate(Cause.UNKNOWN)

    def _refuse_stranded(self, pod: Object) -> None:
        """Raises Unavailable: of what a node does that nobody hears of, nothing is known."""
        node = statuses.stranded_on(pod)
        if node:
            name = statuses.name_of(pod)
            raise Unavailable(
                f"node `{node}` is not heard of, and pod `{name}` may work on there",
                reason="NodeLost",
                retry_after_s=STRANDED_AFTER_S,
                hint=f"once it is certain that it is off: kubectl delete node {node}",
            )

    def _changed(self, job: str) -> None:
        """Of a pod that is over nothing more comes, though its line may never break."""
        cluster = self._cluster
        if cluster is not None:
            for name, line in self._open.get(job, ()):
                pod = cluster.pod(job, name)
                if pod is None or statuses.is_over(pod):
                    asyncio.get_running_loop().call_later(LAST_WORDS_S, _cut, line)
        self._tell(job)


def guest_of(found: Object) -> str:
    return tags_of(found).get(GUEST_MARK, "python")


_cutting: set[asyncio.Task[None]] = set()


def _cut(line: Line) -> None:
    task = asyncio.ensure_future(line.channel.close())
    _cutting.add(task)
    task.add_done_callback(_cutting.discard)


_: type[Sandboxes] = JobSandboxes

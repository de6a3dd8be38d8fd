"""The Jobs of our store in a cluster: looked up, checked for their owner, followed, ended, listed;
in each namespace that has any by watches of its own, so that rights in it are enough.

Made by kubernetes_provider.py; the shared part (providers/remote) asks it through its five verbs. A
handle names Job and pod: a run begins in that pod alone, and the Job is ended with all its pods.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.contract.base import Owned
from fleetctl.providers.kubernetes.connection.kubernetes_connection import (
    ClusterLink,
    KubernetesConnection,
    KubernetesSettings,
    note_namespace,
    used_namespaces,
)
from fleetctl.providers.kubernetes.connection.kubernetes_errors import (
    ACCESS_DENIED,
    cluster_call,
    is_not_found,
)
from fleetctl.providers.kubernetes.connection.pod_channel import run as run_in
from fleetctl.providers.kubernetes.manifests.jobs import GUEST_MARK, MAIN
from fleetctl.providers.kubernetes.manifests.labels import (
    JOB_NAME,
    run_selector,
    store_selector,
    tags_of,
)
from fleetctl.providers.kubernetes.runs import pod_statuses, pod_streams
from fleetctl.providers.kubernetes.runs.job_informers import JobEnds, JobInformers
from fleetctl.providers.kubernetes.runs.pod_statuses import handle_of, parse_handle, split_handle
from fleetctl.providers.kubernetes.runs.pod_streams import PodExecChannel, PodStream
from fleetctl.providers.remote.runs.follower import SandboxOver
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.sandbox_protocol import (
    Cause,
    Fate,
    RunWork,
    Sandboxes,
    StreamOffsets,
)
from fleetctl.providers.remote.service_calls import ToleratedAnswer

log = logging.getLogger("fleetctl.providers")
Opened = TypeVar("Opened")

OPENED_AT_ONCE = 64  # commands that are being begun
STRANDED_AFTER_S = 15.0
LAST_WORDS_S = 3.0  # for the last output of an ended pod to come through its line


class JobSandboxes:
    def __init__(
        self,
        connection: KubernetesConnection,
        store_id: str,
        settings: KubernetesSettings,
        place: Path,
    ) -> None:
        """place: the directory of the provider's account."""
        self._connection = connection
        self._store_id = store_id
        self._settings = settings
        self._place = place
        self._clusters: dict[str, JobInformers] = {}  # by namespace
        self._lines: dict[str, PodStream] = {}  # those that wait for another run of their pod
        self._open: dict[
            str, set[tuple[str, PodStream]]
        ] = {}  # by Job, the followed ones of its pods
        self._read: set[str] = set()  # handles whose pod's log was read for its records
        self._opening = asyncio.Semaphore(OPENED_AT_ONCE)
        self._lock = asyncio.Lock()
        self.ends = JobEnds()

    # -- the Sandboxes protocol --------------------------------------------------------------------

    async def stream(
        self,
        handle: str,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> AsyncGenerator[bytes, None]:
        cluster = await self.cluster_of(handle)
        job, pod = await self._pod(cluster, handle)
        if pod is None:
            raise SandboxOver(handle)
        if pod_statuses.is_over(pod):
            frames = await self._read_pod_log(
                cluster.link,
                handle,
                pod_statuses.name_of(pod),
                run,
                at,
            )
            if not frames:
                raise SandboxOver(handle)
            yield frames
            return
        async with self._opening:  # only the opening stands in line
            line = await self._line(
                cluster.link,
                handle,
                pod,
                run,
                work,
                at,
            )
        following = self._open.setdefault(job, set())
        following.add(place := (pod_statuses.name_of(pod), line))
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
        """Returns why a pod ended; None if it runs. Called only when a stream has ended, because an
        informer's report of a running pod may be old.
        """
        fate = await self.look(handle)
        if fate is not None and fate.cause is not Cause.UNKNOWN:
            await self.end(handle)
        return fate

    async def look(self, handle: str) -> Fate | None:
        """Returns the fate of its pod; ends no object."""
        cluster = await self.cluster_of(handle)
        job, name = split_handle(handle)
        ours = self.ends.by_us(handle)
        pod = cluster.pod(job, name)
        if pod is None or not pod_statuses.is_over(pod):
            pod = await self._look(cluster.link, "pods", name) if name else None
        if pod is not None and not pod_statuses.is_over(pod):
            self._refuse_stranded(pod)
            return None
        if pod is not None:
            if not ours and handle not in self._read:
                return None  # the next stream reads the records of its log, and only then it goes
            return pod_statuses.fate_of(pod, ours=ours)
        return await self._fate_without_pod(cluster, job, name, ours=ours)

    async def end(self, handle: str) -> None:
        """Ends the Job and its pod by their names, after any look-up."""
        cluster = await self.cluster_of(handle)
        job, pod = split_handle(handle)
        self.ends.begun(handle)
        if (waiting := self._lines.pop(handle, None)) is not None:
            await waiting.channel.close()
        await self.ends.end(cluster, job, pod)
        self.ends.confirmed(handle)
        self._read.discard(handle)

    async def ask_stop(
        self,
        handle: str,
        run: str,
        grace_s: float,
    ) -> None:
        cluster = await self.cluster_of(handle)
        _, pod = await self._pod(cluster, handle)
        if pod is None or not pod_statuses.is_ready(pod):
            return
        argv = pod_streams.stop_command(guest_of(pod), run, grace_s)
        async with cluster_call(
            f"run `{run}` cannot be asked to stop", deadline_s=self._settings.call_s
        ):
            channel = await run_in(cluster.link, pod_statuses.name_of(pod), argv, container=MAIN)
            try:
                async for _frame in channel.frames():
                    pass  # without output: only the end of the command is waited for
            finally:
                await channel.close()

    async def find(self, run: str) -> str | None:
        """Finds the Job in any namespace: only the run's name is known."""
        for namespace in await self._namespaces():
            cluster = await self.cluster(namespace)
            job = await self._find_marked(cluster, run)
            if job is not None:
                name = pod_statuses.name_of(job)
                pod = cluster.pod_of(name) or await self._listed_pod(cluster.link, name)
                return handle_of(job, pod)
        return None

    async def line(self, handle: str, run: str) -> PodExecChannel:
        """Opens a line of the relay; see RelayLines."""
        cluster = await self.cluster_of(handle)
        _, pod = await self._pod(cluster, handle)
        if pod is None or pod_statuses.is_over(pod):
            raise SandboxOver(handle)
        argv = pod_streams.relay_command(guest_of(pod), run)
        async with self._opening:
            channel = await self._open_command(
                run_in(
                    cluster.link,
                    pod_statuses.name_of(pod),
                    argv,
                    container=MAIN,
                    stdin=True,
                )
            )
        return PodExecChannel(channel)

    # -- for the provider alone --------------------------------------------------------------------

    async def cluster(self, namespace: str = "") -> JobInformers:
        """Returns the informers of a namespace, with both lists there. Raises Refused and
        Unavailable.
        """
        return await self._watch_cluster(await self._connection.link(namespace))

    async def cluster_for(self, namespace: str) -> JobInformers:
        """Returns the informers of the namespace that runs the work of a namespace's objects, and
        records its name. Raises as `cluster`.
        """
        link = await self._connection.link_for(namespace)
        if link.namespace not in self._clusters:
            note_namespace(self._place, link.namespace)
        return await self._watch_cluster(link)

    async def cluster_of(self, handle: str) -> JobInformers:
        return await self.cluster(parse_handle(handle).namespace)

    def is_current(self, link: ClusterLink) -> bool:
        """Returns whether its Provider object is unchanged."""
        return self._connection.is_current(link)

    async def named(
        self,
        cluster: JobInformers,
        run: str,
        name: str,
    ) -> Object | None:
        """Requests a run's Job by its name. Raises Refused if a foreign object has the name."""
        job = await self._look(cluster.link, "jobs", name)
        if job is not None and not sandbox_names.is_of(tags_of(job), self._store_id, run):
            raise Refused(
                f"job `{name}` in namespace `{cluster.link.namespace}` has the name of run `{run}`"
                " and is not ours",
                hint=f"kubectl delete job {name} -n {cluster.link.namespace}",
            )
        return job

    async def earlier(
        self,
        cluster: JobInformers,
        run: str,
        name: str,
    ) -> Object | None:
        """Returns the Job that an earlier version made for a run under another name, if any."""
        known = cluster.job_of_run(run)
        if known is None or pod_statuses.name_of(known) == name:
            return None
        return await self.named(cluster, run, pod_statuses.name_of(known))

    async def _find_marked(self, cluster: JobInformers, run: str) -> Object | None:
        """Returns the Job of a run whose Job's name is not known here."""
        what = f"the job of run `{run}` cannot be looked up"
        async with cluster_call(what, deadline_s=self._settings.call_s):
            marked = {"labelSelector": run_selector(self._store_id, run)}
            found = await cluster.link.list("jobs", marked)
        return next(
            (it for it in found if sandbox_names.is_of(tags_of(it), self._store_id, run)), None
        )

    async def is_ours(self, handle: str) -> bool:
        """Returns whether the Job is this store's. Raises Unavailable when its labels cannot be
        read: then it must not be touched.
        """
        return sandbox_names.is_ours(await self.tags(handle), self._store_id)

    async def tags(self, handle: str) -> dict[str, str]:
        """Returns the tags of the Job; {} when it no longer exists."""
        cluster = await self.cluster_of(handle)
        name, _ = split_handle(handle)
        job = cluster.job(name) or await self._look(cluster.link, "jobs", name)
        if job is None:
            return {}
        return tags_of(job)

    async def age_s(self, handle: str) -> float:
        """Returns how long its pod has been on its node, by our clock and the node's."""
        cluster = await self.cluster_of(handle)
        _, pod = await self._pod(cluster, handle)
        began_at_s = None if pod is None else pod_statuses.began_at_s(pod)
        if began_at_s is None:
            return 0.0
        return max(0.0, time.time() - began_at_s)

    async def owned(self) -> list[Owned]:
        """Returns every Job of our store whose end was not requested, as far as the watches know.
        Raises Unavailable where no namespace can be listed; a failing namespace hides no other's
        Jobs.
        """
        found = []
        trouble = None
        heard = False
        for namespace in await self._namespaces():
            try:
                cluster = await self.cluster(namespace)
            except Unavailable as error:
                trouble = error
                continue
            if cluster.troubled is not None:
                trouble = cluster.troubled
                continue
            heard = True
            found += self._list_owned(cluster)
        if trouble is not None and not heard:
            raise trouble
        return found

    async def close(self) -> None:
        for cluster in self._clusters.values():
            await cluster.close()
        for line in list(self._lines.values()):
            await line.channel.close()

    # -- helpers -----------------------------------------------------------------------------------

    async def _watch_cluster(self, link: ClusterLink) -> JobInformers:
        async with self._lock:
            known = self._clusters.get(link.namespace)
            if known is not None and known.link is not link:
                await known.close()  # the account is another one now
                known = None
            if known is None:
                known = JobInformers(link, store_selector(self._store_id), changed=self._changed)
                self._clusters[link.namespace] = known
        await known.ready(deadline_s=self._settings.call_s)
        return known

    async def _namespaces(self) -> list[str]:
        """Returns all namespaces that may hold a Job of ours."""
        found = used_namespaces(self._place)
        default = (await self._connection.link()).namespace
        if not self._connection.tenants:
            return sorted({*found, default})
        # Every namespace is noted before a Job is made there, but by earlier versions.
        if found or not await self._may_look(default):
            return found
        return [default]

    async def _may_look(self, namespace: str) -> bool:
        """Returns whether our rights allow to list Jobs there: who may not has made none."""
        try:
            await self.cluster(namespace)
        except Unavailable as error:
            if error.reason != ACCESS_DENIED:
                raise
            return False
        return True

    def _list_owned(self, cluster: JobInformers) -> list[Owned]:
        found = []
        for job in cluster.jobs():
            carried, handle = (
                tags_of(job),
                handle_of(job, cluster.pod_of(pod_statuses.name_of(job))),
            )
            if not pod_statuses.is_leaving(job) and not self.ends.is_recent(handle):
                found.append(
                    Owned(sandbox_names.run_of(carried), handle, sandbox_names.made_at_s(carried))
                )
        return found

    async def _line(
        self,
        link: ClusterLink,
        handle: str,
        pod: Object,
        run: str,
        work: RunWork | None,
        at: StreamOffsets,
    ) -> PodStream:
        name = pod_statuses.name_of(pod)
        guest = guest_of(pod)
        if work is None:
            return await self._open_command(
                pod_streams.follow_run(
                    link,
                    name,
                    guest,
                    run,
                    at,
                )
            )
        waiting = self._lines.pop(handle, None)
        if waiting is not None:
            await pod_streams.hand_run(waiting, run, work)
            return waiting
        return await self._open_command(
            pod_streams.begin_run(
                link,
                name,
                guest,
                run,
                work,
                at,
            )
        )

    async def _open_command(self, command: Coroutine[Any, Any, Opened]) -> Opened:
        """Returns the opened stream. Raises ConnectionError when the pod or its kubelet refuses;
        the caller then checks whether the pod has ended.
        """
        try:
            async with asyncio.timeout(self._settings.call_s):
                return await command
        except ApiError as error:
            raise ConnectionError(str(error)) from error

    async def _pod(self, cluster: JobInformers, handle: str) -> tuple[str, Object | None]:
        """Returns (the Job's name, the pod of the handle); requests the pod if the watch does not
        know it.
        """
        job, name = split_handle(handle)
        pod = cluster.pod(job, name)
        if pod is None and name:
            pod = await self._look(cluster.link, "pods", name)
        return job, pod

    async def _look(
        self,
        link: ClusterLink,
        plural: str,
        name: str,
    ) -> Object | None:
        """Returns the object with that name as it is now; None when the API server has no such
        object.
        """
        what = f"{plural[:-1]} `{name}` cannot be looked up"
        with ToleratedAnswer(is_not_found):
            async with cluster_call(what, deadline_s=self._settings.call_s):
                return await link.get(plural, name)
        return None

    async def _listed_pod(self, link: ClusterLink, job: str) -> Object | None:
        what = f"the pod of job `{job}` cannot be looked up"
        async with cluster_call(what, deadline_s=self._settings.call_s):
            listed = await link.list("pods", {"labelSelector": f"{JOB_NAME}={job}"})
        return next((pod for pod in listed if pod_statuses.node_of(pod) == 0), None)

    async def _read_pod_log(
        self,
        link: ClusterLink,
        handle: str,
        pod: str,
        run: str,
        at: StreamOffsets,
    ) -> bytes:
        """Returns a run's frames from the log of a pod that is over."""
        self._read.add(handle)
        what = f"the log of pod `{pod}` cannot be read"
        with suppress(Refused), ToleratedAnswer(is_not_found):
            async with cluster_call(what, deadline_s=self._settings.call_s):
                text = await link.api.text(link.path("pods", pod, "log"), {"container": MAIN})
            return pod_streams.frames_of(text, run, at)
        return b""

    async def _fate_without_pod(
        self,
        cluster: JobInformers,
        job: str,
        pod: str,
        *,
        ours: bool,
    ) -> Fate | None:
        if ours:
            return Fate(Cause.STOPPED)
        last = cluster.last(pod)
        if last is not None and pod_statuses.was_preempted(last):
            return pod_statuses.fate_of(last, ours=False)
        found = await self._look(cluster.link, "jobs", job)
        condition = None if found is None else pod_statuses.failed_condition(found)
        if condition is not None:
            return pod_statuses.fate_of_job(condition)
        if pod and found is not None and (found.get("spec") or {}).get("suspend"):
            return Fate(Cause.PREEMPTED, "its Job was suspended, as Kueue does to preempt it")
        return Fate(Cause.UNKNOWN)

    def _refuse_stranded(self, pod: Object) -> None:
        """Raises Unavailable for a pod on a lost node: it may still be working."""
        node = pod_statuses.find_stranded_node(pod)
        if node:
            name = pod_statuses.name_of(pod)
            raise Unavailable(
                f"node `{node}` does not report, and pod `{name}` may work on there",
                reason="NodeLost",
                retry_after_s=STRANDED_AFTER_S,
                hint=f"once it is certain that it is off: kubectl delete node {node}",
            )

    def _changed(self, cluster: JobInformers, job: str) -> None:
        """Closes the connections of pods that have ended: no more output comes, but the connection
        may never break by itself.
        """
        for name, line in self._open.get(job, ()):
            pod = cluster.pod(job, name)
            if pod is None or pod_statuses.is_over(pod):
                asyncio.get_running_loop().call_later(LAST_WORDS_S, _close_stream, line)


def guest_of(found: Object) -> str:
    return tags_of(found).get(GUEST_MARK, "python")


_cutting: set[asyncio.Task[None]] = set()


def _close_stream(line: PodStream) -> None:
    task = asyncio.ensure_future(line.channel.close())
    _cutting.add(task)
    task.add_done_callback(_cutting.discard)


_: type[Sandboxes] = JobSandboxes

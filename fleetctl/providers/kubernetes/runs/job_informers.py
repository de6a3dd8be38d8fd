"""Keeps our store's Jobs and pods in one namespace, by two informers that all callers share, and
ends Jobs until the cluster reports that all are gone.

No run costs a call: each is woken by events of the watches. An object that is missing here may
exist; a look by its name decides. No finalizer of ours holds Jobs or pods, so a namespace can be
deleted without a controller.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
from fleetctl.kubernetes.informer import Informer
from fleetctl.providers.kubernetes.connection.kubernetes_connection import ClusterLink
from fleetctl.providers.kubernetes.connection.kubernetes_errors import (
    classify_error,
    cluster_call,
    is_conflict,
    is_not_found,
)
from fleetctl.providers.kubernetes.manifests.labels import JOB_NAME, tags_of
from fleetctl.providers.kubernetes.runs import pod_statuses
from fleetctl.providers.kubernetes.runs.waiting import AdmissionEvents
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.service_calls import RETRY_AFTER_S, ToleratedAnswer

SYNC_LOOK_S = 0.2  # between two looks at whether a first list has failed
LAST_KEPT_MAX = 10_000  # pods that are gone, as they were last

END_S = 120.0  # to end a Job and see that it is over
SOON_S = 15.0  # for a pod to leave by itself: its guest ends what runs, in its usual grace
LOOK_S = 10.0  # between two looks at what the watches still show
UNSEEN_S = 1.0  # and at a pod that they do not show
KEPT_MAX = 50_000
LISTED_STILL_S = 60.0
NOW_S = 1  # the grace of a pod that does not leave: 0 would only forget it


class JobInformers:
    """Watches the Jobs and pods of a namespace. changed: called with the name of a Job which
    changed, or whose pod changed.
    """

    def __init__(
        self,
        link: ClusterLink,
        selector: str,
        *,
        changed: Callable[[JobInformers, str], None],
    ) -> None:
        self.link = link
        self.closed = False
        self._changed = changed
        # By name of pod; whether the server reported it gone, or only a list was without it.
        self._last: OrderedDict[str, tuple[Object, bool]] = OrderedDict()
        self._pods_of: dict[str, dict[str, Object]] = {}  # by name of Job, then of pod
        self._jobs: dict[str, Object] = {}
        self._job_of_run: dict[str, str] = {}  # its name by the mark of its run
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.admission = AdmissionEvents(self._notify)
        self._informers = (
            Informer(link.api, link.path("jobs"), changed=self._job, label_selector=selector),
            Informer(link.api, link.path("pods"), changed=self._pod, label_selector=selector),
        )
        self._tasks = [asyncio.ensure_future(one.run()) for one in self._informers]

    async def ready(self, *, deadline_s: float) -> None:
        """Returns once both lists are here. Raises Unavailable when they do not come, with the
        reason.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + deadline_s
        for informer in self._informers:
            while not informer.synced.is_set():
                why = informer.trouble
                if why is not None or loop.time() >= until_s:
                    raise self._refuse_unlisted(why)
                try:
                    async with asyncio.timeout(SYNC_LOOK_S):
                        await informer.synced.wait()
                except TimeoutError:
                    continue

    def _refuse_unlisted(self, why: FleetctlError | None) -> Unavailable:
        what = f"the Jobs of namespace `{self.link.namespace}` cannot be listed"
        if isinstance(why, ApiError | Unavailable):
            told = classify_error(why, what)
            if isinstance(told, Unavailable):
                return told
        return Unavailable(f"{what}: no event arrives", retry_after_s=RETRY_AFTER_S)

    @property
    def troubled(self) -> Unavailable | None:
        """Returns why the watches of the namespace have stopped; None while they run."""
        why = next((one.trouble for one in self._informers if one.trouble is not None), None)
        if why is None:
            return None
        return self._refuse_unlisted(why)

    def jobs(self) -> list[Object]:
        return list(self._jobs.values())

    def job(self, name: str) -> Object | None:
        return self._jobs.get(name)

    def job_of_run(self, run: str) -> Object | None:
        """Returns the Job with the label of a run, under any name of an earlier version."""
        return self._jobs.get(self._job_of_run.get(sandbox_names.run_tag(run), ""))

    def pod_of(self, job: str) -> Object | None:
        """The pod of a Job, of several nodes that of node 0; of more, which there never should be,
        the one that works.
        """
        return next((pod for pod in self.pods_of(job) if pod_statuses.node_of(pod) == 0), None)

    def pods_of(self, job: str) -> list[Object]:
        """Returns all pods of a Job, in the order of their numbers; with equal numbers the working
        pod first.
        """
        pods = self._pods_of.get(job, {}).values()
        return sorted(pods, key=lambda pod: (pod_statuses.node_of(pod), pod_statuses.is_over(pod)))

    def pod(self, job: str, name: str) -> Object | None:
        if name:
            return self._pods_of.get(job, {}).get(name)
        return self.pod_of(job)

    def is_clear(self, job: str) -> bool:
        """Returns whether the watches know neither the Job nor any of its pods."""
        return job not in self._jobs and not self._pods_of.get(job)

    def last(self, pod: str) -> Object | None:
        """A pod that is gone, as it was when it went."""
        known = self._last.get(pod)
        if known is None:
            return None
        return known[0]

    def is_told_gone(self, pod: str) -> bool:
        """Returns whether a watch has reported the pod's end. A list that is without it may be an
        old one.
        """
        known = self._last.get(pod)
        return known is not None and known[1]

    def note_job(self, found: Object) -> None:
        """Stores a Job as a create or a look returned it, until the watch has it too."""
        if pod_statuses.name_of(found) not in self._jobs:
            self._keep_job(found)

    async def change(self, job: str, *, within_s: float) -> bool:
        """Waits for an event of a Job or its pods; returns whether one came within the time."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault(job, set())
        waiting.add(event)
        try:
            async with asyncio.timeout(within_s):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            waiting.discard(event)
            if not waiting:
                self._waiting.pop(job, None)
        return True

    async def close(self) -> None:
        self.closed = True
        for waiting in self._waiting.values():
            for event in waiting:
                event.set()
        await self.admission.close()
        await cancel_tasks(self._tasks)

    def _keep_job(self, found: Object) -> None:
        name = pod_statuses.name_of(found)
        self._jobs[name] = found
        self._job_of_run[sandbox_names.run_of(tags_of(found))] = name

    def _job(
        self,
        sort: str,
        found: Object,
        before: Object | None,
    ) -> None:
        del before
        name = pod_statuses.name_of(found)
        if sort == "DELETED":
            self._jobs.pop(name, None)
            run = sandbox_names.run_of(tags_of(found))
            if self._job_of_run.get(run) == name:
                del self._job_of_run[run]
        else:
            self._keep_job(found)
        self._notify(name)

    def _pod(
        self,
        sort: str,
        found: Object,
        before: Object | None,
    ) -> None:
        job = job_of(found)
        name = pod_statuses.name_of(found)
        pods = self._pods_of.setdefault(job, {})
        if sort == "DELETED":
            pods.pop(name, None)
            if not pods:
                del self._pods_of[job]
            self._last[name] = found, found is not before
            while len(self._last) > LAST_KEPT_MAX:
                self._last.popitem(last=False)
        else:
            pods[name] = found
        self._notify(job)

    def _notify(self, job: str) -> None:
        for event in self._waiting.get(job, ()):
            event.set()
        self._changed(self, job)


def job_of(pod: Object) -> str:
    """Returns the name of the Job that made a pod; "" for a pod without a Job."""
    return str(((pod.get("metadata") or {}).get("labels") or {}).get(JOB_NAME) or "")


class JobEnds:
    """Ends Jobs, and remembers which were ended by us; handles as job_sandboxes.py has them."""

    def __init__(self) -> None:
        self._by_us: OrderedDict[str, float] = OrderedDict()  # when it was confirmed, or 0.0

    def by_us(self, handle: str) -> bool:
        return handle in self._by_us

    def is_recent(self, handle: str) -> bool:
        """Returns whether its end was confirmed so lately that a watch may show it still; later a
        listed Job is not one of our ended ones.
        """
        at_s = self._by_us.get(handle)
        return bool(at_s) and time.monotonic() - (at_s or 0.0) < LISTED_STILL_S

    def begun(self, handle: str) -> None:
        self._by_us.setdefault(handle, 0.0)
        while len(self._by_us) > KEPT_MAX:
            self._by_us.popitem(last=False)

    def confirmed(self, handle: str) -> None:
        self._by_us[handle] = time.monotonic()

    async def end(
        self,
        cluster: JobInformers,
        job: str,
        pod: str = "",
    ) -> None:
        """Returns once Job and pods are confirmed gone; no error when they were gone before. pod:
        the one that work may have begun in. It outlives its Job: the API server forgets that at
        once, and its collector finds the pods later.
        """
        what = f"job `{job}` cannot be ended"
        async with cluster_call(what, deadline_s=END_S):
            await self._delete(cluster.link, job, cluster.job(job))
            loop = asyncio.get_running_loop()
            soon_s = loop.time() + SOON_S
            late = False
            while not await self._is_over(cluster, job, pod, asked=late):
                late = loop.time() >= soon_s
                if late:
                    for name in _pod_names(cluster, job, pod):
                        await self._hurry_pod(cluster.link, name)
                unseen_s = UNSEEN_S if cluster.is_clear(job) else SOON_S
                await cluster.change(job, within_s=LOOK_S if late else unseen_s)

    async def _is_over(
        self,
        cluster: JobInformers,
        job: str,
        pod: str,
        *,
        asked: bool,
    ) -> bool:
        """Returns whether a pod is gone, as reported by a watch or, if the watches do not show the
        pod, by the API server now. asked: the watches may be late, so the pods that they show are
        looked up too.
        """
        if cluster.is_clear(job):
            if not pod or cluster.is_told_gone(pod):
                return True
            others = {"labelSelector": f"{JOB_NAME}={job}"}
            gone = await _is_gone(cluster.link, "pods", pod)
            return gone and not await cluster.link.list("pods", others)
        if not asked:
            return False
        for name in _pod_names(cluster, job, pod):
            if not await _is_gone(cluster.link, "pods", name):
                return False
        return await _is_gone(cluster.link, "jobs", job)

    async def _delete(
        self,
        link: ClusterLink,
        job: str,
        known: Object | None,
    ) -> None:
        """Deletes the Job; another Job of the same name is left alone: its `uid` differs."""
        uid = pod_statuses.uid_of(known or {})
        options: Object = {"propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await link.delete("jobs", job, options)
        except ApiError as error:
            if is_not_found(error):
                return
            if is_conflict(error):
                raise Unavailable(
                    f"job `{job}` is another one by now", retry_after_s=1.0
                ) from error
            raise

    async def _hurry_pod(self, link: ClusterLink, pod: str) -> None:
        """A pod that takes its whole grace: the run has had its own."""
        with ToleratedAnswer(is_not_found, is_conflict):
            await link.delete("pods", pod, {"gracePeriodSeconds": NOW_S})


def _pod_names(
    cluster: JobInformers,
    job: str,
    pod: str,
) -> list[str]:
    """Returns the names of a Job's pods: those that the watches show, and the known one."""
    shown = [pod_statuses.name_of(it) for it in cluster.pods_of(job)]
    return list(dict.fromkeys([*([pod] if pod else []), *shown]))


async def _is_gone(
    link: ClusterLink,
    plural: str,
    name: str,
) -> bool:
    """Asked for by name."""
    with ToleratedAnswer(is_not_found):
        await link.get(plural, name)
        return False
    return True

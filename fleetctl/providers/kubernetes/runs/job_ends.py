"""Ends Jobs with their pods, until the cluster itself reports that all are gone. Called by
job_sandboxes.py.

No finalizer of ours holds them, so a namespace can be deleted without a controller.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

from fleetctl.common.errors import Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.connection.kubernetes_connection import ClusterLink
from fleetctl.providers.kubernetes.connection.kubernetes_errors import (
    cluster_call,
    is_conflict,
    is_not_found,
)
from fleetctl.providers.kubernetes.manifests.labels import JOB_NAME
from fleetctl.providers.kubernetes.runs import pod_statuses
from fleetctl.providers.kubernetes.runs.job_informers import JobInformers
from fleetctl.providers.remote.connection.tolerated_answer import ToleratedAnswer

END_S = 120.0  # to end a Job and see that it is over
SOON_S = 15.0  # for a pod to leave by itself: its guest ends what runs, in its usual grace
LOOK_S = 10.0  # between two looks at what the watches still show
UNSEEN_S = 1.0  # and at a pod that they do not show
KEPT_MAX = 50_000
LISTED_STILL_S = 60.0
NOW_S = 1  # the grace of a pod that does not leave: 0 would only forget it


class JobEnds:
    """Remembers which were ended by us; handles as job_sandboxes.py has them."""

    def __init__(self) -> None:
        self._by_us: OrderedDict[str, float] = OrderedDict()  # when it was confirmed, or 0.0

    def by_us(self, handle: str) -> bool:
        return handle in self._by_us

    def lately(self, handle: str) -> bool:
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
                        await self._hurry(cluster.link, name)
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

    async def _hurry(self, link: ClusterLink, pod: str) -> None:
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

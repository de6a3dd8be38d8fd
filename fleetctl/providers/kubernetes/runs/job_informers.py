"""Keeps our store's Jobs and pods in one namespace: two informers, shared by all callers.

Made by job_sandboxes.py at the first need. No run costs a call: each is woken by the watches' news.
An object that is missing here may exist; a look by its name decides.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.common.tasks import cancel_tasks
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
from fleetctl.kubernetes.informer import Informer
from fleetctl.providers.kubernetes.connection.kubernetes_connection import ClusterLink
from fleetctl.providers.kubernetes.connection.kubernetes_errors import classify_error
from fleetctl.providers.kubernetes.manifests.labels import JOB_NAME, tags_of
from fleetctl.providers.kubernetes.runs import pod_statuses
from fleetctl.providers.kubernetes.runs.waiting.admission import AdmissionEvents
from fleetctl.providers.remote.connection.api_call import RETRY_AFTER_S
from fleetctl.providers.remote.sandboxes import sandbox_names

SYNC_LOOK_S = 0.2  # between two looks at whether a first list has failed
LAST_KEPT_MAX = 10_000  # pods that are gone, as they were last


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
                    raise self._deaf(why)
                try:
                    async with asyncio.timeout(SYNC_LOOK_S):
                        await informer.synced.wait()
                except TimeoutError:
                    continue

    def _deaf(self, why: FleetctlError | None) -> Unavailable:
        what = f"the Jobs of namespace `{self.link.namespace}` cannot be listed"
        if isinstance(why, ApiError | Unavailable):
            told = classify_error(why, what)
            if isinstance(told, Unavailable):
                return told
        return Unavailable(f"{what}: no event arrives", retry_after_s=RETRY_AFTER_S)

    @property
    def troubled(self) -> Unavailable | None:
        """The reason why there is no news of the namespace now; None while there is."""
        why = next((one.trouble for one in self._informers if one.trouble is not None), None)
        if why is None:
            return None
        return self._deaf(why)

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
        """Waits for news of a Job or its pods, within the time; returns whether there was any."""
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

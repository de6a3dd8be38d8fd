"""What is known of our store's Jobs and pods in one namespace: two informers, whoever asks.

Made by sandboxes.py at the first need. No run costs a question: each is woken by what the watches
tell of it. That something is missing here says nothing; a look by its name does.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.common.tasks import cancel
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
from fleetctl.kubernetes.informer import Informer
from fleetctl.providers.kubernetes.connection.client import Link
from fleetctl.providers.kubernetes.connection.errors import certain
from fleetctl.providers.kubernetes.manifests.labels import JOB_NAME
from fleetctl.providers.kubernetes.runs import statuses
from fleetctl.providers.remote.connection.asking import ASK_AGAIN_S

SYNC_LOOK_S = 0.2  # between two looks at whether a first list has failed
LAST_KEPT_MAX = 10_000  # pods that are gone, as they were last


class Cluster:
    """changed: told the name of a Job about which, or about whose pod, something changed."""

    def __init__(self, link: Link, selector: str, *, changed: Callable[[str], None]) -> None:
        self.link = link
        self._changed = changed
        # By name of pod; whether the server said that it is gone, or only a list was without it.
        self._last: OrderedDict[str, tuple[Object, bool]] = OrderedDict()
        self._pods_of: dict[str, dict[str, Object]] = {}  # by name of Job, then of pod
        self._jobs: dict[str, Object] = {}
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._informers = (
            Informer(link.api, link.path("jobs"), changed=self._job, label_selector=selector),
            Informer(link.api, link.path("pods"), changed=self._pod, label_selector=selector),
        )
        self._tasks = [asyncio.ensure_future(one.run()) for one in self._informers]

    async def ready(self, *, deadline_s: float) -> None:
        """Once both lists are here. Raises Unavailable when they do not come, with why."""
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
            told = certain(why, what)
            if isinstance(told, Unavailable):
                return told
        return Unavailable(f"{what}: nothing is heard", retry_after_s=ASK_AGAIN_S)

    @property
    def troubled(self) -> Unavailable | None:
        """Why nothing is heard of the namespace now."""
        why = next((one.trouble for one in self._informers if one.trouble is not None), None)
        return None if why is None else self._deaf(why)

    def jobs(self) -> list[Object]:
        return list(self._jobs.values())

    def job(self, name: str) -> Object | None:
        return self._jobs.get(name)

    def pod_of(self, job: str) -> Object | None:
        """The pod of a Job, of several nodes that of node 0; of more, which there never should be,
        the one that works.
        """
        return next((pod for pod in self.pods_of(job) if statuses.node_of(pod) == 0), None)

    def pods_of(self, job: str) -> list[Object]:
        """All pods of a Job, in the order of their numbers; of one number, the one that works
        first.
        """
        pods = self._pods_of.get(job, {}).values()
        return sorted(pods, key=lambda pod: (statuses.node_of(pod), statuses.is_over(pod)))

    def pod(self, job: str, name: str) -> Object | None:
        return self._pods_of.get(job, {}).get(name) if name else self.pod_of(job)

    def is_clear(self, job: str) -> bool:
        """Whether the watches know neither the Job nor a pod of it."""
        return job not in self._jobs and not self._pods_of.get(job)

    def last(self, pod: str) -> Object | None:
        """A pod that is gone, as it was when it went."""
        known = self._last.get(pod)
        return None if known is None else known[0]

    def is_told_gone(self, pod: str) -> bool:
        """Whether a watch has told its end. A list that is without it may be an old one."""
        known = self._last.get(pod)
        return known is not None and known[1]

    def note_job(self, found: Object) -> None:
        """What a create or a look has told, until the watch tells it too."""
        self._jobs.setdefault(statuses.name_of(found), found)

    async def change(self, job: str, *, within_s: float) -> bool:
        """Wait for anything about a Job or its pods, and not longer; whether something came."""
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
        await cancel(self._tasks)

    def _job(self, sort: str, found: Object, before: Object | None) -> None:
        del before
        name = statuses.name_of(found)
        if sort == "DELETED":
            self._jobs.pop(name, None)
        else:
            self._jobs[name] = found
        self._tell(name)

    def _pod(self, sort: str, found: Object, before: Object | None) -> None:
        job = job_of(found)
        name, pods = statuses.name_of(found), self._pods_of.setdefault(job, {})
        if sort == "DELETED":
            pods.pop(name, None)
            if not pods:
                del self._pods_of[job]
            self._last[name] = found, found is not before
            while len(self._last) > LAST_KEPT_MAX:
                self._last.popitem(last=False)
        else:
            pods[name] = found
        self._tell(job)

    def _tell(self, job: str) -> None:
        for event in self._waiting.get(job, ()):
            event.set()
        self._changed(job)


def job_of(pod: Object) -> str:
    """The name of the Job that made a pod; "" of one that no Job made."""
    return str(((pod.get("metadata") or {}).get("labels") or {}).get(JOB_NAME) or "")

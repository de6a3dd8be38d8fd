"""Makes Jobs: named and marked in the request, one for each run however often it is asked for, and
waited for until their pod runs, or all of them where there are several nodes.

Called by provider.py. To wait costs no calls: the watch tells. What takes long, such as a node that
has yet to come, goes on in the background, and `make` says what the scheduler says.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.contract.base import Notify, RunRequest
from fleetctl.providers.kubernetes.connection.client import Link
from fleetctl.providers.kubernetes.connection.errors import asking, is_conflict, is_not_found
from fleetctl.providers.kubernetes.connection.settings import Settings
from fleetctl.providers.kubernetes.manifests import entry, gangs, jobs
from fleetctl.providers.kubernetes.manifests.images import image_of
from fleetctl.providers.kubernetes.runs import statuses, story
from fleetctl.providers.kubernetes.runs.cluster import Cluster
from fleetctl.providers.kubernetes.runs.handles import handle_of
from fleetctl.providers.kubernetes.runs.sandboxes import JobSandboxes
from fleetctl.providers.kubernetes.runs.waiting.gathering import (
    GIVEN_BACK,
    Gathering,
    acquaint,
    put_service,
)
from fleetctl.providers.kubernetes.runs.waiting.kueue import AGAIN_S, Kueue
from fleetctl.providers.remote.connection.token_bucket import Bucket
from fleetctl.providers.remote.sandboxes import names
from fleetctl.providers.remote.sandboxes.creates import Making, Makings

WAITS_AGAIN_S = 60.0  # who waits is told at once when it is through; this is the net
LOOK_S = 30.0  # between two looks at a Job that nothing is heard of
LIFE_SLACK_S = 900.0  # for a pod to begin, to clone and to be ended
FAILED_AFTER_S = 10.0
SURE_AFTER_S = 2.0  # a scheduler's first word may be about a node that is just being freed
PULL_S = 300.0  # a registry may fail for a moment; kubelets ask again, ever more rarely
LOG_TAIL_CHARACTERS = 400
AWAY = ("error sending request", "Temporary failure", "timed out", "server error", "Connection")


class Parts(NamedTuple):
    """claims: names of PVCs, by name of volume."""

    claims: dict[str, str]


class Creating:
    """parts: makes what an order's pod needs; finish: puts into the pod what must be there before
    anything begins. Both may raise Refused and Unavailable. stale: called when what `parts` made
    may be gone.
    """

    def __init__(
        self,
        sandboxes: JobSandboxes,
        settings: Settings,
        *,
        parts: Callable[[Link, RunRequest], Awaitable[Parts]],
        finish: Callable[[Link, RunRequest, str], Awaitable[None]],
        store_id: str,
        notify: Notify,
    ) -> None:
        self._sandboxes, self._settings = sandboxes, settings
        self._parts, self._finish = parts, finish
        self._store_id = store_id
        self._bucket = Bucket(settings.creates_per_s, settings.creates_burst)
        self._waits: dict[str, tuple[statuses.Wait, float]] = {}  # by run; since when
        self._filed: set[Link] = set()  # where the guest is
        self._filing = asyncio.Lock()
        self._kueue = Kueue()
        self.makings = Makings(notify, give_up_s=settings.call_s)

    async def make(self, request: RunRequest) -> str:
        """The handle of the run's Job. Raises Unavailable while its pod waits; then `notify` tells
        when to ask again.
        """
        making = self.makings.get(request.run) or self._begin(request)
        handle = await self.makings.handle(making, patience=self._patience(request.run))
        if handle is None:
            raise self._waiting(request, making.since_s)
        self._waits.pop(request.run, None)
        return handle

    def _begin(self, request: RunRequest) -> Making:
        if len(self.makings) >= self._settings.making_max:
            raise Unavailable(
                f"{len(self.makings)} Jobs wait for their pods already",
                reason="Queued",
                retry_after_s=WAITS_AGAIN_S,
            )
        return self.makings.begin(request.run, self._make(request))

    async def _make(self, request: RunRequest) -> str:
        """Exactly one Job, whatever became of earlier requests under the same name."""
        cluster = await self._sandboxes.cluster()
        link = cluster.link
        image = image_of(request.template, link.settings)
        parts = await self._parts(link, request)
        await self._file(link)
        await self._bucket.take()
        made = jobs.Made(
            request=request,
            tags=names.tags(request, self._store_id, time.time()),
            image=image,
            claims=parts.claims,
            life_s=self.life_s(link, request),
            inert_s=self._settings.begin_s + _gather_s(link, request),
            finished_s=self._settings.finished_s,
        )
        job = await self._posted(cluster, request, jobs.job(made, link.settings))
        cluster.note_job(job)
        with _perhaps_made():
            if statuses.nodes_of(job) > 1:
                await put_service(link, job, deadline_s=self._settings.call_s)
            pods = await self._running(cluster, request, job)
            if not any(map(statuses.is_over, pods)):
                first, *others = [statuses.name_of(pod) for pod in pods]
                await self._finish(link, request, first)
                await asyncio.gather(*(self._finish(link, request, name) for name in others))
                await acquaint(link, job, [first, *others])
        return handle_of(job, next((pod for pod in pods if statuses.node_of(pod) == 0), None))

    async def _posted(self, cluster: Cluster, request: RunRequest, body: Object) -> Object:
        what = f"the job of run `{request.run}` cannot be made"
        try:
            async with asking(what, deadline_s=self._settings.call_s):
                return await cluster.link.create("jobs", body)
        except Unavailable as error:
            if not error.perhaps_made:
                raise
            failed: FleetctlError = error
        except ApiError as error:
            if not is_conflict(error):  # the namespace is not there
                raise Unavailable(f"{what}: {error}", reason="NoNamespace") from error
            failed = error
        try:
            job = await self._sandboxes.named(cluster, request.run)
        except Unavailable as unheard:
            unheard.perhaps_made = True
            raise
        if job is None and isinstance(failed, Unavailable):
            raise failed
        if job is None:
            raise Unavailable(f"{what}: {failed}", retry_after_s=1.0)
        return job

    async def _running(self, cluster: Cluster, request: RunRequest, job: Object) -> list[Object]:
        """The Job's pods, once the containers of all run; or over, where a run may have begun in
        them.
        """
        name, since_s = statuses.name_of(job), time.monotonic()
        gathering = Gathering(job, cluster.link.settings)
        heard_s, words = since_s, ""
        while True:
            pods = cluster.pods_of(name)
            if gathering.is_whole(pods):
                return pods
            over = next((pod for pod in pods if statuses.is_over(pod)), None)
            if over is not None:
                await self._ended(cluster, request, name, over)
                return pods
            known = cluster.job(name)
            if time.monotonic() - heard_s >= LOOK_S:
                known, heard_s = await self._sandboxes.named(cluster, request.run), time.monotonic()
            if known is None:
                raise _failed(request, "its Job was deleted before its pod began")
            condition = statuses.failed_condition(known)
            if condition is not None and not pods:
                await self._sandboxes.end(f"{name}/")
                told = f"{condition.get('reason')}: {condition.get('message')}"
                raise _failed(request, told)
            self._note(request.run, statuses.wait_of_all(known, pods, words))
            if statuses.queue_of(known):
                words = await self._kueue.words(cluster.link, known)
                self._note(request.run, statuses.wait_of_all(known, pods, words))
            await self._hopeless(request, name)
            if gathering.takes_too_long(pods):
                await self._sandboxes.end(f"{name}/")
                raise gathering.given_back(request, self._waits[request.run][0])
            if time.monotonic() - since_s > cluster.link.settings.pending_seconds:
                await self._sandboxes.end(f"{name}/")
                raise _failed(request, "its pod waited for longer than `pendingSeconds`")
            queue_s = AGAIN_S if statuses.queue_of(known) else LOOK_S
            if await cluster.change(name, within_s=min(LOOK_S, gathering.left_s, queue_s)):
                heard_s = time.monotonic()

    async def _ended(self, cluster: Cluster, request: RunRequest, name: str, pod: Object) -> None:
        """A pod that is over already: what may have worked in it is adopted, nothing else is."""
        handle = f"{name}/{statuses.name_of(pod)}"
        if statuses.unprepared(pod):
            words = await self._log(cluster.link, pod, jobs.PREPARE)
            await self._sandboxes.end(handle)
            if any(word in words for word in AWAY):
                raise _failed(request, f"its packages could not be installed: {words}")
            raise Refused(
                f"the packages of run `{request.run}` cannot be installed: {words}",
                hint="check image.pip, and image.python",
            )
        text = await self._log(cluster.link, pod, jobs.MAIN, whole=True)
        if story.never_began(text.encode()):
            fate = statuses.fate_of(pod, ours=False)
            await self._sandboxes.end(handle)
            raise _failed(request, f"its pod ended before anything began in it: {fate.cause.value}")

    async def _log(self, link: Link, pod: Object, container: str, *, whole: bool = False) -> str:
        name = statuses.name_of(pod)
        try:
            async with asking(f"the log of pod `{name}` cannot be read", deadline_s=30.0):
                data = await link.api.text(link.path("pods", name, "log"), {"container": container})
        except (FleetctlError, OSError):
            return ""
        text = data.decode("utf-8", "replace")
        return text if whole else " ".join(text.split())[-LOG_TAIL_CHARACTERS:]

    async def _hopeless(self, request: RunRequest, name: str) -> None:
        """Raises Refused for what waiting does not mend."""
        wait, since_s = self._waits[request.run]
        pull = wait.reason in statuses.PULL and time.monotonic() - since_s > PULL_S
        if not pull and wait.reason not in statuses.NEVER:
            return
        await self._sandboxes.end(f"{name}/")
        raise Refused(
            f"the image of run `{request.run}` cannot be used: {wait.reason}: {wait.message}",
            hint="check `image.registry`, and `imagePullSecrets` of the Provider object",
        )

    def _note(self, run: str, wait: statuses.Wait) -> None:
        known, since_s = self._waits.get(run, (None, 0.0))
        same = known is not None and known.reason == wait.reason
        self._waits[run] = (wait, since_s if same else time.monotonic())

    async def _patience(self, run: str) -> None:
        """Until it is worth telling why a pod waits: at once where the scheduler has no node."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._settings.patience_s
        while loop.time() < until_s:
            wait, since_s = self._waits.get(run, (None, 0.0))
            told = wait is not None and wait.reason != "Queued"
            if told and time.monotonic() - since_s > SURE_AFTER_S:
                return
            await asyncio.sleep(min(0.5, max(0.01, until_s - loop.time())))

    def _waiting(self, request: RunRequest, since_s: float) -> Unavailable:
        since = time.strftime("%H:%M:%S", time.gmtime(since_s))
        wait, _ = self._waits.get(request.run, (None, 0.0))
        message = "it is being made" if wait is None else wait.message
        return Unavailable(
            f"{message} (since {since} UTC)",
            reason=wait.reason if wait is not None and wait.reason in statuses.TOLD else "Queued",
            retry_after_s=WAITS_AGAIN_S,
            hint="" if wait is None else wait.hint,
        )

    async def _file(self, link: Link) -> None:
        """The guest for all pods of the namespace, once: it is half a megabyte."""
        async with self._filing:
            if link not in self._filed:
                await self._put_file(link)
                self._filed.add(link)

    async def _put_file(self, link: Link) -> None:
        what = "the guest cannot be put into a ConfigMap"
        try:
            async with asking(what, deadline_s=self._settings.call_s):
                await link.create("configmaps", entry.files())
        except ApiError as error:
            if not is_conflict(error):
                hint = f"kubectl create namespace {link.namespace}"
                absent = is_not_found(error)
                raise Unavailable(
                    f"{what}: {error}",
                    reason="NoNamespace" if absent else "Unavailable",
                    retry_after_s=FAILED_AFTER_S,
                    hint=hint if absent else "",
                    account=absent,
                ) from error

    def life_s(self, link: Link, request: RunRequest) -> float:
        """The pod is ended then, whatever becomes of us: never before the task's own limit."""
        template, usual_s = request.template, self._settings.lifetime_s
        gather_s = _gather_s(link, request)
        if template.timeout_seconds is None:
            return usual_s + gather_s
        task_s = template.timeout_seconds + template.termination_grace_period_seconds
        whole_s = task_s + LIFE_SLACK_S + self._settings.begin_s + gather_s
        return max(usual_s, whole_s) if request.reusable else whole_s


def _gather_s(link: Link, request: RunRequest) -> float:
    """How long the first of several pods may wait for the last one, and works nothing."""
    return link.settings.gather_seconds if gangs.size(request.template) > 1 else 0.0


@contextmanager
def _perhaps_made() -> Iterator[None]:
    """Reasons such as RateLimited say that a create was not accepted: here, one was, and is there
    unless its end is confirmed.
    """
    try:
        yield
    except Unavailable as error:
        error.perhaps_made = error.reason != GIVEN_BACK
        raise


def _failed(request: RunRequest, why: str) -> Unavailable:
    return Unavailable(
        f"the pod of run `{request.run}` failed before anything began: {why}",
        reason="SandboxFailed",
        retry_after_s=FAILED_AFTER_S,
    )

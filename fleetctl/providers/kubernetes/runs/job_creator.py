"""Makes Jobs: named and marked in the request, one for each run even after repeated requests, and
waited for until their pod runs, or all pods where there are several nodes.

Called by kubernetes_provider.py. Waiting costs no calls: the watch reports each change. A slow
create, such as one that needs a new node, goes on in the background, and `make` reports the
scheduler's reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.contract.base import Notify, RunRequest
from fleetctl.providers.kubernetes.connection.kubernetes_connection import (
    ClusterLink,
    KubernetesSettings,
)
from fleetctl.providers.kubernetes.connection.kubernetes_errors import (
    cluster_call,
    is_conflict,
    is_not_found,
)
from fleetctl.providers.kubernetes.manifests import entry, gang_manifests, jobs, pod_parts
from fleetctl.providers.kubernetes.manifests.labels import job_name
from fleetctl.providers.kubernetes.manifests.pod_parts import image_of, without_login
from fleetctl.providers.kubernetes.runs import pod_statuses, pod_streams
from fleetctl.providers.kubernetes.runs.job_informers import JobInformers
from fleetctl.providers.kubernetes.runs.job_sandboxes import JobSandboxes
from fleetctl.providers.kubernetes.runs.pod_statuses import JobHandle, handle_of
from fleetctl.providers.kubernetes.runs.tenancy import Tenancy
from fleetctl.providers.kubernetes.runs.waiting import (
    GIVEN_BACK,
    NO_RIGHT,
    WITHOUT_POD_S,
    GangGathering,
    Kueue,
    acquaint_nodes,
    put_service,
)
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.pending_creates import PendingCreate, PendingCreates
from fleetctl.providers.remote.service_calls import TokenBucket
from fleetctl.specs.values.namespaces import split_key

WAITS_AGAIN_S = 60.0  # waiting callers are notified at once when it is through; this is the net
LOOK_S = 30.0  # between two looks at a silent Job
# Between two looks at its Provider object, which cost no call; and at Kueue's reasons.
SETTINGS_LOOK_S = 5.0
LIFE_SLACK_S = 900.0  # for a pod to begin, to clone and to be ended
FAILED_AFTER_S = 10.0
SURE_AFTER_S = 2.0  # a scheduler's first word may be about a node that is just being freed
PULL_S = 300.0  # a registry may fail for a moment; kubelets ask again, ever more rarely
LOG_TAIL_CHARACTERS = 400
AWAY = ("error sending request", "Temporary failure", "timed out", "server error", "Connection")


class JobParts(NamedTuple):
    """claims: names of PVCs, by name of volume."""

    claims: dict[str, str]


@dataclass(slots=True)
class WaitingJob:
    """A Job that exists, and waits. body: as it was requested; cluster: the informers that watch
    it, others once the Provider object was changed.
    """

    cluster: JobInformers
    request: RunRequest
    job: Object
    body: Object
    parts: JobParts

    @property
    def handle(self) -> str:
        """The handle of a Job whose pod has no work yet."""
        name = pod_statuses.name_of(self.job)
        return str(JobHandle(name, "", namespace=self.cluster.link.namespace))


class JobCreator:
    """Makes the Jobs of runs. parts: makes the objects that an order's pod needs; finish: copies
    files into the pod that must exist before the run begins. Both may raise Refused and
    Unavailable. stale: called when objects that `parts` made may be gone.
    """

    def __init__(
        self,
        sandboxes: JobSandboxes,
        settings: KubernetesSettings,
        *,
        parts: Callable[[ClusterLink, RunRequest], Awaitable[JobParts]],
        finish: Callable[[ClusterLink, RunRequest, str], Awaitable[None]],
        store_id: str,
        notify: Notify,
    ) -> None:
        self._sandboxes = sandboxes
        self._settings = settings
        self._parts = parts
        self._finish = finish
        self._store_id = store_id
        self._bucket = TokenBucket(settings.creates_per_s, settings.creates_burst)
        self._waits: dict[str, tuple[pod_statuses.PodWait, float]] = {}  # by run; since when
        self._filed: set[ClusterLink] = set()  # where the guest is
        self._filing = asyncio.Lock()
        self._kueue = Kueue()
        self._tenancy = Tenancy(settings.call_s)
        self.makings = PendingCreates(notify, give_up_s=settings.call_s)

    async def make(self, request: RunRequest) -> str:
        """Returns the handle of the run's Job. Raises Unavailable while its pod waits; then
        `notify` is called when it is time to call again.
        """
        making = self.makings.get(request.run) or self._begin(request)
        handle = await self.makings.handle(making, patience=self._patience(request.run))
        if handle is None:
            raise self._describe_wait(request, making.since_s)
        self._waits.pop(request.run, None)
        return handle

    def _begin(self, request: RunRequest) -> PendingCreate:
        if len(self.makings) >= self._settings.making_max:
            raise Unavailable(
                f"{len(self.makings)} Jobs wait for their pods already",
                reason="Queued",
                retry_after_s=WAITS_AGAIN_S,
            )
        return self.makings.begin(request.run, self._make(request))

    async def _make(self, request: RunRequest) -> str:
        """Makes exactly one Job, whatever became of earlier requests under the same name. A waiting
        Job is made again when its Provider object asks for another one by now.
        """
        while not (handle := await self._make_job(request)):
            continue
        return handle

    async def _make_job(self, request: RunRequest) -> str:
        """Returns the handle; "" where the Job was given back to be made again."""
        cluster = await self._sandboxes.cluster_for(split_key(request.resource)[2])
        link = cluster.link
        job = await self._sandboxes.earlier(cluster, request.run, job_name(request))
        parts = await self._parts(link, request)
        await self._file(link)
        body = self._body(link, request, parts)
        await self._refuse_foreign(link, request, body, parts)
        if job is None or pod_statuses.is_leaving(job):
            await self._bucket.take()
            job = await self._post_job(cluster, request, body)
            cluster.note_job(job)
        with _perhaps_made():
            for service in gang_manifests.build_services(job, request):
                await put_service(link, job, service, deadline_s=self._settings.call_s)
            pods = await self._running(
                WaitingJob(
                    cluster,
                    request,
                    job,
                    body,
                    parts,
                )
            )
            if not pods:
                return ""
            if not any(map(pod_statuses.is_over, pods)):
                first, *others = [pod_statuses.name_of(pod) for pod in pods]
                await self._finish(link, request, first)
                await asyncio.gather(*(self._finish(link, request, name) for name in others))
                self._note(request.run, pod_statuses.wait_for_peers(len(pods)))
                await acquaint_nodes(link, job, [first, *others])
        return handle_of(job, next((pod for pod in pods if pod_statuses.node_of(pod) == 0), None))

    async def _refuse_foreign(
        self,
        link: ClusterLink,
        request: RunRequest,
        body: Object,
        parts: JobParts,
    ) -> None:
        """Raises Unavailable if the object itself, not its Provider object, names resources of a
        foreign namespace.
        """
        image = without_login(request.template.image)
        bare = request.template.model_copy(update={"kubernetes": None, "image": image})
        plain = self._body(link, replace(request, template=bare, secret_refs=()), parts)
        pods = [it["spec"]["template"]["spec"] for it in (body, plain)]
        asked = pod_parts.list_named(pods[0]) - pod_parts.list_named(pods[1])
        await self._tenancy.check(link, split_key(request.resource)[2], asked)

    def _body(
        self,
        link: ClusterLink,
        request: RunRequest,
        parts: JobParts,
    ) -> Object:
        made = jobs.JobSpec(
            request=request,
            tags=sandbox_names.sandbox_tags(request, self._store_id, time.time()),
            image=image_of(request.template, link.settings),
            claims=parts.claims,
            life_s=self.life_s(link, request),
            inert_s=self._settings.begin_s + _gather_s(link, request),
            finished_s=self._settings.finished_s,
        )
        return jobs.build_job(made, link.settings)

    async def _post_job(
        self,
        cluster: JobInformers,
        request: RunRequest,
        body: Object,
    ) -> Object:
        what = f"the job of run `{request.run}` cannot be made"
        try:
            async with cluster_call(what, deadline_s=self._settings.call_s):
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
            job = await self._sandboxes.named(cluster, request.run, job_name(request))
        except Unavailable as unheard:
            unheard.perhaps_made = True
            raise
        if job is None and isinstance(failed, Unavailable):
            raise failed
        if job is None:
            raise Unavailable(f"{what}: {failed}", retry_after_s=1.0)
        return job

    async def _running(self, making: WaitingJob) -> list[Object]:
        """Returns the Job's pods, once all their containers run, or have ended after a run may have
        begun in them. Empty: the Job was ended, because its Provider object requires another one.
        """
        request = making.request
        job = making.job
        name = pod_statuses.name_of(job)
        since_s = time.monotonic()
        gathering = GangGathering(job, making.cluster.link.settings)
        heard_s = since_s
        words = ""
        while True:
            if not await self._is_wanted(making):
                return []
            cluster = making.cluster
            pods = cluster.pods_of(name)
            if gathering.is_whole(pods):
                return pods
            over = next((pod for pod in pods if pod_statuses.is_over(pod)), None)
            if over is not None:
                await self._handle_ended_pod(cluster, request, name, over)
                return pods
            known = cluster.job(name)
            if time.monotonic() - heard_s >= LOOK_S:
                known = await self._sandboxes.named(cluster, request.run, name)
                heard_s = time.monotonic()
            if known is None:
                raise _pod_failed(request, "its Job was deleted before its pod began")
            condition = pod_statuses.failed_condition(known)
            if condition is not None and not pods:
                await self._sandboxes.end(making.handle)
                told = f"{condition.get('reason')}: {condition.get('message')}"
                raise _pod_failed(request, told)
            wait = pod_statuses.wait_of_all(known, pods, words)
            alone_s = 0.0
            lacking = len(pods) < pod_statuses.nodes_of(known)
            if lacking and not (known.get("spec") or {}).get("suspend"):
                alone_s = max(0.0, since_s + WITHOUT_POD_S - time.monotonic())
                wait = self._unadmitted(cluster, known, wait) if alone_s == 0.0 else wait
            self._note(request.run, wait)
            if pod_statuses.queue_of(known):
                words = await self._kueue.words(cluster.link, known)
                self._note(request.run, pod_statuses.wait_of_all(known, pods, words))
            await self._hopeless(making)
            if gathering.takes_too_long(pods):
                await self._sandboxes.end(making.handle)
                raise gathering.describe_given_back(request, self._waits[request.run][0])
            if time.monotonic() - since_s > cluster.link.settings.pending_seconds:
                await self._sandboxes.end(making.handle)
                raise _pod_failed(request, "its pod waited for longer than `pendingSeconds`")
            within_s = min(SETTINGS_LOOK_S, gathering.left_s, alone_s or LOOK_S)
            if await cluster.change(name, within_s=within_s):
                heard_s = time.monotonic()

    async def _is_wanted(self, making: WaitingJob) -> bool:
        """Returns whether the Job is still what its Provider object asks for; an outdated Job
        without a node is ended.
        """
        cluster = making.cluster
        request = making.request
        if not cluster.closed and self._sandboxes.is_current(cluster.link):
            return True
        wanted = await self._sandboxes.cluster_for(split_key(request.resource)[2])
        here = cluster.link.namespace
        same = wanted.link.namespace == here and _same_work(
            making.body, self._body(wanted.link, request, making.parts)
        )
        making.cluster = (
            wanted if wanted.link.namespace == here else (await self._sandboxes.cluster(here))
        )
        pods = making.cluster.pods_of(pod_statuses.name_of(making.job))
        if same or any(map(pod_statuses.is_placed, pods)):
            return True
        await self._sandboxes.end(making.handle)
        return False

    def _unadmitted(
        self,
        cluster: JobInformers,
        job: Object,
        wait: pod_statuses.PodWait,
    ) -> pod_statuses.PodWait:
        """Returns the Job controller's reason why a Job lacks a pod."""
        found = cluster.admission.wait_of(cluster.link, job)
        if found is not None:
            return found
        if cluster.admission.deaf:
            return replace(wait, hint=NO_RIGHT)
        return wait

    async def _handle_ended_pod(
        self,
        cluster: JobInformers,
        request: RunRequest,
        name: str,
        pod: Object,
    ) -> None:
        """Handles a pod that is over already: it is adopted only if work may have run in it."""
        there = JobHandle(name, pod_statuses.name_of(pod), namespace=cluster.link.namespace)
        handle = str(there)
        if failed := pod_statuses.install_failed(pod):
            words = await self._log(cluster.link, pod, failed)
            await self._sandboxes.end(handle)
            if failed != jobs.PREPARE:
                raise Refused(
                    f"init container `{failed}` of run `{request.run}` failed: {words}",
                    hint="correct `initContainers` of `kubernetes`",
                )
            if any(word in words for word in AWAY):
                raise _pod_failed(request, f"its packages could not be installed: {words}")
            raise Refused(
                f"the packages of run `{request.run}` cannot be installed: {words}",
                hint="check image.pip, and image.python",
            )
        text = await self._log(cluster.link, pod, jobs.MAIN, whole=True)
        if pod_streams.never_began(text.encode()):
            fate = pod_statuses.fate_of(pod, ours=False)
            await self._sandboxes.end(handle)
            raise _pod_failed(
                request, f"its pod ended before anything began in it: {fate.cause.value}"
            )

    async def _log(
        self,
        link: ClusterLink,
        pod: Object,
        container: str,
        *,
        whole: bool = False,
    ) -> str:
        name = pod_statuses.name_of(pod)
        try:
            async with cluster_call(f"the log of pod `{name}` cannot be read", deadline_s=30.0):
                data = await link.api.text(link.path("pods", name, "log"), {"container": container})
        except (FleetctlError, OSError):
            return ""
        text = data.decode("utf-8", "replace")
        if whole:
            return text
        return " ".join(text.split())[-LOG_TAIL_CHARACTERS:]

    async def _hopeless(self, making: WaitingJob) -> None:
        """Ends a Job that would wait for ever; then raises Refused."""
        request = making.request
        wait, since_s = self._waits[request.run]
        pull = wait.reason in pod_statuses.PULL and time.monotonic() - since_s > PULL_S
        if not pull and wait.reason not in pod_statuses.NEVER:
            return
        await self._sandboxes.end(making.handle)
        raise Refused(
            f"the image of run `{request.run}` cannot be used: {wait.reason}: {wait.message}",
            hint="check `image.registry`, and `imagePullSecrets` of the Provider object",
        )

    def _note(self, run: str, wait: pod_statuses.PodWait) -> None:
        known, since_s = self._waits.get(run, (None, 0.0))
        same = known is not None and known.reason == wait.reason
        self._waits[run] = (wait, since_s if same else time.monotonic())

    async def _patience(self, run: str) -> None:
        """Waits until the reason why a pod waits is worth a report: at once where the scheduler has
        no node.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._settings.patience_s
        while loop.time() < until_s:
            wait, since_s = self._waits.get(run, (None, 0.0))
            told = wait is not None and wait.reason != "Queued"
            if told and time.monotonic() - since_s > SURE_AFTER_S:
                return
            await asyncio.sleep(min(0.5, max(0.01, until_s - loop.time())))

    def _describe_wait(self, request: RunRequest, since_s: float) -> Unavailable:
        since = time.strftime("%H:%M:%S", time.gmtime(since_s))
        wait, _ = self._waits.get(request.run, (None, 0.0))
        message = "it is being made" if wait is None else wait.message
        return Unavailable(
            f"{message} (since {since} UTC)",
            reason=wait.reason
            if wait is not None and wait.reason in pod_statuses.TOLD
            else "Queued",
            retry_after_s=WAITS_AGAIN_S,
            hint="" if wait is None else wait.hint,
        )

    async def _file(self, link: ClusterLink) -> None:
        """Stores the guest once for all pods of the namespace, as it has half a megabyte."""
        async with self._filing:
            if link not in self._filed:
                await self._put_file(link)
                self._filed.add(link)

    async def _put_file(self, link: ClusterLink) -> None:
        what = "the guest cannot be put into a ConfigMap"
        try:
            async with cluster_call(what, deadline_s=self._settings.call_s):
                await link.create("configmaps", entry.build_config_map())
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

    def life_s(self, link: ClusterLink, request: RunRequest) -> float:
        """Returns the seconds after which Kubernetes ends the pod, even without a controller;
        never less than the task's own limit.
        """
        template = request.template
        usual_s = self._settings.lifetime_s
        gather_s = _gather_s(link, request)
        if template.timeout_seconds is None:
            return usual_s + gather_s
        task_s = template.timeout_seconds + template.termination_grace_period_seconds
        whole_s = task_s + LIFE_SLACK_S + self._settings.begin_s + gather_s
        if request.reusable:
            return max(usual_s, whole_s)
        return whole_s


def _gather_s(link: ClusterLink, request: RunRequest) -> float:
    """Returns the seconds that the first of several pods may wait for the last one, without
    work.
    """
    if gang_manifests.gang_size(request.template) > 1:
        return link.settings.gather_seconds
    return 0.0


@contextmanager
def _perhaps_made() -> Iterator[None]:
    """Reasons such as RateLimited mean that a create was not accepted: here, one was, and is there
    unless its end is confirmed.
    """
    try:
        yield
    except Unavailable as error:
        error.perhaps_made = error.reason != GIVEN_BACK
        raise


def _same_work(one: Object, other: Object) -> bool:
    """Returns whether two Jobs differ only in the time of their requests."""
    return _lasting_parts(one) == _lasting_parts(other)


def _lasting_parts(job: Object) -> list[object]:
    spec = job["spec"]
    return [job["metadata"]["labels"], spec["suspend"], spec["template"]["spec"]]


def _pod_failed(request: RunRequest, why: str) -> Unavailable:
    return Unavailable(
        f"the pod of run `{request.run}` failed before anything began: {why}",
        reason="SandboxFailed",
        retry_after_s=FAILED_AFTER_S,
    )

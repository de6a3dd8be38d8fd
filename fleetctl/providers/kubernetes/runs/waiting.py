"""Waits of a Job: until all nodes of an attempt are there or all are given back, and the reasons of
the cluster's admission and of Kueue meanwhile.

Kueue lets all pods of a Job in at once. Without it some may hold machines while others wait for
them, perhaps for each other: so after a while all are given back.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Sequence

from fleetctl.common.errors import FleetctlError, Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
from fleetctl.kubernetes.informer import Informer
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.kubernetes.connection.kubernetes_connection import ClusterLink
from fleetctl.providers.kubernetes.connection.kubernetes_errors import (
    cluster_call,
    is_conflict,
    is_not_found,
)
from fleetctl.providers.kubernetes.connection.pod_channel import STDERR, run
from fleetctl.providers.kubernetes.manifests import gang_manifests
from fleetctl.providers.kubernetes.manifests.entry import wrap_command
from fleetctl.providers.kubernetes.manifests.jobs import MAIN
from fleetctl.providers.kubernetes.runs import pod_statuses
from fleetctl.providers.kubernetes.runs.pod_statuses import ADMISSION, PodWait
from fleetctl.specs.blocks.kubernetes import ClusterSettings

GIVEN_BACK = "NoCapacity"  # its pods are gone, for certain
# after all were given back: attempts that wait for the same machines may have them now
AGAIN_S = 60.0
KNOWN_S = 60.0  # for the cluster's DNS to know a pod that runs
NO_PROGRAM = (126, 127)  # exit codes: there is no such command
VOLUME_HINT = (
    "a claim that is `ReadWriteOnce` is on one machine alone; several nodes want the Provider"
    " object's `volumes: {accessMode: ReadWriteMany}`"
)

WITHOUT_POD_S = 1.0  # a Job controller makes a pod within a moment, or reports why it does not
SELECTED = "involvedObject.kind=Job,reason=FailedCreate"
MESSAGE_CHARS_MAX = 600
NO_RIGHT = "the role that reads Jobs may `get`, `list` and `watch` `events`, too, to say why"
_POD = re.compile(r'^Error creating: (?:pods "[^"]*" is forbidden: )?')
# A part of an answer, and its fix; the first that is in the answer.
_FIXES: tuple[tuple[str, str], ...] = (
    ("violates PodSecurity", ""),
    (
        "exceeded quota",
        "kubectl describe resourcequota -n {namespace}; lower `resources`, or raise the quota",
    ),
    ("failed quota", "give its needs in `resources`: its namespace has a ResourceQuota"),
    (
        " usage per ",
        "kubectl describe limitrange -n {namespace}; change `resources` accordingly",
    ),
    (
        "no PriorityClass",
        "kubectl get priorityclasses; correct `priorityClass` in `kubernetes` of the object, or of"
        " its Provider object",
    ),
    (
        "RuntimeClass",
        "kubectl get runtimeclasses; correct `runtimeClass` in `kubernetes` of the object, or of"
        " its Provider object",
    ),
    (
        "error looking up service account",
        "kubectl create serviceaccount -n {namespace} {account}",
    ),
)
_ACCOUNT = re.compile(r'serviceaccount "([^"]+)" not found')
_ROOT = "runAsNonRoot"
_AS_USER = (
    "an image of a registry runs as its own user: give it one other than root by `securityContext`"
    " of `kubernetes`, or take the image out, and a plain Python runs as one"
)
_LEVEL = (
    "kubectl label --overwrite namespace {namespace} pod-security.kubernetes.io/enforce=baseline"
)


# Kueue writes its reasons to Workloads of its own, which not every token may read: without these
# the queue's name is the only reason. A single list serves all waiting Jobs, so that a wait costs
# no Job a call.

PATH = "/apis/kueue.x-k8s.io/v1beta1/namespaces/{}/workloads"
JOB_UID = "kueue.x-k8s.io/job-uid"
ASK_S = 5.0
FRESH_S = 5.0  # a list is as good as a new one
UNREADABLE_S = 300.0  # until a list that was refused is tried again
LISTED_MAX = 2000
WORDS_MAX = 300  # characters
# The first condition that is false has the reason: no quota yet, or a check that has to pass
# beside it.
_CONDITIONS = ("QuotaReserved", "Admitted")


class GangGathering:
    """The pods of a Job, as they come."""

    def __init__(self, job: Object, settings: ClusterSettings) -> None:
        self._nodes = pod_statuses.nodes_of(job)
        self._limit_s = settings.gather_seconds
        self._until_s = math.inf  # since the first of several pods is bound to a node

    def is_whole(self, pods: Sequence[Object]) -> bool:
        there = {pod_statuses.node_of(pod) for pod in pods}
        return len(pods) == len(there) == self._nodes and all(map(pod_statuses.is_ready, pods))

    def takes_too_long(self, pods: Sequence[Object]) -> bool:
        """Returns whether some pods have waited on their nodes for as long as they may."""
        if self._nodes == 1 or not any(map(pod_statuses.is_placed, pods)):
            self._until_s = math.inf
        elif self._until_s == math.inf:
            self._until_s = time.monotonic() + self._limit_s
        return time.monotonic() >= self._until_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._until_s - time.monotonic())

    def describe_given_back(self, request: RunRequest, wait: pod_statuses.PodWait) -> Unavailable:
        """Returns why the pods were given back. wait: their last reason to wait."""
        return Unavailable(
            f"not all nodes ran within `gatherSeconds`, which is {self._limit_s:g}, so all were"
            f" given back: {wait.message}",
            reason=GIVEN_BACK,
            retry_after_s=AGAIN_S,
            hint=VOLUME_HINT if request.template.volumes else wait.hint,
        )


async def put_service(
    link: ClusterLink,
    job: Object,
    service: Object,
    *,
    deadline_s: float,
) -> None:
    """Creates a Service of the Job, once; it goes with the Job. Raises Unavailable while one of an
    earlier Job of the same name is there, which goes with that.
    """
    name = pod_statuses.name_of(service)
    what = f"the service `{name}` of job `{pod_statuses.name_of(job)}` cannot be made"
    try:
        async with cluster_call(what, deadline_s=deadline_s):
            await link.create("services", service)
    except ApiError as error:
        if is_conflict(error) and await _is_its_own(link, job, name, what, deadline_s):
            return
        why = "an earlier one is still there" if is_conflict(error) else str(error)
        raise Unavailable(f"{what}: {why}", retry_after_s=1.0) from error


async def _is_its_own(
    link: ClusterLink,
    job: Object,
    name: str,
    what: str,
    deadline_s: float,
) -> bool:
    """Returns whether the Service of this name was made for this Job."""
    try:
        async with cluster_call(what, deadline_s=deadline_s):
            found = await link.get("services", name)
    except ApiError as error:
        if is_not_found(error):
            return False
        raise
    owners = found["metadata"].get("ownerReferences") or ()
    return any(it.get("uid") == pod_statuses.uid_of(job) for it in owners)


async def acquaint_nodes(
    link: ClusterLink,
    job: Object,
    pods: Sequence[str],
) -> None:
    """Returns once every pod of several finds node 0 by its name. Raises Unavailable, and Refused
    for an image without Python.
    """
    if len(pods) < 2:
        return
    name = gang_manifests.host_name(pod_statuses.name_of(job), link.namespace, 0)
    await asyncio.gather(*(_check_resolves(link, pod, name) for pod in pods))


async def _check_resolves(
    link: ClusterLink,
    pod: str,
    name: str,
) -> None:
    what = f"pod `{pod}` does not find node 0"
    words = ""
    argv = wrap_command(gang_manifests.resolve_command([name], KNOWN_S))
    async with cluster_call(what, deadline_s=KNOWN_S * 2):
        try:
            channel = await run(link, pod, argv, container=MAIN)
            try:
                async for stream, data in channel.frames():
                    words += data.decode("utf-8", "replace") if stream == STDERR else ""
            finally:
                await channel.close()
        except (ApiError, ConnectionError) as error:
            raise Unavailable(f"{what}: {error}", retry_after_s=1.0) from error
    if channel.exit_code in NO_PROGRAM:
        raise Refused(
            "several nodes need Python in their image, and there is no `python3`",
            hint="install Python 3.9 or newer in `image.registry`",
        )
    if channel.exit_code != 0:
        told = " ".join(words.split())[-200:] or channel.failure
        told = told or "the command in it was cut off, as when the pod is deleted"
        raise Unavailable(f"{what}: {told}", reason="NodesNotReady", retry_after_s=1.0)


class AdmissionEvents:
    """Watches events of refused pods: by Pod Security, a ResourceQuota, a LimitRange, or for a
    PriorityClass, a RuntimeClass or a ServiceAccount that is not there. The Job controller tries
    again by itself, and the refusal is in its events alone. changed: called with the name of a Job
    with a new event.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._link: ClusterLink | None = None
        self._informer: Informer | None = None
        self._task: asyncio.Future[None] | None = None
        self._said: dict[str, str] = {}  # by uid of the Job, the newest

    def wait_of(self, link: ClusterLink, job: Object) -> PodWait | None:
        """Returns why a Job has no pod, where the controller has reported it. Begins to watch."""
        if self._link is not link:
            self._begin(link)
        metadata = job.get("metadata") or {}
        message = self._said.get(str(metadata.get("uid") or ""))
        if message is not None:
            return wait_for_message(message, link.namespace)
        return None

    @property
    def deaf(self) -> bool:
        """Returns whether events may not be read."""
        trouble: FleetctlError | None = None if self._informer is None else self._informer.trouble
        return bool(getattr(trouble, "account", False))

    async def close(self) -> None:
        if self._task is not None:
            await cancel_tasks([self._task])

    def _begin(self, link: ClusterLink) -> None:
        if self._task is not None:
            self._task.cancel()
        self._link = link
        self._said = {}
        self._informer = Informer(
            link.api, link.path("events"), changed=self._handle_event, field_selector=SELECTED
        )
        self._task = asyncio.ensure_future(self._informer.run())

    def _handle_event(
        self,
        sort: str,
        found: Object,
        before: Object | None,
    ) -> None:
        del before
        about = found.get("involvedObject") or {}
        uid = str(about.get("uid") or "")
        message = str(found.get("message") or "")
        if sort == "DELETED":  # an hour later, as servers have it
            if self._said.get(uid) == message:
                del self._said[uid]
        elif uid:
            self._said[uid] = message
            self._changed(str(about.get("name") or ""))


def wait_for_message(message: str, namespace: str) -> PodWait:
    """Returns the wait of a pod that the cluster refuses to create, with a fix. message: of a
    FailedCreate event.
    """
    text = " ".join(_POD.sub("", message).split())[:MESSAGE_CHARS_MAX]
    fix = next((fix for words, fix in _FIXES if words in text), "")
    if "violates PodSecurity" in text:
        fix = _AS_USER if _ROOT in text else _LEVEL
    account = _ACCOUNT.search(text)
    named = {"namespace": namespace, "account": account[1] if account else "NAME"}
    where = f"namespace `{namespace}` does not admit its pod"
    return PodWait(ADMISSION, f"{where}: {text}", fix.format(**named))


class Kueue:
    def __init__(self) -> None:
        self._known: dict[
            ClusterLink, tuple[dict[str, str], float]
        ] = {}  # and until when that holds
        self._asking = asyncio.Lock()

    async def words(self, link: ClusterLink, job: Object) -> str:
        """Returns why Kueue does not admit the Job, in its own words; "" without a reason."""
        async with self._asking:
            words, until_s = self._known.get(link, ({}, 0.0))
            if time.monotonic() >= until_s:
                words, fresh_s = await _list_workloads(link)
                self._known[link] = (words, time.monotonic() + fresh_s)
        return words.get(pod_statuses.uid_of(job), "")


async def _list_workloads(link: ClusterLink) -> tuple[dict[str, str], float]:
    """Returns (by uid of the Job, how many seconds that is good for)."""
    path = PATH.format(link.namespace)
    try:
        async with cluster_call("Kueue's workloads cannot be listed", deadline_s=ASK_S):
            answer = await link.api.request("GET", path, query={"limit": LISTED_MAX}, tries=1)
    except FleetctlError:  # without that right, or that version: it is only a message
        return {}, UNREADABLE_S
    found = {}
    for workload in answer.get("items") or ():
        labels = (workload.get("metadata") or {}).get("labels") or {}
        found[str(labels.get(JOB_UID))] = _explain_workload(workload)
    return found, FRESH_S


def _explain_workload(workload: Object) -> str:
    held = {
        str(one.get("type")): str(one.get("message") or "")
        for one in (workload.get("status") or {}).get("conditions") or ()
        if one.get("status") == "False"
    }
    text = next((held[sort] for sort in _CONDITIONS if held.get(sort)), "")
    return " ".join(text.split())[:WORDS_MAX].rstrip(". ")

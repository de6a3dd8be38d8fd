"""Reads why a cluster's admission refuses Jobs' pods: the Job controller's events, read at the
first need and watched from then on. Called by job_creator.py.

Pod Security, a ResourceQuota, a LimitRange, or a PriorityClass, a RuntimeClass or a ServiceAccount
that is not there: the controller tries again by itself, and the refusal is in its events alone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from fleetctl.common.errors import FleetctlError
from fleetctl.common.tasks import cancel_tasks
from fleetctl.kubernetes.connection import Object
from fleetctl.kubernetes.informer import Informer
from fleetctl.providers.kubernetes.connection.kubernetes_connection import ClusterLink
from fleetctl.providers.kubernetes.runs.pod_statuses import ADMISSION, PodWait

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


class AdmissionEvents:
    """Watches events of refused pods. changed: called with the name of a Job with a new event."""

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
    """message: of a FailedCreate event."""
    text = " ".join(_POD.sub("", message).split())[:MESSAGE_CHARS_MAX]
    fix = next((fix for words, fix in _FIXES if words in text), "")
    if "violates PodSecurity" in text:
        fix = _AS_USER if _ROOT in text else _LEVEL
    account = _ACCOUNT.search(text)
    named = {"namespace": namespace, "account": account[1] if account else "NAME"}
    where = f"namespace `{namespace}` does not admit its pod"
    return PodWait(ADMISSION, f"{where}: {text}", fix.format(**named))

"""Gathers all nodes of an attempt, or gives all back: which pods are there, how long that may take,
and how they find each other. Called by job_creator.py; the work has not begun here.

Kueue lets all pods of a Job in at once. Without it some may hold machines while others wait for
them, perhaps for each other: so after a while all are given back.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import Object
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

    def given_back(self, request: RunRequest, wait: pod_statuses.PodWait) -> Unavailable:
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
    *,
    deadline_s: float,
) -> None:
    """The Service that gives its pods names, once; it goes with the Job. Raises Unavailable while
    one of an earlier Job of the same name is there, which goes with that.
    """
    name = pod_statuses.name_of(job)
    what = f"the service of job `{name}` cannot be made"
    try:
        async with cluster_call(what, deadline_s=deadline_s):
            await link.create("services", gang_manifests.build_service(job))
    except ApiError as error:
        if is_conflict(error) and await _is_its_own(link, job, what, deadline_s):
            return
        why = "an earlier one is still there" if is_conflict(error) else str(error)
        raise Unavailable(f"{what}: {why}", retry_after_s=1.0) from error


async def _is_its_own(
    link: ClusterLink,
    job: Object,
    what: str,
    deadline_s: float,
) -> bool:
    try:
        async with cluster_call(what, deadline_s=deadline_s):
            found = await link.get("services", pod_statuses.name_of(job))
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

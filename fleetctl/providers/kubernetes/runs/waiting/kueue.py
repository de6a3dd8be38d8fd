"""Reads Kueue's reasons for Jobs that it has yet to admit. Called by job_creator.py.

Kueue writes them to Workloads of its own, which not every token may read: without them the queue's
name is the only reason. A single list serves all waiting Jobs, so that a wait costs no Job a call.
"""

from __future__ import annotations

import asyncio
import time

from fleetctl.common.errors import FleetctlError
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.connection.kubernetes_connection import ClusterLink
from fleetctl.providers.kubernetes.connection.kubernetes_errors import cluster_call
from fleetctl.providers.kubernetes.runs import pod_statuses

PATH = "/apis/kueue.x-k8s.io/v1beta1/namespaces/{}/workloads"
JOB_UID = "kueue.x-k8s.io/job-uid"
ASK_S = 5.0
FRESH_S = 5.0  # a list is as good as a new one
UNREADABLE_S = 300.0  # until a list that was refused is tried again
LISTED_MAX = 2000
WORDS_MAX = 300  # characters
# The first that is false has the reason: no quota yet, or a check that has to pass beside it.
_CONDITIONS = ("QuotaReserved", "Admitted")


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

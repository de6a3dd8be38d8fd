"""What Kueue says of Jobs that it has yet to admit. Called by creates.py.

Kueue writes it to Workloads of its own, which not every token may read: without them the queue's
name is all that is told. One list is for all Jobs that wait, so that to wait costs none of them a
call.
"""

from __future__ import annotations

import asyncio
import time

from fleetctl.common.errors import FleetctlError
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.connection.client import Link
from fleetctl.providers.kubernetes.connection.errors import asking
from fleetctl.providers.kubernetes.runs import statuses

PATH = "/apis/kueue.x-k8s.io/v1beta1/namespaces/{}/workloads"
JOB_UID = "kueue.x-k8s.io/job-uid"
ASK_S = 5.0
FRESH_S = 5.0  # a list is as good as a new one
AGAIN_S = 10.0  # between two looks at what it says of a Job, at the list that all share
UNREADABLE_S = 300.0  # until a list that was refused is tried again
LISTED_MAX = 2000
WORDS_MAX = 300  # characters
# The first that is false says why: no quota yet, or a check that has to pass beside it.
_CONDITIONS = ("QuotaReserved", "Admitted")


class Kueue:
    def __init__(self) -> None:
        self._known: dict[Link, tuple[dict[str, str], float]] = {}  # and until when that holds
        self._asking = asyncio.Lock()

    async def words(self, link: Link, job: Object) -> str:
        """Why it does not admit the Job, in its own words; "" where it says nothing."""
        async with self._asking:
            words, until_s = self._known.get(link, ({}, 0.0))
            if time.monotonic() >= until_s:
                words, fresh_s = await _listed(link)
                self._known = {link: (words, time.monotonic() + fresh_s)}
        return words.get(statuses.uid_of(job), "")


async def _listed(link: Link) -> tuple[dict[str, str], float]:
    """(by uid of the Job, how many seconds that is good for)."""
    path = PATH.format(link.namespace)
    try:
        async with asking("Kueue's workloads cannot be listed", deadline_s=ASK_S):
            answer = await link.api.request("GET", path, query={"limit": LISTED_MAX}, tries=1)
    except FleetctlError:  # without that right, or that version: it is only for people
        return {}, UNREADABLE_S
    found = {}
    for workload in answer.get("items") or ():
        labels = (workload.get("metadata") or {}).get("labels") or {}
        found[str(labels.get(JOB_UID))] = _why(workload)
    return found, FRESH_S


def _why(workload: Object) -> str:
    held = {
        str(one.get("type")): str(one.get("message") or "")
        for one in (workload.get("status") or {}).get("conditions") or ()
        if one.get("status") == "False"
    }
    text = next((held[sort] for sort in _CONDITIONS if held.get(sort)), "")
    return " ".join(text.split())[:WORDS_MAX].rstrip(". ")

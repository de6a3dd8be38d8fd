"""An API server with its Job controller, garbage collector and kubelets, in virtual time: what is
true, and how late and how incompletely it is told.

A name is taken until its object is gone. A create whose reply is lost may land late. A watch lags
by seconds, leaves events out and breaks, and a list may be an old one; what is asked by name is
answered by the truth, or not at all. Stands in for fleetctl/kubernetes/connection.py.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fleetctl.common.errors import Unavailable
from fleetctl.kubernetes.answers import ApiError
from fleetctl.providers.kubernetes.manifests.jobs import MAIN
from fleetctl.providers.kubernetes.manifests.labels import JOB_NAME
from tests.simulation.loop import Timeline

Object = dict[str, Any]

LAG_S = 12.0  # of a watch, at most; far beyond what the contract of the provider says
STEP_S = 0.5  # between two looks of a watch at what is due
DROPPED = 0.05  # chance that a watch leaves an event out
STALE, STALE_S = 0.5, 30.0  # chance that a list is old, and how old at most
NEVER_S = 1e9


@dataclass(frozen=True, slots=True)
class Event:
    version: int
    at_s: float
    sort: str
    found: Object


@dataclass
class Work:
    """What a task does in a pod. ended: by itself, and its guest tells so."""

    run: str
    ended: bool = False


@dataclass
class Server:
    """wrong: what must never be. begun: how often the work of each run began, in any pod."""

    rng: Random
    timeline: Timeline
    faults_until_s: float
    version: int = 1
    compacted: int = 0
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=lambda: {"jobs": [], "pods": []})
    work: dict[str, Work] = field(default_factory=dict)  # by name of pod
    begun: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def stormy(self) -> bool:
        return self.timeline.now_s < self.faults_until_s

    # -- as a connection ---------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Any = None,
        body: Any = None,
        content_type: str = "",
        deadline_s: float = 15.0,
        tries: int = 4,
    ) -> Object:
        """As Connection.request, which gives up sooner here."""
        del query, content_type, tries
        fate = self.rng.random() if self.stormy else 1.0
        await asyncio.sleep(self.rng.uniform(0, 0.1))
        if fate < 0.05:
            raise Unavailable("refused before it was read")
        if fate < 0.08:  # it is on its way, and nobody waits for it any more
            late_s = self.rng.uniform(1, 20)
            self.timeline.after(late_s, lambda: self._late(method, path, body))
            await asyncio.sleep(deadline_s)
            raise Unavailable("silence", perhaps_made=True)
        answer = self._answer(method, path, body)
        await asyncio.sleep(self.rng.uniform(0, 0.1))
        if fate < 0.13:
            raise Unavailable("the reply is lost", perhaps_made=True)
        return answer

    async def text(self, path: str, query: Any = None) -> bytes:
        """A pod's log, which is empty."""
        del query
        await self.request("GET", path.removesuffix("/log"))
        return b""

    async def websocket(self, *_: Any) -> Any:
        """No command is run here: `begin` and `told` are what they are for."""
        raise ApiError(500, "InternalError", "no line")

    async def watch(self, path: str, query: Any) -> AsyncIterator[Object]:
        plural, version = _named(path)[0], int(query["resourceVersion"])
        if version < self.compacted:
            raise ApiError(410, "Expired", "too old resource version")
        lag_s = self.rng.uniform(0, LAG_S) if self.stormy else 0.1
        ends_s = self.timeline.now_s + self.rng.uniform(5, 60)
        told, events = 0, self.events[plural]
        while self.timeline.now_s < ends_s:
            while told < len(events) and events[told].at_s + lag_s <= self.timeline.now_s:
                event = events[told]
                told += 1
                if event.version > version and not (self.stormy and self._chance(DROPPED)):
                    yield {"type": event.sort, "object": copy.deepcopy(event.found)}
            await asyncio.sleep(STEP_S)
            if self._chance(0.05):
                seen = max(version, events[told - 1].version if told else 0)
                yield {
                    "type": "BOOKMARK",
                    "object": {"metadata": {"resourceVersion": str(seen)}},
                }
        if self._chance(0.5):
            raise Unavailable("the watch broke")

    def _late(self, method: str, path: str, body: Any) -> None:
        try:
            self._answer(method, path, body)
        except ApiError:
            return  # whom it would concern has gone

    def _answer(self, method: str, path: str, body: Any) -> Object:
        plural, name = _named(path)
        if method == "GET" and not name:
            return self._listed(plural)
        if method == "POST":
            return self._made(plural, body)
        found = self.objects.get((plural, name))
        if found is None:
            raise ApiError(404, "NotFound", f"{plural} `{name}` not found")
        if method == "DELETE":
            wanted = ((body or {}).get("preconditions") or {}).get("uid")
            if wanted not in (None, found["metadata"]["uid"]):
                raise ApiError(409, "Conflict", "the UID in the precondition does not match")
            self._asked_to_go(plural, name)
        return copy.deepcopy(found)

    def _listed(self, plural: str) -> Object:
        """As it is, or as it was: a server of several may be behind the others."""
        stale = self.stormy and self._chance(STALE)
        until_s = self.timeline.now_s - (self.rng.uniform(0, STALE_S) if stale else 0.0)
        found: dict[str, Object] = {}
        version = self.compacted
        for event in self.events[plural]:
            if event.at_s > until_s:
                break
            version = max(version, event.version)
            name = event.found["metadata"]["name"]
            found.pop(name, None)
            if event.sort != "DELETED":
                found[name] = copy.deepcopy(event.found)
        return {"metadata": {"resourceVersion": str(version)}, "items": list(found.values())}

    def _made(self, plural: str, body: Object) -> Object:
        name = str(body["metadata"]["name"])
        if (plural, name) in self.objects:
            raise ApiError(409, "AlreadyExists", f"{plural} `{name}` already exists")
        made = copy.deepcopy(body)
        made["metadata"]["uid"] = f"uid-{self.version}"
        self.objects[plural, name] = made
        self._note(plural, "ADDED", made)
        if plural == "jobs":
            uid = made["metadata"]["uid"]
            self.timeline.after(self.rng.uniform(0, 3), lambda: self._make_pod(name, uid))
        return copy.deepcopy(made)

    # -- controllers and kubelets ------------------------------------------------------------------

    def _make_pod(self, job: str, uid: str) -> None:
        found = self.objects.get(("jobs", job))
        if found is None or found["metadata"]["uid"] != uid:
            return
        template = found["spec"]["template"]
        labels = {**template["metadata"]["labels"], JOB_NAME: job}
        pod = {
            "metadata": {
                **template["metadata"],
                "name": f"{job}-{uid}",
                "labels": labels,
                "owner": uid,
            },
            "spec": {"nodeName": "node"},
            "status": {"phase": "Pending"},
        }
        made = self._made("pods", pod)
        name = made["metadata"]["name"]
        self.timeline.after(self.rng.uniform(0, 5), lambda: self._run(name))

    def _run(self, pod: str) -> None:
        found = self.objects.get(("pods", pod))
        if found is not None and "deletionTimestamp" not in found["metadata"]:
            running = [{"name": MAIN, "state": {"running": {}}}]
            found["status"] = {"phase": "Running", "containerStatuses": running}
            self._note("pods", "MODIFIED", found)

    def _asked_to_go(self, plural: str, name: str) -> None:
        found = self.objects[plural, name]
        if plural == "jobs":  # in the background: the collector finds its pods later
            self._drop("jobs", name)
            uid = found["metadata"]["uid"]
            self.timeline.after(self.rng.uniform(0, 4), lambda: self._collect(uid))
        elif "deletionTimestamp" not in found["metadata"]:
            self._leave(name, self.rng.uniform(0, 8))

    def _collect(self, owner: str) -> None:
        owned = [
            name for (_, name), it in self.objects.items() if it["metadata"].get("owner") == owner
        ]
        for name in owned:
            self._asked_to_go("pods", name)

    def _leave(self, pod: str, after_s: float) -> None:
        found = self.objects["pods", pod]
        found["metadata"]["deletionTimestamp"] = "now"
        self._note("pods", "MODIFIED", found)
        self.timeline.after(after_s, lambda: self._drop("pods", pod))

    def _drop(self, plural: str, name: str) -> None:
        found = self.objects.pop((plural, name), None)
        if found is None:
            return
        self._note(plural, "DELETED", found)
        if plural == "pods":
            self._pod_over(found)

    def _pod_over(self, pod: Object) -> None:
        job, uid = pod["metadata"]["labels"][JOB_NAME], pod["metadata"]["owner"]
        self.timeline.after(self.rng.uniform(0, 2), lambda: self._fail(job, uid))

    def _fail(self, job: str, uid: str) -> None:
        """As a Job without retries does."""
        found = self.objects.get(("jobs", job))
        if found is not None and found["metadata"]["uid"] == uid and "status" not in found:
            failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy"}
            found["status"] = {"conditions": [failed]}
            self._note("jobs", "MODIFIED", found)

    def _note(self, plural: str, sort: str, found: Object) -> None:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        if plural in self.events:
            event = Event(self.version, self.timeline.now_s, sort, copy.deepcopy(found))
            self.events[plural].append(event)

    # -- what happens to pods ----------------------------------------------------------------------

    def evict(self, pod: str) -> None:
        found = self.objects["pods", pod]
        found["status"] = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
        self._note("pods", "MODIFIED", found)
        self._pod_over(found)

    def lose_node(self, pod: str) -> None:
        """It works on, and the server says that it shall go; it goes when the node is back."""
        found = self.objects["pods", pod]
        found["status"]["conditions"] = [
            {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        ]
        self._leave(pod, self.rng.uniform(20, 60))

    def delete(self, job: str) -> None:
        """Somebody does, with kubectl."""
        self._asked_to_go("jobs", job)

    def compact(self) -> None:
        """Whoever watches has to list anew, and hears of what was left out."""
        self.version += 1
        self.compacted = self.version

    # -- the truth ---------------------------------------------------------------------------------

    def pods(self) -> list[str]:
        """Names of those whose container runs, whatever is said of them."""
        return [name for sort, name in self.objects if sort == "pods" and self.lives(name)]

    def lives(self, pod: str) -> bool:
        found = self.objects.get(("pods", pod))
        return found is not None and found["status"]["phase"] == "Running"

    def works(self, pod: str) -> bool:
        return self.lives(pod) and pod in self.work and not self.work[pod].ended

    async def begin(self, pod: str, run: str) -> None:
        """The guest's latch: once a pod. Raises ConnectionError where nobody can say."""
        await asyncio.sleep(self.rng.uniform(0, 0.2))
        leaving = "deletionTimestamp" in self.objects.get(("pods", pod), {}).get("metadata", {})
        if not self.lives(pod) or leaving or (self.stormy and self._chance(0.1)):
            raise ConnectionError("no line")
        if pod not in self.work:
            self.work[pod] = Work(run)
            self.begun[run] += 1
            self._judge_begin(pod, run)
            self.timeline.after(self.rng.uniform(3, 40), lambda: self._finish(pod))
        if self.stormy and self._chance(0.1):
            raise ConnectionError("the line broke")

    def _judge_begin(self, pod: str, run: str) -> None:
        if self.begun[run] > 1:
            self.wrong.append(f"the work of {run} began again, in {pod}")
        unit = run.partition("-")[0]
        for other, work in self.work.items():
            if other != pod and self.works(other) and work.run.partition("-")[0] == unit:
                self.wrong.append(f"{run} began while {other} still worked")

    def _finish(self, pod: str) -> None:
        if self.lives(pod):
            self.work[pod].ended = True

    def told(self, pod: str) -> bool:
        """Returns whether its line tells that the task came to its end."""
        return self.lives(pod) and pod in self.work and self.work[pod].ended

    def _chance(self, odds: float) -> bool:
        return self.rng.random() < odds


def _named(path: str) -> tuple[str, str]:
    """(plural, name or "") of a path such as /api/v1/namespaces/x/pods/y."""
    parts = path.split("/namespaces/")[1].split("/")
    return parts[1], parts[2] if len(parts) > 2 else ""

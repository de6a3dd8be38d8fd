"""The Job controller: pods for Jobs, and what became of them, counted once."""

from __future__ import annotations

import time
from typing import Any

from tests.emulators.kubernetes.api.writes.deleting import Deletion, delete
from tests.emulators.kubernetes.api.writes.writing import Writer
from tests.emulators.kubernetes.controllers.job_ends import (
    left_of_deadline_s,
    made_condition,
    policy_action,
    verdict,
)
from tests.emulators.kubernetes.controllers.job_pods import new_pod
from tests.emulators.kubernetes.controllers.job_state import (
    TRACKING,
    JobState,
    condition,
    ended,
    finished,
    index_of,
    intervals,
)
from tests.emulators.kubernetes.controllers.working import Queue, Recorder, controller_of
from tests.emulators.kubernetes.store.errors import ApiError
from tests.emulators.kubernetes.store.objects import Entry, Event
from tests.emulators.kubernetes.store.times import now_text, seconds_of

Object = dict[str, Any]
JOBS, PODS = ("batch", "jobs"), ("", "pods")
OWN = "kubernetes.io/job-controller"
BACKOFF_S_MAX = 360.0
Where = tuple[str, str]
BATCH_MAX = 500  # pods made in one go
CREATED = "SuccessfulCreate"
CREATE_RETRY_S = 1.0


class Jobs:
    """backoff_s: before the first retry of a failed pod, doubled with each; 10 in real life."""

    def __init__(self, writer: Writer, recorder: Recorder, *, backoff_s: float = 10.0) -> None:
        self._writer, self._recorder = writer, recorder
        self.backoff_s = backoff_s
        self._jobs = writer.resources.get(*JOBS)
        self._pods = writer.resources.get(*PODS)
        self._states: dict[str, JobState] = {}
        self._places: dict[str, Where] = {}
        self.queue: Queue[Where] = Queue(self._reconcile)
        self._ended_jobs: Queue[str] = Queue(self._let_go)
        writer.store.listeners.append(self._on_event)

    def _on_event(self, event: Event) -> None:
        stored = event.entry.object
        if event.key == JOBS:
            uid = stored["metadata"]["uid"]
            self._places[uid] = event.entry.place
            if event.kind == "DELETED":
                self._ended_jobs.add(uid)
            else:
                self.queue.add(event.entry.place)
        elif event.key == PODS:
            owner = controller_of(stored)
            if owner is None or owner["kind"] != "Job":
                return
            state = self._states.setdefault(owner["uid"], JobState())
            metadata, there = stored["metadata"], event.kind != "DELETED"
            held = there and TRACKING in (metadata.get("finalizers") or ())
            leaving = there and metadata.get("deletionTimestamp") and not ended(stored)
            for names, holds in ((state.live, held), (state.leaving, leaving)):
                (names.add if holds else names.discard)(metadata["name"])
            if owner["uid"] in self._places:
                self.queue.add(self._places[owner["uid"]])

    def _let_go(self, uid: str) -> None:
        """Pods of a Job that is gone are held no more."""
        namespace, _ = self._places.pop(uid)
        for name in list(self._states.get(uid, JobState()).live):
            self._writer.change(self._pods, namespace, name, _untrack)
        self._states.pop(uid, None)

    def _reconcile(self, where: Where) -> None:
        entry = self._writer.store.get(JOBS, *where)
        if entry is None:
            return
        job = entry.object
        if job["spec"].get("managedBy", OWN) != OWN:
            return
        state = self._states.setdefault(job["metadata"]["uid"], JobState())
        pods = self._live_pods(state, where[0])
        if job["metadata"].get("deletionTimestamp") or finished(job):
            for pod in pods:
                if ended(pod.object) or job["metadata"].get("deletionTimestamp"):
                    self._writer.change(self._pods, *pod.place, _untrack)
            self._expire(entry)
            return
        self._sync(entry, state, pods)

    def _live_pods(self, state: JobState, namespace: str) -> list[Entry]:
        found = (self._writer.store.get(PODS, namespace, it) for it in sorted(state.live))
        return [it for it in found if it is not None]

    def _sync(self, entry: Entry, state: JobState, pods: list[Entry]) -> None:
        job, spec = entry.object, entry.object["spec"]
        status = dict(job.get("status") or {})
        status["conditions"] = list(status.get("conditions") or ())
        left, failed = self._count(job, state, pods)
        self._suspension(job, status)
        if "startTime" not in status and not spec["suspend"]:
            status["startTime"] = now_text()
        active = [it for it in left if not it.object["metadata"].get("deletionTimestamp")]
        end = condition({"status": status}, "FailureTarget") or condition(
            {"status": status}, "SuccessCriteriaMet"
        )
        if end is None:
            end = failed or self._verdict(job, state, status, active)
            if end is not None:
                status["conditions"].append(end)
        if end is not None or spec["suspend"]:
            self._delete(active)
            active = []
            if end is not None and not state.leaving:
                self._finish(job, status, end)
        else:
            surplus = self._surplus(job, state, active)
            self._delete(surplus)
            active = [it for it in active if it not in surplus]
            active += self._start(entry, state, active)
        self._write(entry, state, status, active=active)

    def _count(
        self, job: Object, state: JobState, pods: list[Entry]
    ) -> tuple[list[Entry], Object | None]:
        """(pods that are not over, what a failure policy says of one that is)."""
        left, end = [], None
        for pod in pods:
            if pod.object.get("status", {}).get("phase") == "Succeeded":
                self._succeeded(job["spec"], state, pod.object)
            elif _has_failed(job["spec"], pod.object):
                found = self._failed(job, state, pod.object)
                end = end or found
            else:
                left.append(pod)
                continue
            self._writer.change(self._pods, *pod.place, _untrack)
        return left, end

    def _succeeded(self, spec: Object, state: JobState, pod: Object) -> None:
        state.failures_in_row = 0
        index = index_of(pod)
        if spec["completionMode"] == "Indexed":
            total = spec["completions"]
            if index is not None and index < total and index not in state.failed_indexes:
                state.completed.add(index)
            state.succeeded = len(state.completed)
        else:
            state.succeeded += 1

    def _failed(self, job: Object, state: JobState, pod: Object) -> Object | None:
        spec = job["spec"]
        action, why = policy_action(
            spec.get("podFailurePolicy") or {}, pod, spec["template"]["spec"]["containers"]
        )
        if action == "Ignore" or condition(job, "Suspended"):
            return None
        index = index_of(pod)
        state.failed += 1
        state.failures_in_row += 1
        state.failed_at_s = time.time()
        limit = spec.get("backoffLimitPerIndex")
        if limit is not None and index is not None:
            state.failures[index] = state.failures.get(index, 0) + 1
            state.failed_at_s_by_index[index] = time.time()
            if action == "FailIndex" or state.failures[index] > limit:
                state.failed_indexes.add(index)
        return (
            made_condition("FailureTarget", "PodFailurePolicy", why)
            if action == "FailJob"
            else None
        )

    def _verdict(
        self, job: Object, state: JobState, status: Object, active: list[Entry]
    ) -> Object | None:
        """How the Job ends; None when it goes on."""
        left_s = left_of_deadline_s(job["spec"], status, time.time())
        if left_s is not None and left_s > 0:
            self.queue.add_after(_place(job), left_s + 0.01)
        return verdict(job["spec"], state, left_s=left_s, active=[it.object for it in active])

    def _finish(self, job: Object, status: Object, end: Object) -> None:
        good = end["type"] == "SuccessCriteriaMet"
        kind = "Complete" if good else "Failed"
        status["conditions"].append(made_condition(kind, end["reason"], end["message"]))
        if good:
            status["completionTime"] = now_text()
            self._tell(job, "Completed", "Job completed")
        else:
            self._tell(job, end["reason"], end["message"], warning=True)

    def _suspension(self, job: Object, status: Object) -> None:
        held = next((it for it in status["conditions"] if it["type"] == "Suspended"), None)
        suspended = job["spec"]["suspend"]
        if suspended == (held is not None and held["status"] == "True"):
            return
        status["conditions"] = [it for it in status["conditions"] if it is not held]
        if suspended:
            one = made_condition("Suspended", "JobSuspended", "Job suspended")
            status.pop("startTime", None)
            self._tell(job, "Suspended", "Job suspended")
        elif held is not None:
            one = made_condition("Suspended", "JobResumed", "Job resumed") | {"status": "False"}
            status["startTime"] = now_text()
            self._tell(job, "Resumed", "Job resumed")
        status["conditions"].append(one)

    def _surplus(self, job: Object, state: JobState, active: list[Entry]) -> list[Entry]:
        """Pods beyond parallelism, and of indexes that are over; the newest first."""
        gone = [
            it
            for it in active
            if (index := index_of(it.object)) is not None
            and (index in state.completed or index in state.failed_indexes)
        ]
        left = [it for it in active if it not in gone]
        more = len(left) - job["spec"]["parallelism"]
        left.sort(key=lambda it: (it.object.get("status", {}).get("phase") == "Running", -it.rv))
        return gone + left[: max(more, 0)]

    def _start(self, entry: Entry, state: JobState, active: list[Entry]) -> list[Entry]:
        job, spec = entry.object, entry.object["spec"]
        late = spec["podReplacementPolicy"] == "Failed"
        held = len(active) + (len(state.leaving) if late else 0)
        free = spec["parallelism"] - held
        total = spec.get("completions")
        if total is not None:
            free = min(free, total - state.succeeded - held)
        elif state.succeeded:
            free = 0
        if free <= 0:
            return []
        if "backoffLimitPerIndex" not in spec and state.failures_in_row:
            wait_s = self._backoff_s(state.failures_in_row) + state.failed_at_s - time.time()
            if wait_s > 0:
                self.queue.add_after(_place(job), wait_s)
                return []
        indexes: list[int | None] = [None] * free
        if spec["completionMode"] == "Indexed":
            indexes = [*self._free_indexes(job, state, active, free)]
        if len(indexes) > BATCH_MAX:
            self.queue.add_after(_place(job), 0.01)
        made = []
        for index in indexes[:BATCH_MAX]:
            count = state.failures.get(index, 0) if index is not None else 0
            try:
                pod = self._writer.create(self._pods, new_pod(job, index, failures=count))
            except ApiError as error:
                # A quota, or a namespace that is going away: in a while there may be room.
                self._tell(job, "FailedCreate", f"Error creating: {error.message}", warning=True)
                self.queue.add_after(_place(job), CREATE_RETRY_S)
                break
            self._tell(job, CREATED, f"Created pod: {pod.object['metadata']['name']}")
            made.append(pod)
        return made

    def _free_indexes(
        self, job: Object, state: JobState, active: list[Entry], free: int
    ) -> list[int]:
        taken = {index_of(it.object) for it in active} | state.completed | state.failed_indexes
        found: list[int] = []
        for index in range(job["spec"]["completions"]):
            if len(found) >= free:
                break
            if index in taken:
                continue
            failures = state.failures.get(index, 0)
            wait_s = 0.0
            if failures:
                began = state.failed_at_s_by_index[index]
                wait_s = self._backoff_s(failures) + began - time.time()
            if wait_s > 0:
                self.queue.add_after(_place(job), wait_s)
            else:
                found.append(index)
        return found

    def _backoff_s(self, failures: int) -> float:
        return min(self.backoff_s * 2.0 ** min(failures - 1, 20), BACKOFF_S_MAX)

    def _delete(self, pods: list[Entry]) -> None:
        for pod in pods:
            delete(self._writer, self._pods, pod, Deletion())

    def _write(self, entry: Entry, state: JobState, status: Object, *, active: list[Entry]) -> None:
        spec = entry.object["spec"]
        counts: dict[str, Any] = {
            "active": len(active),
            "ready": sum(_ready(it.object) for it in active),
            "terminating": len(state.leaving),
            "succeeded": state.succeeded,
            "failed": state.failed,
            "uncountedTerminatedPods": {},
        }
        if spec["completionMode"] == "Indexed":
            counts["completedIndexes"] = intervals(state.completed)
            if "backoffLimitPerIndex" in spec:
                counts["failedIndexes"] = intervals(state.failed_indexes)
        always = ("ready", "terminating", "uncountedTerminatedPods", "failedIndexes")
        for name, value in counts.items():
            if value or name in always:
                status[name] = value
            else:
                status.pop(name, None)
        if not status["conditions"]:
            del status["conditions"]
        self._writer.change(self._jobs, *entry.place, lambda job: job.update(status=status))

    def _expire(self, entry: Entry) -> None:
        """ttlSecondsAfterFinished."""
        job = entry.object
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        if ttl is None or job["metadata"].get("deletionTimestamp"):
            return
        end = condition(job, "Complete") or condition(job, "Failed")
        assert end is not None
        left_s = seconds_of(end["lastTransitionTime"]) + ttl - time.time()
        if left_s > 0:
            self.queue.add_after(entry.place, left_s + 0.01)
        else:
            delete(self._writer, self._jobs, entry, Deletion("Foreground"))

    def _tell(self, job: Object, reason: str, message: str, *, warning: bool = False) -> None:
        self._recorder.tell(job, reason, message, source="job-controller", warning=warning)


def _has_failed(spec: Object, pod: Object) -> bool:
    """Also of a pod that is deleted, unless the Job wants to see it end; one that never got a node
    has nothing that could.
    """
    if pod.get("status", {}).get("phase") == "Failed":
        return True
    waits = "podFailurePolicy" in spec or spec["podReplacementPolicy"] == "Failed"
    deleted = pod["metadata"].get("deletionTimestamp")
    return bool(deleted) and (not waits or not pod["spec"].get("nodeName"))


def _place(job: Object) -> Where:
    return job["metadata"]["namespace"], job["metadata"]["name"]


def _ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)


def _untrack(pod: Object) -> None:
    kept = [it for it in pod["metadata"].get("finalizers") or () if it != TRACKING]
    pod["metadata"]["finalizers"] = kept
    if not kept:
        del pod["metadata"]["finalizers"]

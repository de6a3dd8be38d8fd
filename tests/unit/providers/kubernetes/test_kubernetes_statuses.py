"""What a pod and its Job say of themselves, read as the API server tells it."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.providers.kubernetes.runs import statuses, story
from fleetctl.providers.remote.sandboxes.base import At
from fleetctl.providers.remote.sandboxes.fates import Cause


def pod(phase: str = "Failed", main: Any = None, **status: Any) -> dict[str, Any]:
    containers = [{"name": "main", "state": main}] if main is not None else []
    return {"metadata": {}, "status": {"phase": phase, "containerStatuses": containers, **status}}


def condition(sort: str, status: str = "True", **more: str) -> list[dict[str, str]]:
    return [{"type": sort, "status": status, **more}]


PREEMPTED = condition("DisruptionTarget", reason="PreemptionByScheduler", message="for another")


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (pod(main={"terminated": {"reason": "OOMKilled", "exitCode": 137}}), Cause.OUT_OF_MEMORY),
        (pod(conditions=PREEMPTED), Cause.PREEMPTED),
        (pod(reason="Evicted", message="low on memory"), Cause.PREEMPTED),
        (pod(reason="NodeLost"), Cause.PREEMPTED),
        (pod(reason="DeadlineExceeded"), Cause.TIMEOUT),
        (pod(main={"terminated": {"exitCode": 3}}), Cause.FAILED),
        (pod("Succeeded", main={"terminated": {"exitCode": 0}}), Cause.LOST),
    ],
)
def test_a_pods_end_has_one_cause(found: dict[str, Any], cause: Cause) -> None:
    assert statuses.fate_of(found, ours=False).cause is cause
    assert statuses.fate_of(found, ours=True).cause is Cause.STOPPED


def test_a_wait_is_told_in_the_words_of_who_keeps_it_waiting() -> None:
    job: dict[str, Any] = {"metadata": {"labels": {}}, "spec": {}}
    words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    full = condition("PodScheduled", "False", reason="Unschedulable", message=words)
    assert statuses.wait_of(job, pod("Pending", conditions=full)) == statuses.Wait(
        "Unschedulable", words
    )
    pulling = pod("Pending", main={"waiting": {"reason": "ImagePullBackOff", "message": "no x"}})
    assert statuses.wait_of(job, pulling) == statuses.Wait("ImagePullBackOff", "no x")
    absent = pod(
        "Pending",
        main={
            "waiting": {
                "reason": "CreateContainerConfigError",
                "message": 'secret "kept" not found',
            }
        },
    )
    missing = statuses.wait_of(job, absent)
    assert (missing.reason, "`kept`" in missing.message) == ("SecretMissing", True)
    assert missing.hint.startswith("kubectl create secret generic kept -n default")
    queued = {
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"suspend": True},
    }
    assert "`team`" in statuses.wait_of(queued, None).message


def test_a_pod_is_ready_while_its_container_runs_and_nobody_asked_for_its_end() -> None:
    running = pod("Running", main={"running": {}})
    assert statuses.is_ready(running)
    assert not statuses.is_ready({**running, "metadata": {"deletionTimestamp": "now"}})
    assert not statuses.is_ready(pod("Pending", main={"waiting": {}}))


def test_a_pods_life_counts_from_when_its_node_took_it() -> None:
    assert statuses.began_at_s(pod("Pending")) is None
    assert statuses.began_at_s(pod("Running", startTime="1970-01-01T00:01:00Z")) == 60.0


def test_a_pod_whose_node_is_not_heard_of_is_neither_alive_nor_over() -> None:
    gone = condition("DisruptionTarget", reason="DeletionByTaintManager")
    leaving = {**pod("Running", conditions=gone), "metadata": {"deletionTimestamp": "now"}}
    assert statuses.stranded_on({**leaving, "spec": {"nodeName": "n1"}}) == "n1"
    assert statuses.stranded_on(pod("Running", conditions=gone)) == ""
    assert statuses.stranded_on({**leaving, "status": pod(conditions=gone)["status"]}) == ""


LOG = (
    b'{"e":"story-of","run":"a"}\n{"e":"started"}\n{"e":"log","at":0,"b64":"aGk="}\n'
    b'{"e":"ended"}\n{"e":"eof"}\n{"e":"story-of","run":"b"}\n{"e":"started"}\n{"e":"torn'
)


def test_the_log_of_a_pod_tells_each_runs_story_from_any_offset() -> None:
    whole = story.frames_of(LOG, "a", At(0, 0))
    assert whole.splitlines()[-1] == b'{"e":"eof"}'
    later = story.frames_of(LOG, "a", At(len(b'{"e":"started"}\n'), 2))
    assert later == whole.removeprefix(b'{"e":"started"}\n')
    assert story.frames_of(LOG, "b", At(0, 0)) == b'{"e":"started"}\n'
    assert story.frames_of(LOG, "c", At(0, 0)) == b""
    assert not story.never_began(LOG)
    assert story.never_began(b'{"e":"unbegun"}\n')

"""What a pod and its Job say of themselves, read as the API server tells it."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.providers.kubernetes.runs import pod_statuses, pod_streams
from fleetctl.providers.remote.sandboxes.sandbox_protocol import Cause, StreamOffsets


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
    assert pod_statuses.fate_of(found, ours=False).cause is cause
    assert pod_statuses.fate_of(found, ours=True).cause is Cause.STOPPED


@pytest.mark.parametrize(("limits", "own"), [({"memory": "1Gi"}, True), ({}, False)])
def test_who_uses_up_its_own_memory_fails_and_is_not_lost(
    limits: dict[str, str], own: bool
) -> None:
    found = pod(main={"terminated": {"reason": "OOMKilled", "exitCode": 137}})
    found["spec"] = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    fate = pod_statuses.fate_of(found, ours=False)
    assert (fate.own, fate.exit_code) == (own, 137)


def test_a_wait_is_told_in_the_words_of_who_keeps_it_waiting() -> None:
    job: dict[str, Any] = {"metadata": {"labels": {}}, "spec": {}}
    words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    full = condition("PodScheduled", "False", reason="Unschedulable", message=words)
    assert pod_statuses.wait_of(job, pod("Pending", conditions=full)) == pod_statuses.PodWait(
        "Unschedulable", words
    )
    pulling = pod("Pending", main={"waiting": {"reason": "ImagePullBackOff", "message": "no x"}})
    assert pod_statuses.wait_of(job, pulling) == pod_statuses.PodWait("ImagePullBackOff", "no x")
    absent = pod(
        "Pending",
        main={
            "waiting": {
                "reason": "CreateContainerConfigError",
                "message": 'secret "kept" not found',
            }
        },
    )
    missing = pod_statuses.wait_of(job, absent)
    assert (missing.reason, "`kept`" in missing.message) == ("SecretMissing", True)
    assert missing.hint.startswith("kubectl create secret generic kept -n default")
    queued = {
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"suspend": True},
    }
    assert "`team`" in pod_statuses.wait_of(queued, None).message


def test_a_pod_is_ready_while_its_container_runs_and_nobody_asked_for_its_end() -> None:
    running = pod("Running", main={"running": {}})
    assert pod_statuses.is_ready(running)
    assert not pod_statuses.is_ready({**running, "metadata": {"deletionTimestamp": "now"}})
    assert not pod_statuses.is_ready(pod("Pending", main={"waiting": {}}))


def test_a_pods_life_counts_from_when_its_node_took_it() -> None:
    assert pod_statuses.began_at_s(pod("Pending")) is None
    assert pod_statuses.began_at_s(pod("Running", startTime="1970-01-01T00:01:00Z")) == 60.0


def test_a_pod_whose_node_is_not_heard_of_is_neither_alive_nor_over() -> None:
    gone = condition("DisruptionTarget", reason="DeletionByTaintManager")
    leaving = {**pod("Running", conditions=gone), "metadata": {"deletionTimestamp": "now"}}
    assert pod_statuses.find_stranded_node({**leaving, "spec": {"nodeName": "n1"}}) == "n1"
    assert pod_statuses.find_stranded_node(pod("Running", conditions=gone)) == ""
    assert (
        pod_statuses.find_stranded_node({**leaving, "status": pod(conditions=gone)["status"]}) == ""
    )


LOG = (
    b'{"e":"story-of","run":"a"}\n{"e":"started"}\n{"e":"log","at":0,"b64":"aGk="}\n'
    b'{"e":"ended"}\n{"e":"eof"}\n{"e":"story-of","run":"b"}\n{"e":"started"}\n{"e":"torn'
)


def test_the_log_of_a_pod_tells_each_runs_story_from_any_offset() -> None:
    whole = pod_streams.frames_of(LOG, "a", StreamOffsets(0, 0))
    assert whole.splitlines()[-1] == b'{"e":"eof"}'
    later = pod_streams.frames_of(LOG, "a", StreamOffsets(len(b'{"e":"started"}\n'), 2))
    assert later == whole.removeprefix(b'{"e":"started"}\n')
    assert pod_streams.frames_of(LOG, "b", StreamOffsets(0, 0)) == b'{"e":"started"}\n'
    assert pod_streams.frames_of(LOG, "c", StreamOffsets(0, 0)) == b""
    assert not pod_streams.never_began(LOG)
    assert pod_streams.never_began(b'{"e":"unbegun"}\n')

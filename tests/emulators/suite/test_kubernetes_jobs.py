"""Jobs, pods and nodes of the emulated cluster: what runs there are processes of this machine."""

from __future__ import annotations

from typing import Any

from tests.emulators.driving.kube_tools import Kube
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.emulators.suite.kubernetes_driving import (
    Asking,
    asking,
    cluster,
    job,
    kubectl,
    refusal,
    until,
)

__all__ = ["asking", "cluster", "kubectl"]


def ended(cluster: KubernetesEmulator, name: str) -> dict[str, Any]:
    """The Job, once it is over."""

    def look() -> dict[str, Any] | None:
        for one in cluster.objects("jobs", "batch"):
            kinds = {it["type"] for it in one.get("status", {}).get("conditions", ())}
            if one["metadata"]["name"] == name and kinds & {"Complete", "Failed"}:
                return one
        return None

    found: dict[str, Any] = until(look)
    return found


def pods(cluster: KubernetesEmulator, name: str) -> list[dict[str, Any]]:
    every = cluster.objects("pods")
    return [it for it in every if it["metadata"]["labels"].get("job-name") == name]


def condition(job: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(it for it in job["status"]["conditions"] if it["type"] == kind)
    return found


def test_an_indexed_job_runs_on_as_many_nodes_as_it_needs_gpus(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    script = 'echo "$JOB_COMPLETION_INDEX on $HOSTNAME"'
    spec = {"completions": 3, "parallelism": 3, "completionMode": "Indexed", "container": gpu}
    asking.make(job("gpus", script, **spec))
    status = ended(cluster, "gpus")["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (3, "0-2")
    assert condition({"status": status}, "Complete")["reason"] == "CompletionsReached"
    ran = pods(cluster, "gpus")
    assert {it["spec"]["nodeName"] for it in ran} == {"node-1", "node-2", "node-3"}
    logs = asking.kind("Pod").subresources["log"]
    for one in ran:
        index = one["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
        said = logs.get(name=one["metadata"]["name"], namespace="default")
        assert str(said) == f"{index} on gpus-{index}\n"
        assert "batch.kubernetes.io/job-tracking" not in one["metadata"].get("finalizers", ())


def test_a_job_that_fails_is_tried_as_often_as_it_says(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    asking.make(job("fails", "echo why > /dev/termination-log; exit 3", backoffLimit=1))
    found = ended(cluster, "fails")
    assert (found["status"]["failed"], condition(found, "Failed")["reason"]) == (
        2,
        "BackoffLimitExceeded",
    )
    states = [it["status"]["containerStatuses"][0]["state"] for it in pods(cluster, "fails")]
    assert [it["terminated"]["message"] for it in states] == ["why\n", "why\n"]
    assert [it["terminated"]["exitCode"] for it in states] == [3, 3]


def test_a_failure_policy_ends_a_job_or_looks_away(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    policy = {
        "rules": [
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ]
    }
    asking.make(job("policy", "exit 42", podFailurePolicy=policy))
    found = ended(cluster, "policy")
    assert found["status"]["failed"] == 1
    assert condition(found, "Failed")["reason"] == "PodFailurePolicy"
    asking.make(job("evicted", "sleep 300", podFailurePolicy=policy, backoffLimit=0))
    (first,) = until(lambda: [it for it in cluster.processes() if it["pod"].startswith("evicted")])
    cluster.evict("default", first["pod"])
    (second,) = until(
        lambda: [
            it
            for it in cluster.processes()
            if it["pod"].startswith("evicted") and it["pod"] != first["pod"]
        ]
    )
    status = next(it for it in pods(cluster, "evicted") if it["metadata"]["name"] == first["pod"])
    assert (status["status"]["phase"], status["status"]["reason"]) == ("Failed", "Evicted")
    assert second["pid"] != first["pid"]
    gone(asking, cluster, "evicted")


def test_each_index_may_fail_by_itself_and_enough_may_be_enough(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    script = 'test "$JOB_COMPLETION_INDEX" != 1'
    spec = {"completions": 3, "parallelism": 3, "completionMode": "Indexed"}
    asking.make(job("indexes", script, backoffLimitPerIndex=1, **spec))
    found = ended(cluster, "indexes")
    status = found["status"]
    assert (status["completedIndexes"], status["failedIndexes"]) == ("0,2", "1")
    assert (status["failed"], condition(found, "Failed")["reason"]) == (2, "FailedIndexes")
    enough = {"rules": [{"succeededIndexes": "0"}]}
    waits = 'test "$JOB_COMPLETION_INDEX" = 0 || sleep 300'
    asking.make(job("enough", waits, successPolicy=enough, **spec))
    found = ended(cluster, "enough")
    assert condition(found, "Complete")["reason"] == "SuccessPolicy"
    assert not [it for it in cluster.processes() if it["pod"].startswith("enough")]


def test_a_job_ends_at_its_deadline_and_goes_in_time(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    asking.make(job("late", "sleep 300", activeDeadlineSeconds=1))
    assert condition(ended(cluster, "late"), "Failed")["reason"] == "DeadlineExceeded"
    asking.make(job("others", "true", managedBy="example.com/other"))
    asking.make(job("brief", "true", ttlSecondsAfterFinished=0))
    until(lambda: any(it["pod"].startswith("brief") for it in cluster.runs()))
    until(lambda: "brief" not in job_names(cluster))
    until(lambda: not pods(cluster, "brief"))
    # Made long before that one went, and left to another controller.
    assert pods(cluster, "others") == [] and "others" in job_names(cluster)


def job_names(cluster: KubernetesEmulator) -> list[str]:
    return [it["metadata"]["name"] for it in cluster.objects("jobs", "batch")]


def gone(asking: Asking, cluster: KubernetesEmulator, name: str) -> None:
    """Deleted with its pods, of which nothing runs any more."""
    jobs = asking.kind("Job", "batch/v1")
    jobs.delete(name=name, namespace="default", body={"propagationPolicy": "Foreground"})
    until(lambda: not pods(cluster, name))
    assert not [it for it in cluster.processes() if it["pod"].startswith(name)]
    until(lambda: name not in job_names(cluster))


def test_a_job_that_is_deleted_leaves_its_pods_unless_told_otherwise(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    asking.make(job("leaves", "sleep 300"))
    until(lambda: [it for it in cluster.processes() if it["pod"].startswith("leaves")])
    asking.kind("Job", "batch/v1").delete(name="leaves", namespace="default")
    (left,) = until(
        lambda: [it for it in pods(cluster, "leaves") if "ownerReferences" not in it["metadata"]]
    )
    assert [it for it in cluster.processes() if it["pod"] == left["metadata"]["name"]]
    asking.kind("Pod").delete(name=left["metadata"]["name"], namespace="default")
    until(lambda: not [it for it in cluster.processes() if it["pod"].startswith("leaves")])


def test_a_suspended_job_starts_when_it_is_resumed(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    asking.make(job("asleep", "true", suspend=True))
    until(lambda: [it for it in cluster.objects("jobs", "batch") if it.get("status")])
    assert pods(cluster, "asleep") == []
    asking.kind("Job", "batch/v1").patch(
        name="asleep",
        namespace="default",
        body={"spec": {"suspend": False}},
        content_type="application/merge-patch+json",
    )
    assert condition(ended(cluster, "asleep"), "Suspended")["status"] == "False"


def test_a_pod_waits_for_room_in_the_schedulers_words(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    asking.make(job("large", "true", container={"resources": {"limits": {"cpu": "64"}}}))
    taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    cluster.add_node("tainted", cpu="128", taints=taints)

    def said() -> dict[str, Any] | None:
        for one in pods(cluster, "large"):
            for held in one["status"].get("conditions", ()):
                if "untolerated" in held.get("message", ""):
                    return held
        return None

    held = until(said)
    assert (held["type"], held["status"], held["reason"]) == (
        "PodScheduled",
        "False",
        "Unschedulable",
    )
    assert held["message"] == (
        "0/4 nodes are available: 1 node(s) had untolerated taint {team: a}, 3 Insufficient cpu."
        " preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
    )
    asking.kind("Node").delete(name="tainted")
    gone(asking, cluster, "large")


def test_a_pod_that_matters_more_takes_the_place_of_another(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    asking.make({**head, "metadata": {"name": "high"}, "value": 1000})
    whole = {"resources": {"limits": {"cpu": "4"}}}
    asking.make(job("low", "sleep 300", completions=3, parallelism=3, container=whole))
    until(lambda: len([it for it in cluster.processes() if it["pod"].startswith("low")]) == 3)
    asking.make(job("high", "true", pod={"priorityClassName": "high"}, container=whole))
    ended(cluster, "high")
    victims = [
        held
        for it in pods(cluster, "low")
        for held in it["status"]["conditions"]
        if held["type"] == "DisruptionTarget"
    ]
    events = [it["reason"] for it in cluster.objects("events")]
    assert "Preempted" in events
    assert all(it["reason"] == "PreemptionByScheduler" for it in victims)
    gone(asking, cluster, "low")


def test_what_a_pod_needs_is_there_or_it_waits(asking: Asking, cluster: KubernetesEmulator) -> None:
    asking.make(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "kept"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    )
    reference = {"secretKeyRef": {"name": "later", "key": "word"}}
    pod = {
        "volumes": [{"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}],
        "initContainers": [
            {
                "name": "first",
                "image": "busybox:1.37",
                "command": ["sh", "-c", "echo begun > /kept/file"],
                "volumeMounts": [{"name": "kept", "mountPath": "/kept"}],
            }
        ],
    }
    container = {
        "volumeMounts": [{"name": "kept", "mountPath": "/data"}],
        "env": [{"name": "WORD", "valueFrom": reference}],
    }
    script = 'echo "$(cat /data/file) $WORD" > /data/out'
    asking.make(job("needs", script, pod=pod, container=container))

    def waiting() -> Any:
        for one in pods(cluster, "needs"):
            for held in one["status"].get("containerStatuses", ()):
                return held["state"].get("waiting", {}).get("message")
        return None

    until(lambda: waiting() == 'secret "later" not found')
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later"}}
    asking.make({**head, "stringData": {"word": "secret"}})
    ended(cluster, "needs")
    volume = cluster.objects("persistentvolumeclaims")[0]["spec"]["volumeName"]
    assert (cluster.directory / "claims" / volume / "out").read_text() == "begun secret\n"


def test_a_lost_node_takes_its_pods_with_it_in_time(asking: Asking) -> None:
    nodes = [{"name": "a", "cpu": "2"}, {"name": "b", "cpu": "2"}]
    with KubernetesEmulator(nodes=nodes, eviction_s=0.1, job_backoff_s=0.05) as cluster:
        Asking(cluster.kubeconfig).make(job("moves", "sleep 300", podReplacementPolicy="Failed"))
        (first,) = until(cluster.processes)
        lost = cluster.runs()[0]["node"]
        cluster.lose_node(lost)
        assert cluster.processes() == []
        until(lambda: pods(cluster, "moves")[0]["metadata"].get("deletionTimestamp"))
        held = condition(pods(cluster, "moves")[0], "DisruptionTarget")
        assert held["reason"] == "DeletionByTaintManager"
        # Nobody can say that its processes are gone until the node is, too.
        assert len(pods(cluster, "moves")) == 1
        Asking(cluster.kubeconfig).kind("Node").delete(name=lost)
        (second,) = until(cluster.processes)
        assert second["pod"] != first["pod"] and cluster.runs()[-1]["node"] != lost


def test_a_node_that_is_back_ends_what_was_deleted_meanwhile(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    cluster.lose_node("node-3", processes_live=True)
    bound = {"nodeName": "node-3", "containers": [{"name": "main", "image": "busybox:1.37"}]}
    asking.make({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bound"}, "spec": bound})
    asking.kind("Pod").delete(name="bound", namespace="default")

    def names() -> list[str]:
        return [it["metadata"]["name"] for it in cluster.objects("pods")]

    assert "bound" in names()
    cluster.find_node("node-3")
    until(lambda: "bound" not in names())
    assert "bound" not in [it["pod"] for it in cluster.runs()]


def test_what_makes_no_sense_is_refused_in_the_servers_words(asking: Asking) -> None:
    body = job("wrong", "true", pod={"restartPolicy": "Always"})
    error = refusal(lambda: asking.make(body))
    assert error["message"] == (
        'Job.batch "wrong" is invalid: spec.template.spec.restartPolicy: Required value: valid'
        ' values: "OnFailure", "Never"'
    )
    error = refusal(lambda: asking.make(job("Wrong", "true")))
    assert "a lowercase RFC 1123 subdomain must consist of" in error["message"]
    error = refusal(lambda: asking.make(job("typed", "true", parallelism="many")))
    assert (error["code"], error["reason"]) == (400, "BadRequest")
    assert "json: cannot unmarshal string into Go struct field" in error["message"]
    error = refusal(lambda: asking.make(job("nowhere", "true"), namespace="nowhere"))
    assert (error["code"], error["message"]) == (404, 'namespaces "nowhere" not found')


def test_a_quota_is_refused_and_told_as_an_event(
    asking: Asking, cluster: KubernetesEmulator, kubectl: Kube
) -> None:
    kubectl.ok("create", "namespace", "small")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cap"}}
    asking.make({**quota, "spec": {"hard": {"requests.cpu": "1"}}}, namespace="small")
    one = {"resources": {"requests": {"cpu": "1"}}}
    body = job("capped", "sleep 300", completions=2, parallelism=2, container=one)
    asking.make(body, namespace="small")

    def refused() -> str | None:
        for one in cluster.objects("events", namespace="small"):
            if one["reason"] == "FailedCreate":
                return str(one["message"])
        return None

    assert until(refused).endswith(
        "is forbidden: exceeded quota: cap, requested: requests.cpu=1, used: requests.cpu=1,"
        " limited: requests.cpu=1"
    )
    assert len(cluster.objects("pods", namespace="small")) == 1
    kubectl.ok("delete", "namespace", "small", "--timeout=60s")
    assert not [it for it in cluster.processes() if it["namespace"] == "small"]


def test_probes_say_when_a_container_is_ready_and_when_it_is_not_well(
    asking: Asking, cluster: KubernetesEmulator, kubectl: Kube
) -> None:
    def probe(test: str) -> dict[str, Any]:
        return {"exec": {"command": ["sh", "-c", test]}, "periodSeconds": 1, "failureThreshold": 1}

    container = {
        "readinessProbe": probe("test -e /srv/ready"),
        "livenessProbe": probe("test ! -e /srv/ill"),
    }
    script = "echo ended > /dev/termination-log; sleep 300"
    pod = {"restartPolicy": "OnFailure"}
    asking.make(job("probed", script, container=container, pod=pod))
    (one,) = until(lambda: [it for it in cluster.processes() if "probed" in it["pod"]])

    def held() -> dict[str, Any]:
        (found,) = pods(cluster, "probed")
        state: dict[str, Any] = found["status"]["containerStatuses"][0]
        return state

    assert until(lambda: "running" in held()["state"]) and not held()["ready"]
    kubectl.ok("exec", one["pod"], "--", "touch", "/srv/ready")
    kubectl.ok("wait", "--for=condition=ready", f"pod/{one['pod']}", "--timeout=60s")
    kubectl.ok("exec", one["pod"], "--", "touch", "/srv/ill")
    until(lambda: held()["restartCount"] == 1 and "running" in held()["state"])
    kubectl.ok("delete", "job", "probed", "--cascade=foreground")

"""Both halves together: custom resources are the desired state, and their work is pods, with the
rights that deploy/ grants and nothing more.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.servers.operators import (
    ROOT,
    Operator,
    People,
    account_config,
    cluster_with_our_kinds,
    until,
)

RUNS = "default"  # the namespace of the object
PATHS = {
    "Provider": "/apis/fleetctl.dev/v1alpha1/providers",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{RUNS}/rolebindings",
}


def test_work_that_never_began_is_deleted_before_any_other_began(tmp_path: Path) -> None:
    """The namespace of all work of earlier versions is not there, nor a right in it."""
    with cluster_with_our_kinds() as cluster:
        people = People(cluster)
        for document in yaml.safe_load_all((ROOT / "deploy/runs.yaml").read_text()):
            people.ask("POST", PATHS[document["kind"]], document)
        means = ("--local-means", "kubernetes")
        config = account_config(cluster)
        operator = Operator(cluster, tmp_path / "home", config, tmp_path / "log", *means)
        people.create("Secret", "none", {"fromEnv": ["HF_TOKEN"]})
        people.create("BatchJob", "held", {"template": {"script": "true", "secrets": ["none"]}})

        def is_held() -> bool:
            status = (people.get("BatchJob", "held") or {}).get("status") or {}
            return status.get("reason") == "SecretMissing"

        until(is_held, "it waits for its secret")
        people.delete("BatchJob", "held")
        people.gone("BatchJob", "held")
        assert cluster.runs() == []
        assert operator.stop() == 0, operator.told()


def test_an_example_runs_as_pods_of_a_namespace_of_its_own(tmp_path: Path) -> None:
    with cluster_with_our_kinds() as cluster:
        people = People(cluster)
        for document in yaml.safe_load_all((ROOT / "deploy/runs.yaml").read_text()):
            people.ask("POST", PATHS[document["kind"]], document)
        means = ("--local-means", "kubernetes")
        config = account_config(cluster)
        operator = Operator(cluster, tmp_path / "home", config, tmp_path / "log", *means)
        try:
            (hello,) = yaml.safe_load_all((ROOT / "docs/examples/hello.yaml").read_text())
            people.create(hello["kind"], "hello", hello["spec"])
            complete = people.wait_for("BatchJob", "hello", "Complete")
            assert complete["message"] == "3 of 3 tasks succeeded"
            begun = cluster.runs()
            assert len(begun) == 3
            assert {run["namespace"] for run in begun} == {RUNS}
            found = people.get("BatchJob", "hello") or {}
            assert found["status"]["columns"]["where"] == "kubernetes"
            assert found["spec"] == hello["spec"]
            people.delete("BatchJob", "hello")
            people.gone("BatchJob", "hello")
            until(lambda: not cluster.objects("jobs", "batch"), "no Job is left")
        finally:
            assert operator.stop() == 0, operator.told()
        assert "Traceback" not in operator.told()

"""The chart for one namespace: its roles are enough for an operator of it, and for nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.cli.team.serve import parser as make_serve_parser
from tests.emulators.driving.kube_tools import Kube, tool
from tests.servers.operators import (
    NAMESPACE,
    ROOT,
    Operator,
    People,
    account_config,
    cluster_with_our_kinds,
)

CHART = str(ROOT / "deploy/helm/fleetctl")
ROLES = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def rendered(tmp_path: Path, *settings: str) -> list[dict[str, Any]]:
    helm = Kube(tool("helm"), tmp_path / "none", tmp_path)
    words = [word for it in settings for word in ("--set", it)]
    text = helm.ok("template", "fleetctl", CHART, "--namespace", NAMESPACE, *words)
    return [it for it in yaml.safe_load_all(text) if it]


def kinds(documents: list[dict[str, Any]]) -> set[str]:
    return {it["kind"] for it in documents}


def test_a_budget_of_disruptions_is_for_several_replicas_alone(tmp_path: Path) -> None:
    on = "podDisruptionBudget.enabled=true"
    assert "PodDisruptionBudget" not in kinds(rendered(tmp_path))
    assert "PodDisruptionBudget" not in kinds(rendered(tmp_path, on, "replicas=1"))
    assert "PodDisruptionBudget" in kinds(rendered(tmp_path, on, "replicas=2"))


def test_prometheus_reads_the_port_of_the_probes(tmp_path: Path) -> None:
    assert "ServiceMonitor" not in kinds(rendered(tmp_path))
    made = rendered(tmp_path, "serviceMonitor.enabled=true", "serviceMonitor.labels.release=prom")
    by_kind = {it["kind"]: it for it in made}
    monitor, service = by_kind["ServiceMonitor"], by_kind["Service"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert wanted <= service["metadata"]["labels"].items()
    assert monitor["metadata"]["labels"]["release"] == "prom"
    (end,) = monitor["spec"]["endpoints"]
    (port,) = service["spec"]["ports"]
    (container,) = by_kind["Deployment"]["spec"]["template"]["spec"]["containers"]
    (probed,) = container["ports"]
    assert end["port"] == port["name"] and port["targetPort"] == probed["name"]
    (allowed,) = by_kind["NetworkPolicy"]["spec"]["ingress"]
    assert probed["containerPort"] in {it["port"] for it in allowed["ports"]}


def test_a_server_comes_with_its_service_and_the_right_to_write(tmp_path: Path) -> None:
    def verbs(documents: list[dict[str, Any]]) -> set[str]:
        rules = [rule for it in documents if it["kind"] == "ClusterRole" for rule in it["rules"]]
        mine = [it for it in rules if "batchjobs" in it["resources"] and "watch" in it["verbs"]]
        return {verb for it in mine for verb in it["verbs"]}

    off = ("people.enabled=false",)
    assert "Service" not in kinds(rendered(tmp_path, *off))
    assert verbs(rendered(tmp_path, *off)) == {"get", "list", "watch", "patch"}
    made = rendered(tmp_path, *off, "server.enabled=true", "server.name=fleet.test")
    assert verbs(made) == {"get", "list", "watch", "patch", "create", "delete"}
    by_kind = {it["kind"]: it for it in made}
    _, container = by_kind["Deployment"]["spec"]["template"]["spec"]["containers"]
    args = make_serve_parser("serve").parse([str(it) for it in container["args"][1:]])
    assert args.names == ["fleet.test"] and args.behind_proxy
    (port,), (way,) = container["ports"], by_kind["Service"]["spec"]["ports"]
    assert way["targetPort"] == port["name"]
    (allowed,) = by_kind["NetworkPolicy"]["spec"]["ingress"]
    assert port["containerPort"] in {it["port"] for it in allowed["ports"]}


def test_an_operator_of_one_namespace_has_rights_in_it_alone(tmp_path: Path) -> None:
    documents = rendered(tmp_path, "watchNamespace=team")
    roles = [it for it in documents if it["kind"] in ROLES]
    for it in roles:  # as helm does it
        if not it["kind"].startswith("Cluster"):
            it["metadata"].setdefault("namespace", NAMESPACE)
    wide = {
        resource.partition("/")[0]
        for it in roles
        if it["kind"] == "ClusterRole" and it["metadata"]["name"] == "fleetctl-operator-team"
        for rule in it["rules"]
        for resource in rule["resources"]
    }
    assert wide == {"policies", "providers", "queues", "settings"}
    with cluster_with_our_kinds(roles=()) as cluster:
        people = People(cluster)
        for name in ("team", "other"):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            people.ask("POST", "/api/v1/namespaces", body)
        kubectl = Kube(tool("kubectl"), cluster.kubeconfig, tmp_path)
        kubectl.ok("apply", "-f", "-", stdin=yaml.safe_dump_all(roles))
        config, words = account_config(cluster), ("--watch-namespace", "team")
        operator = Operator(cluster, tmp_path / "home", config, tmp_path / "log", *words)
        spec = {"template": {"python": "SUBMIT(x=1)"}}
        people.create("Provider", "local", {"limits": {"maxSandboxes": 5}})
        for namespace in ("other", "team"):
            people.create("BatchJob", namespace, spec, namespace)
        people.wait_for("BatchJob", "team", "Complete")
        people.wait_for("Provider", "local", "Ready")
        assert "status" not in (people.get("BatchJob", "other") or {})
        assert operator.stop() == 0, operator.told()
        theirs = Kube(tool("kubectl"), config, tmp_path)
        refused = theirs("patch", "batchjob", "other", "-n", "other", "--type=merge", "-p", "{}")
        assert "forbidden" in refused.err.lower()


@pytest.mark.parametrize("value", ["replicas=0", "serviceMonitor.interval=often"])
def test_a_value_that_is_wrong_is_refused(tmp_path: Path, value: str) -> None:
    helm = Kube(tool("helm"), tmp_path / "none", tmp_path)
    assert value.partition("=")[0].split(".")[-1] in helm("template", CHART, "--set", value).err

"""kubectl and helm themselves at custom resources, the operator, and what deploy/ holds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.emulators.driving.kube_tools import Kube, tool
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.operators import (
    ROOT,
    Operator,
    People,
    account_config,
    cluster_with_our_kinds,
    until,
)

MANIFEST = """\
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {{name: {name}, labels: {{app: pruned}}}}
spec: {{completions: {completions}, parallelism: 1, template: {{python: "SUBMIT(x=1)"}}}}
"""
# Labels by which each of the two ways tells its objects apart; all else must be the same.
CHART = ROOT / "deploy/helm/fleetctl"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesEmulator]:
    with cluster_with_our_kinds() as one:
        yield one


@pytest.fixture(scope="module")
def kubectl(cluster: KubernetesEmulator, tmp_path_factory: Any) -> Iterator[Kube]:
    directory = tmp_path_factory.mktemp("operator")
    one = Operator(cluster, directory / "home", account_config(cluster), directory / "log")
    yield Kube(tool("kubectl"), cluster.kubeconfig, directory)
    assert one.stop() == 0


def test_an_example_is_applied_waited_for_listed_and_deleted(kubectl: Kube, cluster: Any) -> None:
    hello = str(ROOT / "docs/examples/hello.yaml")
    kubectl.ok("apply", "-f", hello)
    kubectl.ok("wait", "--for=condition=Complete", "batchjob/hello", "--timeout=400s")
    title, row = kubectl.ok("get", "jobs.fleetctl.dev").splitlines()
    assert title.split()[:6] == ["NAME", "STATUS", "DONE", "ACTIVE", "FAILED", "RETRIES"]
    assert row.split()[:3] == ["hello", "Succeeded", "3/3"]
    assert "hello" in kubectl.ok("get", "fleetctl")
    assert kubectl("diff", "-f", hello).code == 0
    assert "3 of 3 tasks succeeded" in kubectl.ok("describe", "bj", "hello")
    kubectl.ok("delete", "-f", hello, "--timeout=400s")
    assert cluster.objects("batchjobs", "fleetctl.dev") == []


def test_a_watch_shows_an_object_on_its_way(kubectl: Kube) -> None:
    env = {"KUBECONFIG": str(kubectl.kubeconfig), "HOME": str(kubectl.home)}
    words = [kubectl.program, "get", "jobs.fleetctl.dev", "-w", "--no-headers"]
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as watching:
        kubectl.ok("apply", "-f", "-", stdin=MANIFEST.format(name="watched", completions=1))
        assert watching.stdout is not None
        for line in watching.stdout:
            if "Succeeded" in line:
                assert line.split()[:3] == ["watched", "Succeeded", "1/1"]
                break
        watching.kill()
    kubectl.ok("delete", "bj", "watched")


def test_what_is_no_longer_in_the_files_is_pruned(kubectl: Kube) -> None:
    two = "---\n".join(MANIFEST.format(name=name, completions=1) for name in ("kept", "pruned"))
    words = ("apply", "-f", "-", "--prune", "-l", "app=pruned")
    words = (*words, "--prune-allowlist=fleetctl.dev/v1alpha1/BatchJob")
    kubectl.ok(*words, stdin=two)
    kubectl.ok("wait", "--for=condition=Complete", "bj", "--all", "--timeout=400s")
    said = kubectl.ok(*words, stdin=two.split("---\n")[0])
    assert "batchjob.fleetctl.dev/pruned pruned" in said
    kubectl.ok("wait", "--for=delete", "bj/pruned", "--timeout=400s")
    kubectl.ok("delete", "bj", "kept", "--timeout=400s")


def test_an_edit_is_waited_for_by_its_generation(
    kubectl: Kube, cluster: KubernetesEmulator
) -> None:
    kubectl.ok("apply", "-f", "-", stdin=MANIFEST.format(name="grows", completions=1))
    kubectl.ok("wait", "--for=condition=Complete", "bj/grows", "--timeout=400s")
    kubectl.ok("apply", "-f", "-", stdin=MANIFEST.format(name="grows", completions=3))
    kubectl.ok("wait", "--for=condition=Complete", "bj/grows", "--timeout=400s")
    shown = json.loads(kubectl.ok("get", "bj", "grows", "-o", "json"))
    assert (shown["status"]["succeeded"], shown["status"]["total"]) == (3, 3)
    kubectl.ok("scale", "bj/grows", "--replicas=2")
    assert json.loads(kubectl.ok("get", "bj", "grows", "-o", "json"))["spec"]["parallelism"] == 2
    until(lambda: _accepted(cluster, "grows"), "the new parallelism is accepted")
    kubectl.ok("delete", "bj", "grows", "--timeout=400s")


def test_many_are_deleted_by_one_request(kubectl: Kube, cluster: KubernetesEmulator) -> None:
    count = 60
    text = "---\n".join(MANIFEST.format(name=f"many-{it}", completions=1) for it in range(count))
    kubectl.ok("create", "-f", "-", stdin=text.replace("spec: {", "spec: {suspend: true, "))
    people = People(cluster)
    until(lambda: people.wait_for("BatchJob", f"many-{count - 1}", "Ready"), "all are looked at")
    kubectl.ok("delete", "--raw", "/apis/fleetctl.dev/v1alpha1/namespaces/default/batchjobs")
    until(lambda: cluster.objects("batchjobs", "fleetctl.dev") == [], "all are gone")


# kubectl reads the keys of both as truths, and so two of one mapping as one.
UNQUOTED = """\
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: unquoted}
spec:
  tasks: {matrix: {y: [1, 2], on: [3]}}
  template: {python: "SUBMIT(total=sum(params.values()))"}
"""


def test_a_name_that_kubectl_changes_is_refused_with_the_way_to_quote_it(
    kubectl: Kube, cluster: KubernetesEmulator, tmp_path: Path
) -> None:
    kubectl.ok("apply", "-f", "-", stdin=UNQUOTED)
    shown = json.loads(kubectl.ok("get", "bj", "unquoted", "-o", "json"))
    assert list(shown["spec"]["tasks"]["matrix"]) == ["true"]
    people = People(cluster)
    refused = people.wait_for("BatchJob", "unquoted", "Accepted", "False")
    assert refused["reason"] == "Invalid"
    assert refused["message"].startswith("spec.tasks.matrix.true is what kubectl makes of a key")
    assert '`"n":`' in refused["message"]
    kubectl.ok("delete", "bj", "unquoted", "--timeout=400s")
    # The way out that the hint names: the same file, with quotes.
    file = tmp_path / "job.yaml"
    file.write_text(UNQUOTED)
    words = [sys.executable, "-m", "fleetctl", "convert", "--to", "kubernetes", str(file)]
    quoted = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    kubectl.ok("apply", "-f", "-", stdin=quoted)
    kubectl.ok("wait", "--for=condition=Complete", "bj/unquoted", "--timeout=400s")
    shown = json.loads(kubectl.ok("get", "bj", "unquoted", "-o", "json"))
    assert shown["spec"]["tasks"]["matrix"] == {"y": [1, 2], "on": [3]}
    kubectl.ok("delete", "bj", "unquoted", "--timeout=400s")


def _accepted(cluster: KubernetesEmulator, name: str) -> bool:
    people = People(cluster)
    found = people.get("BatchJob", name) or {"metadata": {"generation": -1}}
    accepted = people.condition("BatchJob", name, "Accepted")
    return bool(accepted.get("observedGeneration") == found["metadata"]["generation"])


def test_the_server_refuses_at_once_what_it_can(kubectl: Kube) -> None:
    right = MANIFEST.format(name="wrong", completions=4)
    both = kubectl(
        "apply",
        "-f",
        "-",
        stdin=right.replace("completions: 4", "completions: 4, tasks: {completions: 3}"),
    )
    assert both.code == 1
    assert "tasks already gives their number; leave completions out" in both.err
    unknown = kubectl("apply", "-f", "-", stdin=right.replace("completions", "completion"))
    assert 'unknown field "spec.completion"' in unknown.err
    long = kubectl("apply", "-f", "-", stdin=right.replace("wrong", "w" * 64))
    assert "a name must be 1 to 63 lower case letters" in long.err


def test_the_base_and_the_chart_are_the_same_objects(
    kubectl: Kube, cluster: KubernetesEmulator, tmp_path: Path
) -> None:
    helm = Kube(tool("helm"), cluster.kubeconfig, tmp_path)
    assert "0 chart(s) failed" in helm.ok("lint", "--strict", str(CHART))
    rendered = helm.ok("template", "fleetctl", str(CHART), "--namespace", "fleetctl")
    base = kubectl.ok("kustomize", str(ROOT / "deploy/kustomize"))
    assert _objects(rendered) == {
        key: it for key, it in _objects(base).items() if key[0] != "Namespace"
    }
    refused = helm("template", "fleetctl", str(CHART), "--set", "replicas=0")
    assert "replicas" in refused.err
    cluster_of_the_chart = kubectl.ok("apply", "--dry-run=server", "-f", "-", stdin=rendered)
    assert "deployment.apps/fleetctl-operator created (server dry run)" in cluster_of_the_chart


def test_the_base_with_a_server_is_accepted(kubectl: Kube) -> None:
    made = kubectl.ok("kustomize", str(ROOT / "deploy/server"))
    pod = _objects(made)["Deployment", "fleetctl-operator"]["spec"]["template"]["spec"]
    assert [it["name"] for it in pod["containers"]] == ["operator", "server"]
    accepted = kubectl.ok("apply", "--dry-run=server", "-f", "-", stdin=made)
    for name in (
        "service/fleetctl-server",
        "clusterrole.rbac.authorization.k8s.io/fleetctl-server",
        "networkpolicy.networking.k8s.io/fleetctl-operator",
    ):
        assert f"{name} created (server dry run)" in accepted


def _objects(text: str) -> dict[tuple[str, str], Any]:
    return {
        (it["kind"], it["metadata"]["name"]): _plain(it) for it in yaml.safe_load_all(text) if it
    }


def _plain(value: Any) -> Any:
    """Without what each way names its own objects by, and what is nothing."""
    if isinstance(value, list):
        return [_plain(it) for it in value]
    if not isinstance(value, dict):
        return value
    made = {key: _plain(it) for key, it in value.items() if not _of_the_way(key)}
    made.pop("namespace", None)
    return {key: it for key, it in made.items() if it not in ({}, [], None)}


def _of_the_way(key: str) -> bool:
    own = key.startswith("app.kubernetes.io/") and key != "app.kubernetes.io/component"
    return own or key in ("helm.sh/resource-policy", "imagePullPolicy")

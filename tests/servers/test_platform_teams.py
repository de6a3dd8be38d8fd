"""The page for platform teams, played in its order: kubectl's own commands, the page's files, and
the upgrade from one namespace for all.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.emulators.driving.kube_tools import Kube, Ran, tool
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.operators import (
    MERGE,
    ROOT,
    Object,
    Operator,
    People,
    account_config,
    cluster_with_our_kinds,
    until,
)

PAGE = (ROOT / "docs/how-to/for-platform-teams.md").read_text("utf-8")
COMMANDS = [it for block in re.findall(r"```sh\n(.*?)```", PAGE, re.S) for it in block.splitlines()]
FILES = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.S)]
CAN_I = next(it for it in re.findall(r"`(kubectl [^`]+)`", PAGE) if " can-i " in it)
HELD = {"template": {"script": "echo part one; sleep 600"}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesEmulator]:
    """As the first steps of the page before leave it: our kinds, the roles, a Provider."""
    with cluster_with_our_kinds() as one:
        yield one


@pytest.fixture(scope="module")
def operator(
    cluster: KubernetesEmulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    directory = tmp_path_factory.mktemp("operator")
    kubectl = Kube(tool("kubectl"), cluster.kubeconfig, directory)
    kubectl.ok("apply", "-f", str(ROOT / "deploy/runs.yaml"))
    kubectl.ok("apply", "-f", str(ROOT / "deploy/kustomize/people.yaml"))
    one = start_operator(cluster, directory / "home", "first")
    yield one
    assert one.stop() == 0, one.told()
    assert "Traceback" not in one.told()


def start_operator(cluster: KubernetesEmulator, home: Path, log: str) -> Operator:
    words = ("--local-means", "kubernetes")
    return Operator(cluster, home, account_config(cluster), home.parent / log, *words)


@pytest.fixture
def people(cluster: KubernetesEmulator, operator: Operator) -> People:
    return People(cluster)


@pytest.fixture
def kubectl(cluster: KubernetesEmulator, operator: Operator) -> Kube:
    return Kube(tool("kubectl"), cluster.kubeconfig, operator.home)


def run(kubectl: Kube, command: str) -> Ran:
    program, *words = shlex.split(command)
    assert program == "kubectl"
    return kubectl(*words)


def pods(people: People, namespace: str, name: str) -> list[Object]:
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=fleetctl.dev%2Fname%3D{name}"
    found = people.ask("GET", path)["items"]
    return [it for it in found if it["status"].get("phase") == "Running"]


def status(people: People, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (people.get("BatchJob", name) or {}).get("status", {})
    return found


def end(people: People, name: str, namespace: str) -> None:
    people.delete("BatchJob", name, namespace)
    people.gone("BatchJob", name)


def test_a_team_runs_work_once_the_commands_of_the_page_ran(people: People, kubectl: Kube) -> None:
    make_namespace, bind_runs, bind_team, show_logs, top = COMMANDS
    assert run(kubectl, make_namespace).code == 0
    people.create("BatchJob", "chunks", HELD, "team-a")
    until(lambda: status(people, "chunks").get("hint"), "it waits for the right to run there")
    seen = status(people, "chunks")
    assert (seen["phase"], seen["hint"]) == ("Pending", bind_runs)

    assert run(kubectl, bind_runs).code == 0
    until(lambda: pods(people, "team-a", "chunks"), "it runs in its own namespace")
    assert run(kubectl, CAN_I).out.strip() == "no"
    assert run(kubectl, bind_team).code == 0
    assert run(kubectl, CAN_I).out.strip() == "yes"

    until(lambda: run(kubectl, show_logs).out, "the log has its output")
    [line] = run(kubectl, show_logs).out.splitlines()
    assert re.fullmatch(r"\[pod/batchjob-chunks-0-1-\w+\S*\] part one", line)
    *_, labels = shlex.split(top)  # kubectl reads the use of pods by this label
    assert len(kubectl.ok("get", "pods", "-A", "-l", labels, "--output=name").split()) == 1
    end(people, "chunks", "team-a")


def test_the_policy_of_the_page_refuses_pods_of_any_shape(people: People, kubectl: Kube) -> None:
    [policy] = [it for it in FILES if it["kind"] == "Policy"]
    kubectl.ok("apply", "-f", "-", stdin=yaml.safe_dump(policy))
    shaped = {"kubernetes": {"podTemplate": {"spec": {"hostNetwork": True}}}}
    template = {"script": "true", **shaped}
    people.create("BatchJob", "shaped", {"template": template}, "team-a")
    until(
        lambda: "ask for a field" in str(people.condition("BatchJob", "shaped", "Stalled")),
        "it is refused with the policy's words",
    )
    assert pods(people, "team-a", "shaped") == []
    people.create("BatchJob", "plain", {"template": {"script": "true"}}, "team-a")
    people.wait_for("BatchJob", "plain", "Complete")
    for name in ("shaped", "plain"):
        end(people, name, "team-a")


def test_work_goes_to_the_namespace_that_the_page_maps(people: People, kubectl: Kube) -> None:
    [provider] = [it for it in FILES if it["kind"] == "Provider"]
    _, bind_runs, *_ = COMMANDS
    kubectl.ok("create", "namespace", "team-a-runs")
    assert run(kubectl, bind_runs.replace("-n team-a", "-n team-a-runs")).code == 0
    kubectl.ok("apply", "-f", "-", stdin=yaml.safe_dump(provider))
    people.create("BatchJob", "mapped", HELD, "team-a")
    until(lambda: pods(people, "team-a-runs", "mapped"), "it runs where its team is mapped to")
    end(people, "mapped", "team-a")
    kubectl.ok("apply", "-f", str(ROOT / "deploy/runs.yaml"))


def test_work_that_runs_in_the_one_namespace_is_kept_by_the_upgrade(
    people: People, kubectl: Kube, cluster: KubernetesEmulator, operator: Operator
) -> None:
    """The operator is replaced and the Provider's line taken out while work runs; that work goes
    on where it began.
    """
    earlier = "fleetctl-runs"
    kubectl.ok("create", "namespace", earlier)
    _, bind_runs, *_ = COMMANDS
    assert run(kubectl, bind_runs.replace("-n team-a", f"-n {earlier}")).code == 0
    at = people.path("Provider", "default") + "/kubernetes"
    people.ask("PATCH", at, {"spec": {"kubernetes": {"namespace": earlier}}}, MERGE)
    people.create("BatchJob", "before", HELD, "team-a")
    [pod] = until(lambda: pods(people, earlier, "before"), "it runs in the one namespace")

    assert operator.stop() == 0
    newer = start_operator(cluster, operator.home, "newer")
    try:
        people.ask("PATCH", at, {"spec": {"kubernetes": {"namespace": None}}}, MERGE)
        people.create("BatchJob", "after", HELD, "team-a")
        until(lambda: pods(people, "team-a", "after"), "new work runs in its own namespace")
        [same] = pods(people, earlier, "before")
        assert same["metadata"]["uid"] == pod["metadata"]["uid"]
        assert pods(people, "team-a", "before") == []
        for name in ("before", "after"):
            end(people, name, "team-a")
        until(lambda: not pods(people, earlier, "before"), "its pod is gone from where it began")
    finally:
        assert newer.stop() == 0, newer.told()

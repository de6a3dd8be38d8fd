"""Teams in one cluster: each one's work is in its own namespace, under labels by which it is found,
and nothing of the operator or of another team is in reach of an object.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from fleetctl.providers.kubernetes.manifests.labels import build_claim
from fleetctl.providers.remote import volume_listing
from fleetctl.specs.blocks.kubernetes import ClusterVolumes
from fleetctl.specs.kinds.registry import KINDS
from tests.emulators.driving.kube_tools import Kube, tool
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.operators import (
    MERGE,
    ROOT,
    Operator,
    People,
    account_config,
    cluster_with_our_kinds,
    until,
)

TEAMS = ("team-a", "team-b", "shared")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ALLOWED = ("--allow-env", "team-a=SHOWN_TO_TEAM_A,MODAL_TOKEN_SECRET")
ECHO = {"script": 'echo "got [$SHOWN_TO_TEAM_A$HIDDEN$MODAL_TOKEN_SECRET$TOKEN]"'}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesEmulator]:
    with cluster_with_our_kinds() as one:
        people = People(one)
        provider, role, binding = yaml.safe_load_all((ROOT / "deploy/runs.yaml").read_text())
        people.ask("POST", "/apis/fleetctl.dev/v1alpha1/providers", provider)
        people.ask("POST", f"{RBAC}/clusterroles", role)
        for team in TEAMS:
            people.ask("POST", "/api/v1/namespaces", {"metadata": {"name": team}})
            path = f"{RBAC}/namespaces/{team}/rolebindings"
            people.ask("POST", path, {**binding, "metadata": {"name": "fleetctl-runs"}})
        yield one


@pytest.fixture(scope="module")
def operator(
    cluster: KubernetesEmulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    directory = tmp_path_factory.mktemp("operator")
    words = ("--local-means", "kubernetes", *ALLOWED)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SHOWN_TO_TEAM_A", "HIDDEN", "MODAL_TOKEN_SECRET"):
            patch.setenv(name, f"value-of-{name}")
        one = Operator(
            cluster, directory / "home", account_config(cluster), directory / "log", *words
        )
    yield one
    assert one.stop() == 0, one.told()
    assert "Traceback" not in one.told()


@pytest.fixture
def people(cluster: KubernetesEmulator, operator: Operator) -> People:
    return People(cluster)


def create(people: People, kind: str, name: str, spec: dict[str, Any], team: str) -> None:
    people.create(kind, name, spec, team, labels={"cost-center": "42"})


def status(people: People, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (people.get(kind, name) or {}).get("status", {})
    return found


def waits(people: People, name: str, words: str) -> None:
    """Waits until the object's reason to wait contains these words."""

    def says() -> bool:
        return words in " ".join(status(people, "BatchJob", name).get("waitingOn") or ())

    until(says, f"{name} waits for: {words}")


def secret(people: People, name: str, namespace: str, **values: str) -> None:
    data = {key: base64.b64encode(text.encode()).decode() for key, text in values.items()}
    body = {"metadata": {"name": name}, "data": data}
    people.ask("POST", f"/api/v1/namespaces/{namespace}/secrets", body)


def test_work_is_in_the_namespace_of_its_object_and_found_by_its_labels(
    people: People, cluster: KubernetesEmulator
) -> None:
    held = {"template": {"script": "echo up; sleep 600"}, "completions": 1}
    create(people, "BatchJob", "found", held, "team-a")
    [pod] = until(lambda: cluster.objects("pods", "", "team-a"), "its pod")
    labels = pod["metadata"]["labels"]
    assert pod["metadata"]["name"].startswith("batchjob-found-0-1-")
    assert labels["fleetctl.dev/kind"] == "batchjob"
    assert labels["fleetctl.dev/name"] == labels["app.kubernetes.io/name"] == "found"
    assert labels["fleetctl.dev/namespace"] == "team-a"
    assert labels["cost-center"] == "42"
    until(
        lambda: cluster.objects("pods", "", "team-a")[0]["status"]["phase"] == "Running", "it runs"
    )
    # As `kubectl logs -l fleetctl.dev/name=found` shows it, with no right but a pod's log.
    path = f"/api/v1/namespaces/team-a/pods/{pod['metadata']['name']}/log"
    until(lambda: "up" in people.text(path).splitlines(), "its output is in the pod's log")
    people.delete("BatchJob", "found", "team-a")
    people.gone("BatchJob", "found")
    until(lambda: not cluster.objects("jobs", "batch"), "no Job is left")


def test_who_may_view_a_namespace_sees_status_and_logs_there_and_nothing_else(
    people: People, cluster: KubernetesEmulator
) -> None:
    for role in yaml.safe_load_all((ROOT / "deploy/kustomize/people.yaml").read_text()):
        people.ask("POST", f"{RBAC}/clusterroles", role)
    binding = {
        "metadata": {"name": "viewers"},
        "roleRef": {"apiGroup": RBAC.split("/")[2], "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "Group", "name": "viewers"}],
    }
    people.ask("POST", f"{RBAC}/namespaces/team-a/rolebindings", binding)
    viewer = People(cluster, cluster.kubeconfig_for("vera", groups=("viewers",)))
    spec = {"template": {"script": "echo shown"}}
    create(people, "BatchJob", "seen", spec, "team-a")
    people.wait_for("BatchJob", "seen", "Complete")
    at = f"{viewer.path('BatchJob', 'team-a')}/seen"
    assert viewer.ask("GET", at)["status"]["message"] == "1 of 1 tasks succeeded"
    create(people, "BatchJob", "heard", {"template": {"script": "echo heard; sleep 600"}}, "team-a")
    [pod] = until(lambda: pods_of(viewer, "team-a", "heard"), "its pod is seen")
    log = f"/api/v1/namespaces/team-a/pods/{pod}/log"
    until(lambda: "heard" in viewer.text(log).splitlines(), "its output is seen")

    merge = ({"spec": {"suspend": True}}, MERGE)
    for kind, row in KINDS.items():
        path = viewer.path(kind, "team-a")
        assert viewer.code("GET", path) == (200 if row.namespaced else 403), kind
        assert viewer.code("POST", path, {"metadata": {"name": "mine"}, "spec": {}}) == 403, kind
        assert viewer.code("DELETE", path) == 403, kind
        for below in ("", "/status", *(("/scale",) if row.runs else ())):
            assert viewer.code("PATCH", f"{path}/seen{below}", *merge) == 403, kind + below
        assert viewer.code("DELETE", f"{path}/seen") == 403, kind
        if row.namespaced:
            assert viewer.code("GET", viewer.path(kind, "team-b")) == 403, kind
            everywhere = path.replace("/namespaces/team-a", "")
            assert viewer.code("GET", everywhere) == 403, kind
    for path in (
        "/api/v1/namespaces/team-a/secrets",
        f"/api/v1/namespaces/team-a/pods/{pod}/exec?command=env",
        "/api/v1/namespaces/team-b/pods",
        "/api/v1/namespaces/fleetctl/pods",
    ):
        assert viewer.code("GET", path) == 403, path
    assert viewer.code("DELETE", log.removesuffix("/log")) == 403
    assert viewer.code("DELETE", "/apis/batch/v1/namespaces/team-a/jobs") == 403
    for name in ("seen", "heard"):
        people.delete("BatchJob", name, "team-a")
        people.gone("BatchJob", name)


def pods_of(asking: People, namespace: str, name: str) -> list[str]:
    """Names of the pods that run, by the label of their object's name."""
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=fleetctl.dev%2Fname%3D{name}"
    found = asking.ask("GET", path)["items"]
    return [it["metadata"]["name"] for it in found if it["status"].get("phase") == "Running"]


def test_work_of_two_namespaces_runs_in_the_one_that_both_are_mapped_to(
    people: People, cluster: KubernetesEmulator, operator: Operator
) -> None:
    *_, binding = yaml.safe_load_all((ROOT / "deploy/runs.yaml").read_text())
    people.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "farm"}})
    bound = {**binding, "metadata": {"name": "fleetctl-runs"}}
    people.ask("POST", f"{RBAC}/namespaces/farm/rolebindings", bound)
    mapped = {"team-a": "farm", "team-b": "farm"}
    provider = {"type": "kubernetes", "kubernetes": {"namespaces": mapped}}
    people.create("Provider", "mapped", provider)
    for team in mapped:
        script = f"echo out of {team}; sleep 600"
        spec = {"template": {"script": script}, "placement": {"provider": "mapped"}}
        create(people, "BatchJob", "twin", spec, team)
    until(lambda: len(pods_of(people, "farm", "twin")) == 2, "the pods of both run")
    # Objects of one name differ by the hash at the end of their Jobs' names.
    assert all(it.startswith("batchjob-twin-0-1-") for it in pods_of(people, "farm", "twin"))
    kubectl = Kube(tool("kubectl"), cluster.kubeconfig, operator.home)
    for team in mapped:
        chosen = f"fleetctl.dev/name=twin,fleetctl.dev/namespace={team},cost-center=42"
        words = ("logs", "-n", "farm", "-l", chosen, "--tail", "-1")
        until(lambda words=words: kubectl(*words).out, "its output is there")
        assert kubectl.ok(*words).splitlines()[-1] == f"out of {team}"
        [job] = [
            it
            for it in cluster.objects("jobs", "batch")
            if it["metadata"]["labels"]["fleetctl.dev/name"] == "twin"
            and it["metadata"]["labels"]["fleetctl.dev/namespace"] == team
        ]
        assert job["metadata"]["namespace"] == "farm"
        assert job["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "fleetctl"
        assert job["metadata"]["labels"]["fleetctl.dev/kind"] == "batchjob"
    for team in mapped:
        people.delete("BatchJob", "twin", team)
    people.gone("BatchJob", "twin")
    until(lambda: not cluster.objects("jobs", "batch", "farm"), "no Job is left")


@pytest.mark.parametrize(
    ("variable", "team", "words", "fix"),
    [
        ("HIDDEN", "team-a", "namespace `team-a` may not read", "--allow-env team-a=HIDDEN`"),
        (
            "SHOWN_TO_TEAM_A",
            "team-b",
            "namespace `team-b` may not read",
            "--allow-env team-b=SHOWN_TO_TEAM_A`",
        ),
        ("MODAL_TOKEN_SECRET", "team-a", "a key of an account", "name it in `fromProvider`"),
    ],
)
def test_no_object_reads_what_its_namespace_is_not_given(
    people: People, cluster: KubernetesEmulator, variable: str, team: str, words: str, fix: str
) -> None:
    name = f"steal-{variable.lower().replace('_', '-')}-{team}"
    create(people, "Secret", name, {"fromEnv": [variable]}, team)
    create(people, "BatchJob", name, {"template": {**ECHO, "secrets": [name]}}, team)
    waits(people, name, words)
    seen = status(people, "BatchJob", name)
    assert (seen["phase"], fix in seen["hint"]) == ("Pending", True)
    # The list lets no Secret read a key, so that no hint may name the list.
    assert ("--allow-env" in seen["hint"]) == (variable != "MODAL_TOKEN_SECRET")
    people.delete("BatchJob", name, team)
    people.gone("BatchJob", name)


def test_what_is_listed_for_a_namespace_is_read_there(people: People, operator: Operator) -> None:
    create(people, "Secret", "listed", {"fromEnv": ["SHOWN_TO_TEAM_A"]}, "team-a")
    create(people, "BatchJob", "listed", {"template": {**ECHO, "secrets": ["listed"]}}, "team-a")
    people.wait_for("BatchJob", "listed", "Complete")
    said = b"got [***]"  # as a task that prints its own secret is kept

    def is_there() -> bool:
        logs = (operator.home / "kubernetes").rglob("*.log")
        return any(said in it.read_bytes() for it in logs)

    until(is_there, "the value is in its output")


def test_a_secret_of_a_shared_namespace_is_for_whom_its_label_names(people: People) -> None:
    rights = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    binding = {
        "metadata": {"name": "kept"},
        "roleRef": {"apiGroup": RBAC.split("/")[2], "kind": "Role", "name": "kept"},
        "subjects": [
            {"kind": "ServiceAccount", "name": "fleetctl-operator", "namespace": "fleetctl"}
        ],
    }
    path = f"{RBAC}/namespaces/shared"
    people.ask("POST", f"{path}/roles", {"metadata": {"name": "kept"}, "rules": rights})
    people.ask("POST", f"{path}/rolebindings", binding)
    secret(people, "creds", "shared", TOKEN="abc")
    everyone = {"type": "kubernetes", "kubernetes": {"namespace": "shared"}}
    people.create("Provider", "everyone", everyone)
    create(people, "Secret", "creds", {"fromProvider": "creds"}, "team-a")
    template = {**ECHO, "secrets": ["creds"]}
    there = {"template": template, "placement": {"provider": "everyone"}}
    create(people, "BatchJob", "taken", there, "team-a")
    waits(people, "taken", "Secret `creds` of namespace `shared`")
    # The way around it: the same by a field of the pod.
    patch = {
        "spec": {"containers": [{"name": "main", "envFrom": [{"secretRef": {"name": "creds"}}]}]}
    }
    around = {**there, "template": {**ECHO, "kubernetes": {"podTemplate": patch}}}
    create(people, "BatchJob", "around", around, "team-a")
    waits(people, "around", "Secret `creds` of namespace `shared`")
    index = {"url": "https://packages.example.org/simple", "secret": "creds"}
    image = {"pip": ["six"], "pipIndex": index}
    create(people, "BatchJob", "index", {**there, "template": {**ECHO, "image": image}}, "team-a")
    waits(people, "index", "Secret `creds` of namespace `shared`")
    label = {"metadata": {"labels": {"fleetctl.dev/use-by": "team-a"}}}
    merge = "application/merge-patch+json"
    people.ask("PATCH", "/api/v1/namespaces/shared/secrets/creds", label, merge)
    for name in ("taken", "around"):
        people.wait_for("BatchJob", name, "Complete")


def test_a_volume_that_is_where_all_work_ran_before_is_not_begun_anew(
    people: People, cluster: KubernetesEmulator, operator: Operator
) -> None:
    """Its data is in a claim of the namespace that earlier versions used."""
    earlier = "fleetctl-runs"
    people.ask("POST", "/api/v1/namespaces", {"metadata": {"name": earlier}})
    *_, binding = yaml.safe_load_all((ROOT / "deploy/runs.yaml").read_text())
    bound = {**binding, "metadata": {"name": "fleetctl-runs"}}
    people.ask("POST", f"{RBAC}/namespaces/{earlier}/rolebindings", bound)
    made = build_claim("team-a.ckpt", "team-a.ckpt", ClusterVolumes())
    people.ask("POST", f"/api/v1/namespaces/{earlier}/persistentvolumeclaims", made)
    volume_listing.note_used(operator.home / "kubernetes", "team-a.ckpt")
    create(people, "Volume", "ckpt", {"provider": "kubernetes"}, "team-a")
    until(lambda: "fleetctl-runs" in str(status(people, "Volume", "ckpt").get("message")), "why")
    assert cluster.objects("persistentvolumeclaims", "", "team-a") == []


def test_a_status_says_how_work_failed_and_its_last_words(people: People) -> None:
    script = "echo begun; echo 'no such table: runs' >&2; exit 7"
    spec = {"template": {"script": script}, "backoffLimitPerIndex": 0}
    create(people, "BatchJob", "broken", spec, "team-a")
    people.wait_for("BatchJob", "broken", "Failed")
    [failure] = status(people, "BatchJob", "broken")["failures"]
    assert (failure["index"], failure["attempt"], failure["exitCode"]) == (0, 1, 7)
    assert failure["lastLines"].splitlines()[-2:] == ["begun", "no such table: runs"]


def test_work_waits_for_a_provider_that_comes_later(people: People) -> None:
    """As with one commit of both, whose order of arrival at the operator is unknown."""
    spec = {"template": {"script": "true"}, "placement": {"provider": "race"}}
    create(people, "BatchJob", "early", spec, "team-a")
    until(lambda: status(people, "BatchJob", "early").get("reason") == "NoProvider", "it waits")
    assert status(people, "BatchJob", "early")["phase"] == "Pending"
    assert status(people, "BatchJob", "early")["message"] == "there is no provider `race` yet"
    people.create("Provider", "race", {"type": "kubernetes"})
    people.wait_for("BatchJob", "early", "Complete")


def test_a_team_without_rights_stops_no_other(people: People) -> None:
    people.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "new-team"}})
    create(people, "BatchJob", "unbound", {"template": {"script": "true"}}, "new-team")
    waits(people, "unbound", "new-team")
    hint = status(people, "BatchJob", "unbound")["hint"]
    assert hint.startswith("kubectl create rolebinding fleetctl-runs -n new-team")
    create(people, "BatchJob", "bound", {"template": {"script": "true"}}, "team-b")
    people.wait_for("BatchJob", "bound", "Complete")

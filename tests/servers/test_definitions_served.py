"""All that we ship for a cluster, applied by kubectl itself with strict validation to a server that
refuses what a real one refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.operator.crds.definition import GROUP, VERSION, definition_of
from fleetctl.specs.kinds.registry import API_VERSION, KINDS
from tests.emulators.driving.kube_tools import Kube, tool
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.operators import ROOT, People, until

STARTERS = ROOT / "fleetctl/cli/learn/starters"
MANIFESTS_MIN = 40  # documents in the files that we ship: the test reads them
Object = dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesEmulator]:
    with KubernetesEmulator() as one:
        yield one


@pytest.fixture(scope="module")
def kubectl(cluster: KubernetesEmulator, tmp_path_factory: Any) -> Kube:
    """Once all definitions are in, as the page says."""
    one = Kube(tool("kubectl"), cluster.kubeconfig, tmp_path_factory.mktemp("kubectl"))
    made = one.ok("apply", "--server-side", "-f", str(ROOT / "deploy/crds")).splitlines()
    assert len(made) == len(KINDS)
    one.ok("wait", "--for=condition=Established", "crd", "--all", "--timeout=400s")
    people = People(cluster)
    for kind in KINDS.values():
        path = f"/apis/{GROUP}/{VERSION}/{kind.plural}"
        until(lambda path=path: people.ask("GET", path), f"{kind.plural} are served")
    return one


def manifests() -> list[Path]:
    files = [*(ROOT / "specs/examples").rglob("*.yaml"), *STARTERS.glob("*.yaml")]
    return sorted(it for it in files if f"apiVersion: {API_VERSION}" in it.read_text())


def test_manifests_that_we_show_are_applied_as_they_are(kubectl: Kube) -> None:
    """Reads YAML as kubectl does, in one start; leaves out what `fleetctl apply` alone renders."""
    options: list[str] = []
    count = 0
    for path in manifests():
        documents = [it for it in yaml.safe_load_all(path.read_text()) if it]
        if all(it.get("kind") in KINDS for it in documents):  # no variables and overlays
            options += ("-f", str(path))
            count += len(documents)
    assert count > MANIFESTS_MIN
    ran = kubectl("apply", "--dry-run=server", *options)
    assert ran.code == 0, ran.err  # a line for each document that is refused
    assert len(ran.out.splitlines()) == count


@pytest.mark.parametrize("name", ["notify", "placement", "sweep-local-and-cloud"])
def test_kustomize_passes_it_on_as_it_is(kubectl: Kube, tmp_path: Path, name: str) -> None:
    """Fields that were called `on` were true by then."""
    path = ROOT / f"specs/examples/{name}.yaml"
    (tmp_path / "it.yaml").write_text(path.read_text())
    (tmp_path / "kustomization.yaml").write_text("namePrefix: team-\nresources: [it.yaml]\n")
    built = kubectl.ok("kustomize", str(tmp_path))
    made = kubectl.ok("apply", "--dry-run=server", "-f", "-", stdin=built)
    assert "team-" in made


@pytest.mark.parametrize("kind", list(KINDS))
def test_each_field_of_a_kind_comes_back_as_it_was_given(
    cluster: KubernetesEmulator, kubectl: Kube, kind: str
) -> None:
    del kubectl  # which has brought the definitions
    people, row = People(cluster), KINDS[kind]
    (version,) = definition_of(row)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    within = "/namespaces/default" if row.namespaced else ""
    path = f"/apis/{GROUP}/{VERSION}{within}/{row.plural}?dryRun=All&fieldValidation=Strict"
    for spec in specs_of(schema):
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
        assert people.ask("POST", path, body)["spec"] == spec


def specs_of(schema: Object) -> Iterator[Object]:
    """For each field at any depth a value that has it, and else what is required alone."""
    least = value_of(schema)
    yield least
    for name, node in schema.get("properties", {}).items():
        for inner in values_with_each_field(node):
            yield {**least, name: inner}


def values_with_each_field(node: Object) -> Iterator[Any]:
    if node.get("type") == "object" and node.get("properties"):
        yield from specs_of(node)
    elif node.get("type") == "array":
        for inner in values_with_each_field(node["items"]):
            yield [inner] * max(1, node.get("minItems", 1))
    elif isinstance(node.get("additionalProperties"), dict):
        for inner in values_with_each_field(node["additionalProperties"]):
            yield {"key": inner}
    else:
        yield value_of(node)


def value_of(node: Object) -> Any:
    """A value that the schema takes."""
    if "enum" in node:
        return node["enum"][0]
    sort = node.get("type")
    if sort == "object":
        fields = node.get("properties", {})
        if node.get("minProperties"):
            return {"key": [1]}
        return {name: value_of(fields[name]) for name in node.get("required", ())}
    if sort == "array":
        return [value_of(node["items"])] * node.get("minItems", 0)
    if sort == "boolean":
        return True
    if sort in ("integer", "number"):
        least = node.get("minimum", 1)
        return least + 1 if node.get("exclusiveMinimum") else least
    return next(
        it
        for it in ("x", "/x", "X", "None", "s3://x", "0" * 64)
        if re.search(node.get("pattern", ""), it)
    )

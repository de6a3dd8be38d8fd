"""A definition that is missing or older stops its kind alone, and the probes say which."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetctl.operator.crds.definition import GROUP, definition_of
from fleetctl.specs.kinds.registry import KINDS
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.operators import (
    HANG_S,
    MERGE,
    Operator,
    People,
    account_config,
    cluster_with_our_kinds,
    until,
)

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LATER = ("BatchJob", "Policy")
MUTANT_S = 150.0  # within what a mutant may take


class Probed(Operator):
    """An operator whose probes answer."""

    def __init__(self, cluster: KubernetesEmulator, directory: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = ("--health-port", str(self.port))
        log = directory / "log"
        super().__init__(cluster, directory / "home", account_config(cluster), log, *words)

    def asked(self, path: str) -> tuple[int, str]:
        """(status, text); (0, "") before it listens."""
        try:
            url = f"http://127.0.0.1:{self.port}{path}"
            with urllib.request.urlopen(url, timeout=HANG_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesEmulator]:
    with cluster_with_our_kinds(without=LATER) as one:
        yield one


@pytest.fixture(scope="module")
def operator(cluster: KubernetesEmulator, tmp_path_factory: Any) -> Iterator[Probed]:
    one = Probed(cluster, tmp_path_factory.mktemp("operator"))
    yield one
    assert one.stop() == 0, one.log.read_text()


def test_a_definition_that_is_missing_stops_its_kind_alone(
    cluster: KubernetesEmulator, operator: Probed
) -> None:
    people = People(cluster)
    people.create("Volume", "data", {})
    until(
        lambda: people.condition("Volume", "data", "Ready").get("status") == "True",
        "a volume is ready though definitions are missing",
        within_s=MUTANT_S,
    )
    _, text = until(lambda: _when(operator.asked("/readyz"), 503), "it is not ready")
    missing = "its definition is missing; kubectl apply --server-side -f deploy/crds"
    assert text.splitlines()[1:] == [f"batchjobs: {missing}", f"policies: {missing}"]
    assert 'fleetctl_kind_served{kind="policies"} 0' in operator.asked("/metrics")[1]
    for kind in LATER:
        people.ask("POST", DEFINITIONS, definition_of(KINDS[kind]))
    assert until(lambda: _when(operator.asked("/readyz"), 200), "it is ready") == (200, "ok")
    people.create("BatchJob", "late", {"template": {"python": "SUBMIT(x=1)"}})
    people.wait_for("BatchJob", "late", "Complete")
    text = operator.asked("/metrics")[1]
    assert 'fleetctl_objects{kind="BatchJob",phase="Succeeded"} 1' in text
    assert 'fleetctl_kind_served{kind="policies"} 1' in text
    assert "fleetctl_leader 1" in text
    assert operator.asked("/elsewhere") == (404, "not found")


def test_a_definition_that_is_older_is_named_with_what_it_does_not_know(tmp_path: Path) -> None:
    with cluster_with_our_kinds() as cluster:
        people = People(cluster)
        older = definition_of(KINDS["Volume"])
        schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        del schema["properties"]["spec"]["properties"]["deletionPolicy"]
        patch = {"spec": {"versions": older["spec"]["versions"]}}
        people.ask("PATCH", f"{DEFINITIONS}/volumes.{GROUP}", patch, MERGE)
        operator = Probed(cluster, tmp_path)
        _, text = until(
            lambda: _when(operator.asked("/readyz"), 503, "older"), "the older one is named"
        )
        assert "volumes: its definition is older: it does not know spec.deletionPolicy" in text
        people.create("Volume", "other", {})
        people.wait_for("Volume", "other", "Ready")
        assert operator.stop() == 0


def _when(answer: tuple[int, str], code: int, word: str = "") -> tuple[int, str] | None:
    return answer if answer[0] == code and word in answer[1] else None

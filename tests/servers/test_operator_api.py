"""The API of a team beside an operator, over the same state: it shows what custom resources became,
to who has a token, and changes none of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers import forked
from tests.servers.forked_program import make_program_directory
from tests.servers.operators import Operator, People, account_config, cluster_with_our_kinds

HOST = "fleet.example.org"
VERBS = ("suspend", "resume", "delete", "rerun")


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesEmulator]:
    with cluster_with_our_kinds() as one:
        yield one


@pytest.fixture(scope="module")
def operator(cluster: KubernetesEmulator, tmp_path_factory: Any) -> Iterator[Operator]:
    directory = tmp_path_factory.mktemp("operator")
    one = Operator(cluster, directory / "home", account_config(cluster), directory / "log")
    yield one
    assert one.stop() == 0, one.log.read_text()
    assert "Traceback" not in one.log.read_text()


@pytest.fixture
def server(operator: Operator) -> Iterator[str]:
    program = make_program_directory("fleetctl.server.api_server") / "fleetctl"
    words = [str(program), "serve", "--listen", "127.0.0.1:0", "--behind-proxy", "--name", HOST]
    env = {**os.environ, "FLEETCTL_HOME": str(operator.home)}
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    yield process.stdout.readline().decode().strip()
    process.terminate()
    process.wait(60)
    process.stdout.close()


def make_client(url: str, home: Path, user: str, *flags: str) -> httpx.Client:
    words = ["token", "create", user, *flags]
    made = forked.run(words, env={"FLEETCTL_HOME": str(home)})
    headers = {"host": HOST, "authorization": f"Bearer {made.stdout.strip()}"}
    return httpx.Client(base_url=f"{url}/api/v1/", headers=headers, timeout=240)


def test_custom_resources_are_read_over_the_api_and_changed_in_the_cluster_alone(
    cluster: KubernetesEmulator, operator: Operator, server: str
) -> None:
    people = People(cluster)
    people.create("BatchJob", "shown", {"template": {"python": "print('said'); SUBMIT(x=1)"}})
    people.wait_for("BatchJob", "shown", "Complete")
    bare = httpx.get(f"{server}/api/v1/batchjobs", headers={"host": HOST}, timeout=240)
    assert bare.status_code == 401
    with make_client(server, operator.home, "vera", "--role", "viewer", "-n", "other") as other:
        assert other.get("batchjobs").json()["items"] == []
        assert other.get("batchjobs/shown", params={"namespace": "default"}).status_code == 403
    with make_client(server, operator.home, "root", "--role", "admin", "-A") as admin:
        (item,) = admin.get("batchjobs").json()["items"]
        assert (item["metadata"]["name"], item["status"]["phase"]) == ("shown", "Succeeded")
        (result,) = admin.get("batchjobs/shown/results").json()["items"]
        assert result["result"] == {"x": 1}
        assert "said" in admin.get("batchjobs/shown/logs").text
        before = people.get("BatchJob", "shown")
        assert before is not None
        for verb in VERBS:
            refused = admin.post(verb, json={"keys": ["batchjob/shown"], "yes": True})
            assert refused.status_code == 409, refused.text
            assert "kubectl" in refused.json()["hint"]
        text = "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\nmetadata: {name: beside}\n"
        applied = admin.post(
            "apply", json={"manifest": f"{text}spec: {{template: {{python: SUBMIT(x=1)}}}}\n"}
        )
        assert applied.status_code == 409
        assert len(admin.get("batchjobs").json()["items"]) == 1
        assert (people.get("BatchJob", "shown") or {})["spec"] == before["spec"]
    assert operator.leads()

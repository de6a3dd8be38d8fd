"""The API of a team beside an operator, over the same state: it shows what custom resources became,
to who has a token, and what it changes are the custom resources."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.served import job
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers import forked
from tests.servers.forked_program import make_program_directory
from tests.servers.operators import (
    ROLES,
    ROOT,
    Operator,
    People,
    account_config,
    cluster_with_our_kinds,
    until,
)

HOST = "fleet.example.org"
SERVER_ROLES = ROOT / "deploy/server/roles.yaml"
REQUESTED_BY = "fleetctl.dev/requested-by"
LONG = "import time; print('begun', flush=True); time.sleep(3000)"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesEmulator]:
    with cluster_with_our_kinds(roles=(ROLES, SERVER_ROLES)) as one:
        yield one


@pytest.fixture(scope="module")
def people(cluster: KubernetesEmulator) -> People:
    return People(cluster)


@pytest.fixture(scope="module")
def operator(cluster: KubernetesEmulator, tmp_path_factory: Any) -> Iterator[Operator]:
    directory = tmp_path_factory.mktemp("operator")
    one = Operator(cluster, directory / "home", account_config(cluster), directory / "log")
    until(one.leads, "it leads")
    yield one
    assert one.stop() == 0, one.log.read_text()
    assert "Traceback" not in one.log.read_text()


@pytest.fixture(scope="module")
def server(operator: Operator) -> Iterator[str]:
    program = make_program_directory("fleetctl.server.api_server") / "fleetctl"
    # No proxy is in front here; so everybody needs a token on the loopback address, too.
    words = [str(program), "serve", "--listen", "127.0.0.1:0", "--behind-proxy", "--name", HOST]
    words += ["--name", "127.0.0.1"]
    env = {**os.environ, "FLEETCTL_HOME": str(operator.home)}
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    yield process.stdout.readline().decode().strip()
    process.terminate()
    process.wait(60)
    process.stdout.close()


def make_token(home: Path, user: str, *flags: str) -> str:
    made = forked.run(["token", "create", user, *flags], env={"FLEETCTL_HOME": str(home)})
    return made.stdout.strip()


def make_client(url: str, token: str) -> httpx.Client:
    headers = {"host": HOST, "authorization": f"Bearer {token}"}
    return httpx.Client(base_url=f"{url}/api/v1/", headers=headers, timeout=240)


@pytest.fixture(scope="module")
def ana_token(operator: Operator) -> str:
    return make_token(operator.home, "ana", "--role", "editor", "-n", "default")


@pytest.fixture(scope="module")
def ana(server: str, ana_token: str) -> Iterator[httpx.Client]:
    with make_client(server, ana_token) as client:
        yield client


Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def cli(server: str, ana_token: str, tmp_path_factory: Any) -> Cli:
    """The command line of another machine, over the server."""
    home = tmp_path_factory.mktemp("elsewhere")
    env = {
        "FLEETCTL_HOME": str(home / "home"),
        "FLEETCTL_SERVER": server,
        "FLEETCTL_TOKEN": ana_token,
        "XDG_CONFIG_HOME": str(home),
        "NO_COLOR": "1",
    }
    return lambda *words, stdin="": forked.run(words, env=env, stdin=stdin)


def audit_of(operator: Operator) -> list[dict[str, Any]]:
    import json

    done = forked.run(["audit", "-A", "-o", "json"], env={"FLEETCTL_HOME": str(operator.home)})
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_custom_resources_are_read_over_the_api(
    people: People, operator: Operator, server: str, ana: httpx.Client
) -> None:
    people.create("BatchJob", "shown", {"template": {"python": "print('said'); SUBMIT(x=1)"}})
    people.wait_for("BatchJob", "shown", "Complete")
    bare = httpx.get(f"{server}/api/v1/batchjobs", headers={"host": HOST}, timeout=240)
    assert bare.status_code == 401
    vera = make_token(operator.home, "vera", "--role", "viewer", "-n", "other")
    with make_client(server, vera) as other:
        assert other.get("batchjobs").json()["items"] == []
        assert other.get("batchjobs/shown", params={"namespace": "default"}).status_code == 403
    (item,) = [
        it for it in ana.get("batchjobs").json()["items"] if it["metadata"]["name"] == "shown"
    ]
    assert item["status"]["phase"] == "Succeeded"
    (result,) = ana.get("batchjobs/shown/results").json()["items"]
    assert result["result"] == {"x": 1}
    assert "said" in ana.get("batchjobs/shown/logs").text


def test_an_apply_writes_the_custom_resource_in_the_name_of_its_user(
    people: People, operator: Operator, ana: httpx.Client
) -> None:
    text = job("made", "SUBMIT(y=a)", tasks=2, labels={"stage": "one"})
    planned = ana.post("plan", json={"manifest": text})
    assert planned.json()["plan"]["objects"][0]["action"] == "create"
    assert people.get("BatchJob", "made") is None
    dry = ana.post("apply", json={"manifest": text, "dryRun": True})
    assert dry.status_code == 200, dry.text
    assert people.get("BatchJob", "made") is None
    made = ana.post("apply", json={"manifest": text}, headers={"x-fleetctl-agent": "robot"})
    assert made.status_code == 200, made.text
    assert made.json()["results"] == [
        {"key": "batchjob/made", "outcome": "created", "message": "2 tasks"}
    ]
    written = people.get("BatchJob", "made")
    assert written is not None
    assert written["spec"]["template"] == {"python": "SUBMIT(y=a)"}
    assert written["metadata"]["labels"] == {"stage": "one"}
    assert written["metadata"]["annotations"][REQUESTED_BY] == "ana via robot"
    people.wait_for("BatchJob", "made", "Complete")
    found = ana.get("batchjobs/made", params={"wide": "true"}).json()
    assert REQUESTED_BY not in found["metadata"]["annotations"]
    events = ana.get("batchjobs/made/events").json()["items"]
    assert any("created by ana via robot" in it["message"] for it in events), events
    act = next(it for it in audit_of(operator) if "batchjob/made" in it["object"])
    assert (act["user"], act["action"], act["code"]) == ("ana via robot", "apply", 0)
    again = ana.post("apply", json={"manifest": text}).json()
    assert again["results"][0]["outcome"] == "unchanged"
    # Fields of another tool stay; those that the manifest has no more are gone.
    people.patch("BatchJob", "made", {"metadata": {"labels": {"argocd.argoproj.io/x": "1"}}})
    more = ana.post("apply", json={"manifest": job("made", "SUBMIT(y=a)", tasks=3)})
    assert more.json()["results"][0]["outcome"] == "configured", more.text
    labels = (people.get("BatchJob", "made") or {})["metadata"]["labels"]
    assert labels == {"argocd.argoproj.io/x": "1"}
    until(lambda: ana.get("batchjobs/made").json()["status"].get("succeeded") == 3, "the third")


def test_what_an_apply_refuses_is_not_written(people: People, ana: httpx.Client) -> None:
    wrong = ana.post("apply", json={"manifest": job("wrong", paralelism=3)})
    assert (wrong.status_code, wrong.json()["code"]) == (400, 2)
    assert "paralelism" in wrong.text
    assert wrong.json()["findings"][0]["line"] == 1
    filed = job("filed").replace('"items": [{"a": 0}]', '"fromFile": "/etc/passwd"')
    assert ana.post("apply", json={"manifest": filed}).json()["code"] in (2, 3)
    pruned = ana.post("apply", json={"manifest": job("p"), "applyset": "x", "prune": True})
    assert pruned.json()["code"] == 2
    nowhere = ana.post("apply", json={"manifest": job("beyond", namespace="other")})
    assert nowhere.json()["code"] == 3
    for name in ("wrong", "filed", "p", "beyond"):
        assert people.get("BatchJob", name) is None, name


def test_a_loss_waits_for_consent_and_is_approved_for_this_change_alone(
    people: People, ana: httpx.Client
) -> None:
    assert ana.post("apply", json={"manifest": job("live", LONG)}).status_code == 200
    until(lambda: "begun" in ana.get("batchjobs/live/logs").text, "its task")
    changed = {"manifest": job("live", LONG + "  # changed")}
    refused = ana.post("apply", json=changed)
    assert (refused.status_code, refused.json()["code"]) == (409, 3)
    assert "running task" in refused.json()["losses"][0]
    before = people.get("BatchJob", "live")
    assert before is not None and before["metadata"]["generation"] == 1
    done = ana.post("apply", json={**changed, "yes": True})
    assert done.status_code == 200, done.text
    people.wait_for("BatchJob", "live", "Accepted")
    assert (people.get("BatchJob", "live") or {})["spec"]["template"]["python"].endswith("changed")
    deleted = ana.post("delete", json={"keys": ["batchjob/live"], "yes": True})
    assert deleted.json()["results"][0]["outcome"] == "deleted", deleted.text
    people.gone("BatchJob", "live")


def test_verbs_over_the_command_line_write_the_custom_resource(
    people: People, operator: Operator, ana: httpx.Client, cli: Cli
) -> None:
    done = cli("apply", "-f", "-", "--wait", stdin=job("worked", "SUBMIT(x=1)", tasks=2))
    assert done.returncode == 0, done.stderr
    people.wait_for("BatchJob", "worked", "Complete")
    again = cli("rerun", "job/worked")
    assert again.returncode == 0, again.stdout + again.stderr
    annotations = (people.get("BatchJob", "worked") or {})["metadata"]["annotations"]
    assert annotations[REQUESTED_BY].startswith("ana")
    until(
        lambda: len(ana.get("batchjobs/worked/tasks", params={"index": 0}).json()["items"]) == 2,
        "the second attempt",
    )
    assert cli("wait", "job/worked", "--for", "succeeded", "--timeout", "240s").returncode == 0

    assert cli("apply", "-f", "-", stdin=job("slow", LONG, tasks=3, parallelism=1)).returncode == 0
    spec = lambda: (people.get("BatchJob", "slow") or {})["spec"]  # noqa: E731 - read again
    scaled = cli("set", "job/slow", "parallelism=2")
    assert scaled.returncode == 0, scaled.stderr
    assert spec()["parallelism"] == 2
    assert cli("suspend", "job/slow").returncode == 0
    assert spec()["suspend"] is True
    until(lambda: ana.get("batchjobs/slow").json()["status"]["phase"] == "Suspended", "its rest")
    unchanged = ana.post("suspend", json={"keys": ["batchjob/slow", "batchjob/none"]}).json()
    assert [it["outcome"] for it in unchanged["results"]] == ["missing", "unchanged"]
    assert cli("resume", "job/slow").returncode == 0
    assert not spec().get("suspend")
    asked = cli("delete", "job/slow", "--yes")
    assert asked.returncode == 0, asked.stderr
    people.gone("BatchJob", "slow")
    mine = [it for it in audit_of(operator) if "batchjob/slow" in it["object"]]
    acts = {(it["action"], it["code"]) for it in mine}
    assert {("set", 0), ("suspend", 0), ("resume", 0), ("delete", 0)} <= acts


def test_scaling_writes_the_resource_and_as_many_tasks_run(
    people: People, operator: Operator, ana: httpx.Client, cli: Cli
) -> None:
    made = ana.post("apply", json={"manifest": job("sized", LONG, tasks=4, parallelism=1)})
    assert made.status_code == 200, made.text
    spec = lambda: (people.get("BatchJob", "sized") or {})["spec"]  # noqa: E731 - read again

    def runs(count: int) -> bool:
        items = ana.get("batchjobs/sized/tasks").json()["items"]
        live = [it for it in items if it["status"]["phase"] == "Running"]
        return len(live) == count

    until(lambda: runs(1), "its first task")
    done = ana.post("scale", json={"key": "batchjob/sized", "parallelism": 3})
    assert done.status_code == 200, done.text
    assert done.json()["results"][0]["outcome"] == "configured"
    assert spec()["parallelism"] == 3
    until(lambda: runs(3), "three tasks at once")
    again = ana.post("scale", json={"key": "batchjob/sized", "parallelism": 3}).json()
    assert again["results"][0]["outcome"] == "unchanged"

    for wrong in (-1, "2", True):
        body = {"key": "batchjob/sized", "parallelism": wrong}
        refused = ana.post("scale", json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, 2), refused.text
    absent = ana.post("scale", json={"key": "batchjob/absent", "parallelism": 2})
    assert (absent.status_code, absent.json()["code"]) == (404, 4)
    assert spec()["parallelism"] == 3

    scaled = cli("scale", "job/sized", "--parallelism", "4")
    assert scaled.returncode == 0, scaled.stderr
    assert spec()["parallelism"] == 4
    until(lambda: runs(4), "four tasks at once")
    acts = [it for it in audit_of(operator) if "batchjob/sized" in it["object"]]
    assert ("ana", "set", 0) in {(it["user"], it["action"], it["code"]) for it in acts}
    deleted = ana.post("delete", json={"keys": ["batchjob/sized"], "yes": True})
    assert deleted.json()["results"][0]["outcome"] == "deleted", deleted.text
    people.gone("BatchJob", "sized")


def test_a_viewer_writes_nothing_and_an_editor_nothing_of_the_whole_cluster(
    people: People, operator: Operator, server: str, ana: httpx.Client
) -> None:
    people.create("BatchJob", "watched", {"template": {"python": LONG}, "suspend": True})
    people.wait_for("BatchJob", "watched", "Accepted")
    before = people.get("BatchJob", "watched") or {}
    vic = make_token(operator.home, "vic", "--role", "viewer", "-n", "default")
    body = {"keys": ["batchjob/watched"], "yes": True}
    with make_client(server, vic) as viewer:
        for verb in ("suspend", "resume", "delete", "rerun"):
            assert viewer.post(verb, json=body).status_code == 403, verb
        assert viewer.post("apply", json={"manifest": job("viewed")}).status_code == 403
        scaled = {"key": "batchjob/watched", "parallelism": 2}
        assert viewer.post("scale", json=scaled).status_code == 403
    provider = (
        '{"apiVersion": "fleetctl.dev/v1alpha1", "kind": "Provider", "metadata": {"name": "local"},'
        ' "spec": {}}'
    )
    assert ana.post("apply", json={"manifest": provider}).status_code == 409
    assert people.get("Provider", "local") is None
    assert people.get("BatchJob", "viewed") is None
    assert (people.get("BatchJob", "watched") or {})["metadata"]["generation"] == (
        before["metadata"]["generation"]
    )
    people.delete("BatchJob", "watched")


def test_an_annotation_names_no_author(people: People, ana: httpx.Client) -> None:
    """Whoever may write a resource could write any name."""
    people.create(
        "BatchJob", "forged", {"template": {"python": "SUBMIT(x=1)"}},
        annotations={REQUESTED_BY: "boss"},
    )  # fmt: skip
    people.wait_for("BatchJob", "forged", "Complete")
    events = ana.get("batchjobs/forged/events").json()["items"]
    assert not [it for it in events if "boss" in it["message"]]
    assert "boss" not in ana.get("batchjobs/forged").text

"""The operator on an emulated cluster, under the rights that deploy/ grants it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.operator.mirror.custom_resource import APPROVE, FINALIZER
from fleetctl.specs.kinds.registry import KINDS
from tests.emulators.driving.gates import gate
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers import forked
from tests.servers.operators import (
    ROLES,
    ROOT,
    Operator,
    People,
    account_config,
    cluster_with_our_kinds,
    until,
)

WRITES_MAX = 6  # of an object's life


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
def people(cluster: KubernetesEmulator, operator: Operator) -> People:
    return People(cluster)


def job(python: str = "SUBMIT(x=1)", **more: Any) -> dict[str, Any]:
    return {"template": {"python": python}, **more}


def test_an_example_runs_unchanged_with_few_writes_and_one_event(people: People) -> None:
    (hello,) = yaml.safe_load_all((ROOT / "docs/examples/hello.yaml").read_text())
    before = sum(people.writes().values())
    people.create(hello["kind"], "hello", hello["spec"])
    complete = people.wait_for("BatchJob", "hello", "Complete")
    assert complete["message"] == "3 of 3 tasks succeeded"
    until(lambda: people.events("hello"), "its event")
    people.delete("BatchJob", "hello")
    people.gone("BatchJob", "hello")
    assert sum(people.writes().values()) - before <= WRITES_MAX
    told = [(it["type"], it["reason"], it["message"]) for it in people.events("hello")]
    assert told == [("Normal", "Completed", "3 of 3 tasks succeeded")]


def test_kubectl_shows_what_our_list_shows(people: People, operator: Operator) -> None:
    people.create("BatchJob", "shown", job(completions=2, parallelism=1), labels={"team": "rlm"})
    people.wait_for("BatchJob", "shown", "Complete")
    status = (people.get("BatchJob", "shown") or {})["status"]
    answer = forked.run(["get", "job", "shown"], env={"FLEETCTL_HOME": str(operator.home)})
    titles, row = (line.split() for line in answer.stdout.splitlines()[:2])
    ours = dict(zip(titles, row, strict=True))
    columns = status["columns"]
    assert (ours["STATUS"], ours["DONE"]) == (status["phase"], columns["done"])
    assert (ours["WHERE"], ours["RETRIES"]) == (columns["where"], columns["retries"])
    assert ours["DURATION"] == columns["duration"]


def test_what_is_refused_says_where_and_what_and_runs_once_it_is_right(people: People) -> None:
    wrong = job(template={"python": "SUBMIT(x=1)", "resources": {"memory": "4 tons"}})
    people.create("BatchJob", "wrong", wrong)
    accepted = people.wait_for("BatchJob", "wrong", "Accepted", "False")
    assert accepted["reason"] == "Invalid"
    assert "spec.template.resources.memory is `4 tons`" in accepted["message"]
    assert (people.get("BatchJob", "wrong") or {})["status"]["phase"] == "Refused"
    right = {"template": {"resources": {"memory": "1Gi"}}}
    people.patch("BatchJob", "wrong", {"spec": right})
    people.wait_for("BatchJob", "wrong", "Complete")
    assert people.condition("BatchJob", "wrong", "Accepted")["status"] == "True"


def test_a_file_of_the_operators_own_container_is_not_read(people: People) -> None:
    people.create("Secret", "token", {"fromFile": {"TOKEN": "/etc/hostname"}})
    accepted = people.wait_for("Secret", "token", "Accepted", "False")
    assert accepted["reason"] == "NamesFile"
    assert "use `fromEnv`" in accepted["message"]


def test_an_edit_that_destroys_work_waits_for_its_annotation(people: People) -> None:
    with gate() as door:
        people.create("BatchJob", "edited", job(door.python()))
        until(lambda: _runs(people, "edited"), "its task runs")
        people.patch("BatchJob", "edited", {"spec": {"template": {"python": "SUBMIT(x=2)"}}})
        accepted = people.wait_for("BatchJob", "edited", "Accepted", "False")
        assert accepted["reason"] == "NeedsConsent"
        assert "1 running task would be replaced" in accepted["message"]
        assert "fleetctl.dev/custom-resource" not in accepted["message"]
        assert _status(people, "edited")["active"] == 1
        (digest,) = [
            word.rpartition("=")[2].strip("`")
            for word in accepted["message"].split()
            if word.startswith(f"{APPROVE}=")
        ]
        people.patch("BatchJob", "edited", {"metadata": {"annotations": {APPROVE: digest}}})
        people.wait_for("BatchJob", "edited", "Complete")
        assert people.condition("BatchJob", "edited", "Accepted")["status"] == "True"


def test_deletion_waits_until_nothing_of_it_runs(people: People, tmp_path: Path) -> None:
    with gate() as door:
        mark = f"import os; print(os.getpid()); {door.python()}"
        people.create("BatchJob", "deleted", job(mark.replace("; \n", "\n")))
        until(lambda: _runs(people, "deleted"), "its task runs")
        assert FINALIZER in (people.get("BatchJob", "deleted") or {})["metadata"]["finalizers"]
        people.delete("BatchJob", "deleted")
        people.gone("BatchJob", "deleted")
        # Nothing waits at the gate any more: what is opened lets nobody through.
        door.open()
        door.door.settimeout(0.5)
        with pytest.raises(TimeoutError):
            door.door.accept()


def test_one_whose_finalizer_was_taken_by_hand_is_ended_all_the_same(
    people: People, operator: Operator
) -> None:
    with gate() as door:
        people.create("BatchJob", "forced", job(door.python()))
        until(lambda: _runs(people, "forced"), "its task runs")
        people.patch("BatchJob", "forced", {"metadata": {"finalizers": None}})
        people.delete("BatchJob", "forced")
        until(lambda: "forced" not in _listed(operator), "nothing of it is stored")


def test_a_name_used_again_is_another_object(people: People) -> None:
    people.create("BatchJob", "again", job("SUBMIT(x=1)"))
    people.wait_for("BatchJob", "again", "Complete")
    people.delete("BatchJob", "again")
    people.gone("BatchJob", "again")
    made = people.create("BatchJob", "again", job("SUBMIT(x=2)"))
    people.wait_for("BatchJob", "again", "Complete")
    assert (people.get("BatchJob", "again") or {})["metadata"]["uid"] == made["metadata"]["uid"]


def test_of_one_that_is_over_what_changes_later_is_told_too(people: People) -> None:
    """By then its spec and status are let go of, and asked for again."""
    people.create("BatchJob", "freed", job(ttlSecondsAfterFinished=1))
    people.wait_for("BatchJob", "freed", "Complete")
    until(lambda: _status(people, "freed").get("scratchFreed"), "its directories are gone")
    assert _status(people, "freed")["phase"] == "Succeeded"
    assert _status(people, "freed")["columns"]["done"] == "1/1"


def test_a_cut_watch_and_a_server_that_fails_lose_nothing(
    people: People, cluster: KubernetesEmulator
) -> None:
    cluster.fault(verb="patch", resource="batchjobs", code=500, count=1)
    cluster.fault(verb="patch", resource="batchjobs/status", code=429, count=2, retry_after_s=0)
    cluster.fault(verb="patch", resource="batchjobs", lost=True, count=1, after=1)
    people.create("BatchJob", "unlucky", job())
    cluster.compact()
    cluster.cut_watches("batchjobs")
    people.create("BatchJob", "after", job())
    people.wait_for("BatchJob", "unlucky", "Complete")
    people.wait_for("BatchJob", "after", "Complete")
    cluster.remove_faults()


def test_every_kind_is_mirrored_and_ready(people: People, operator: Operator) -> None:
    rule = {"expression": "has(object.metadata.labels.team)", "message": "whose is it?"}
    made: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("Volume", "data", {}),
        ("Budget", "all", {"maxCost": 10}),
        ("Provider", "local", {"limits": {"maxSandboxes": 50}}),
        ("Queue", "lab", {"quotas": [{"resource": "sandboxes", "nominal": 2}]}),
        ("Policy", "named", {"match": {"kinds": ["Sweep"]}, "rules": [rule]}),
        ("Settings", "default", {"retention": {"logs": {"maxAge": "14d"}}}),
        (
            "Notifier",
            "told",
            {"notify": [{"on": ["Failed"], "webhook": {"url": "http://127.0.0.1:9/"}}]},
        ),
    )
    for kind, name, spec in made:
        people.create(kind, name, spec)
    for kind, name, _ in made:
        people.wait_for(kind, name, "Ready")
        people.delete(kind, name)
        people.gone(kind, name)


def test_what_only_another_machine_can_do_is_refused(people: People) -> None:
    people.create("Source", "fleet", {"git": {"url": "https://git.example.org/fleet.git"}})
    sink = {"on": ["Failed"], "command": ["notify-send", "it failed"]}
    people.create("Notifier", "shell", {"notify": [sink]})
    told = {"Source": ("fleet", "point Argo CD or Flux at"), "Notifier": ("shell", "webhook")}
    for kind, (name, words) in told.items():
        accepted = people.wait_for(kind, name, "Accepted", "False")
        assert accepted["reason"] == "Unsupported" and words in accepted["message"]
        assert (people.get(kind, name) or {})["status"]["phase"] == "Refused"
        people.delete(kind, name)
        people.gone(kind, name)


def test_what_was_refused_is_tried_again_when_another_object_changes(people: People) -> None:
    rule = {"expression": "has(object.metadata.labels.owner)", "message": "whose is it?"}
    people.create("Policy", "owned", {"match": {"kinds": ["BatchJob"]}, "rules": [rule]})
    people.wait_for("Policy", "owned", "Ready")
    people.create("BatchJob", "nobodys", job())
    people.wait_for("BatchJob", "nobodys", "Accepted", "False")
    people.delete("Policy", "owned")
    people.wait_for("BatchJob", "nobodys", "Complete")


def test_the_operator_has_the_rights_that_it_uses_and_no_other(
    people: People, cluster: KubernetesEmulator, operator: Operator
) -> None:
    """A whole life, and one whose end the operator has to ask for: all that it ever calls."""
    people.create("BatchJob", "whole", job())
    people.wait_for("BatchJob", "whole", "Complete")
    people.delete("BatchJob", "whole")
    people.gone("BatchJob", "whole")
    people.create("BatchJob", "asked-for", job())
    people.wait_for("BatchJob", "asked-for", "Complete")
    people.patch("BatchJob", "asked-for", {"metadata": {"finalizers": None}})
    people.delete("BatchJob", "asked-for")
    until(lambda: "asked-for" not in _listed(operator), "nothing of it is stored")
    until(lambda: "update leases" in cluster.requests(), "its lease is renewed")
    used = {tuple(it.split(" ")) for it in cluster.requests()}
    plurals = {it.plural for it in KINDS.values()}
    granted: set[tuple[str, str]] = set()
    for role in yaml.safe_load_all(ROLES.read_text()):
        for rule in role.get("rules", ()):
            assert "*" not in (*rule["resources"], *rule["verbs"])
            granted |= {(verb, it) for verb in rule["verbs"] for it in rule["resources"]}
    of_kinds = {it for it in granted if it[1].partition("/")[0] in plurals}
    assert {it[1].partition("/")[0] for it in of_kinds} == plurals
    # Of our kinds each verb is used of some; the lists are the same for all.
    verbs = {(verb, what.partition("/")[2]) for verb, what in of_kinds}
    done = {
        (verb, what.partition("/")[2]) for verb, what in used if what.partition("/")[0] in plurals
    }
    assert verbs <= done, verbs - done
    others = granted - of_kinds
    assert others <= used, others - used


def _status(people: People, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (people.get("BatchJob", name) or {}).get("status", {})
    return found


def _runs(people: People, name: str) -> bool:
    """Returns whether a task has begun: an edit that replaces one that has not destroys nothing."""
    found = _status(people, name)
    return bool(found.get("active") == 1 and not found.get("starting"))


def _listed(operator: Operator) -> str:
    answer = forked.run(["get", "jobs"], env={"FLEETCTL_HOME": str(operator.home)})
    return answer.stdout

"""The command line with a server: from another machine's directory the verbs do what they do beside
the controller, and what they cannot do they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.served import ServedFleet, job
from tests.docs.fleet import Fleet

AGE = re.compile(r"\b\d+(?:\.\d+)?[smhd]\b *")  # the one verb runs a little after the other


@pytest.fixture(scope="module")
def far(served: ServedFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A command line that has the server's address and a token, and an empty home of its own."""
    place = tmp_path_factory.mktemp("far")
    more = {
        "FLEETCTL_SERVER": served.url,
        "FLEETCTL_TOKEN": served.token("far", "admin", "-A"),
        "XDG_CONFIG_HOME": str(place / "config"),
    }
    fleet = Fleet(place / "home", more)
    program = "print('said', a)\nSUBMIT(x=a)"
    fleet.ok("apply", "-f", "-", "--wait", stdin=job("far", program, tasks=3))
    yield fleet
    assert not fleet.home.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("get", "jobs", "-o", "json"),
        ("get", "job/far", "-o", "yaml"),
        ("get", "all", "-o", "name"),
        ("get", "tasks", "job/far", "-o", "csv"),
        ("get", "attempts", "job/far", "-o", "json"),
        ("get", "jobs", "--field-selector", "status=Succeeded", "-o", "name"),
        ("describe", "job/far"),
        ("logs", "job/far"),
        ("logs", "job/far", "--index", "1", "--tail", "1", "--no-prefix"),
        ("results", "job/far", "-o", "jsonl"),
        ("events", "job/far", "-o", "json"),
        ("wait", "job/far", "--for", "complete"),
        ("graph", "job/far"),
    ],
    ids=" ".join,
)
def test_a_reading_verb_prints_what_it_prints_there(
    served: ServedFleet, far: Fleet, words: tuple[str, ...]
) -> None:
    here, there = far.run(*words), served.run(*words)
    assert here.code == there.code == 0, here.talk
    assert AGE.sub("AGE", here.out) == AGE.sub("AGE", there.out)
    assert here.out


def test_changes_reach_the_server_and_name_their_user(served: ServedFleet, far: Fleet) -> None:
    far.ok("apply", "-f", "-", stdin=job("changed", tasks=2, suspend=True))
    assert served.status("job/changed")["phase"] == "Suspended"
    assert "resumed" in far.ok("resume", "job/changed")
    far.ok("wait", "job/changed", "--for", "complete", "--timeout", "4m")
    assert "requeued" in far.ok("rerun", "job/changed")
    far.ok("scale", "job/changed", "--parallelism", "3")
    assert served.json("get", "job/changed")["spec"]["parallelism"] == 3
    far.ok("label", "job/changed", "team=far")
    assert served.json("get", "job/changed")["metadata"]["labels"] == {"team": "far"}
    far.ok("wait", "job/changed", "--for", "complete", "--timeout", "4m")
    plan = json.loads(far.ok("plan", "-o", "json", "-f", "-", stdin=job("planned")))
    assert plan["objects"][0]["action"] == "create"
    far.ok("delete", "job/changed")
    assert served.run("get", "job/changed").code == 4
    acts = {row["action"] for row in served.json("audit", "--user", "far", "-A")}
    assert {"apply", "resume", "retry", "set", "delete"} <= acts


def test_files_that_a_manifest_names_go_with_it(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("a\n7\n8\n")
    manifest = json.loads(job("rows", "SUBMIT(x=int(a))"))
    manifest["spec"]["tasks"] = {"fromFile": "rows.csv"}
    (tmp_path / "job.json").write_text(json.dumps(manifest))
    far.ok("apply", "-f", str(tmp_path / "job.json"), "--wait")
    found = [json.loads(line) for line in far.ok("results", "job/rows", "-o", "jsonl").splitlines()]
    assert [row["result"] for row in found] == [{"x": 7}, {"x": 8}]
    manifest["spec"]["template"]["source"] = {"path": "."}
    (tmp_path / "job.json").write_text(json.dumps(manifest))
    refused = far.run("apply", "-f", str(tmp_path / "job.json"))
    assert refused.code == 2
    assert "source.path names a file" in refused.talk


def test_errors_have_the_exit_codes_and_sentences_of_the_verbs(
    served: ServedFleet, far: Fleet
) -> None:
    for words, stdin in (
        (("get", "job/none"), None),
        (("suspend", "job/none"), None),
        (("apply", "-f", "-"), job("wrong", parallelism=-1)),
        (("wait", "job/none"), None),
    ):
        here, there = far.run(*words, stdin=stdin), served.run(*words, stdin=stdin)
        assert (here.code, here.talk) == (there.code, there.talk)
        assert here.code in (2, 4)


@pytest.mark.parametrize("verb", ["exec", "cp", "query", "run", "diff", "backup", "gc", "edit"])
def test_a_verb_that_needs_the_machine_is_refused(far: Fleet, verb: str) -> None:
    refused = far.run(verb, "job/far")
    assert refused.code == 2
    assert f"`fleetctl {verb}` does not work over a server yet" in refused.talk


def test_login_keeps_a_server_and_config_chooses_it(served: ServedFleet, tmp_path: Path) -> None:
    viewer = served.token("reader", "viewer", "-A")
    fleet = Fleet(tmp_path / "home", {"XDG_CONFIG_HOME": str(tmp_path / "config")})
    assert "reader is viewer in all namespaces" in fleet.ok(
        "login", served.url, stdin=f"{viewer}\n"
    )
    kept = tmp_path / "config" / "fleetctl" / "contexts.json"
    assert kept.stat().st_mode & 0o077 == 0
    assert "batchjob/far" in fleet.ok("get", "jobs", "-o", "name")
    denied = fleet.run("delete", "job/far")
    assert denied.code == 3
    assert "this needs the role `editor`" in denied.talk
    fleet.ok("config", "use", "local")
    assert fleet.ok("get", "jobs", "-o", "name") == ""
    assert "batchjob/far" in fleet.ok("get", "jobs", "-o", "name", "--server", "team")
    fleet.ok("config", "use", "team")
    assert fleet.ok("get", "jobs", "-o", "name", "--server", "local") == ""
    assert served.url in fleet.ok("config", "list")
    fleet.ok("config", "remove", "team")
    assert fleet.run("config", "use", "team").code == 4
    wrong = fleet.run("login", served.url, stdin="flt_00000000_x\n")
    assert wrong.code == 3


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "home", {"XDG_CONFIG_HOME": str(tmp_path)})
    gone = fleet.run("get", "jobs", "--server", "http://127.0.0.1:9")
    assert gone.code == 1
    assert "http://127.0.0.1:9 does not answer" in gone.talk
    fleet.env["FLEETCTL_TOKEN"] = "flt_00000000_x"
    open_ = fleet.run("get", "jobs", "--server", "http://fleet.example.org")
    assert open_.code == 3
    assert "in the open" in open_.talk

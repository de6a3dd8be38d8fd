"""The command line with a server: from another machine's directory the verbs do what they do beside
the controller, and what they cannot do they refuse."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.served import ServedFleet, job, until
from tests.docs.fleet import Fleet
from tests.unit.cli.terminals import Terminal

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
        ("top", "-o", "json"),
        ("cost",),
        ("cost", "--by", "user", "-o", "json"),
        ("cost", "--by", "label=team", "-o", "csv"),
        ("plot", "job/far"),
        ("query", "select idx, state, result, x'00ff' as raw from tasks order by 1"),
        ("query", "--views"),
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


def test_the_trace_of_the_caller_goes_along(served: ServedFleet, far: Fleet) -> None:
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    far.env["TRACEPARENT"] = caller
    try:
        far.ok("apply", "-f", "-", stdin=job("traced", tasks=1, suspend=True))
    finally:
        del far.env["TRACEPARENT"]
    notes = served.json("get", "job/traced")["metadata"]["annotations"]
    ((_, traceparent),) = json.loads(notes["fleetctl.dev/traces"])
    assert traceparent == caller
    far.ok("apply", "-f", "-", stdin=job("traced", tasks=2, suspend=True))
    assert served.json("get", "job/traced")["metadata"]["annotations"] == notes
    far.ok("delete", "job/traced")


def test_a_plan_is_the_same_text_and_asks_the_same(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    served.ok("apply", "-f", "-", stdin=job("edits", suspend=True, parallelism=2))
    files = [tmp_path / "new.json", tmp_path / "edits.json", tmp_path / "wrong.json"]
    files[0].write_text(job("unseen", "print(1)", tasks=7, labels={"team": "x"}))
    files[1].write_text(job("edits", "SUBMIT(x=2)", tasks=3, suspend=True, labels={"a": "unset"}))
    files[2].write_text(job("placed", placement={"provider": "owm"}))
    for words in (
        ("-o", "text"),
        ("-o", "json"),
        ("-o", "markdown"),
        ("--detailed-exitcode",),
        ("--fail-on", "changes"),
        ("--max-cost", "0"),
    ):
        for file in files:
            asked = ("plan", "-f", str(file), *words)
            here, there = far.run(*asked), served.run(*asked)
            assert (here.code, here.talk) == (there.code, there.talk), asked
            if "json" in words:  # 0 and 0.0 are one number
                assert json.loads(here.out) == json.loads(there.out)
            else:
                assert here.out == there.out
    limited = far.run("apply", "-f", str(files[0]), "--max-cost", "0")
    assert (limited.code, limited.talk) == (
        served.run("apply", "-f", str(files[0]), "--max-cost", "0").code,
        limited.talk,
    )
    unjudged = far.run("plan", "--out", str(tmp_path / "plan"), "-f", str(files[0]))
    assert (unjudged.code, unjudged.out) == (2, "") and "--out" in unjudged.talk


def test_losses_are_asked_about_at_the_callers_terminal(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    work = "import time; time.sleep(3600)"
    far.ok("apply", "-f", "-", stdin=job("loses", work))
    until(lambda: "Running" in far.ok("get", "tasks", "job/loses"), "the task")
    file = tmp_path / "job.json"
    file.write_text(job("loses", "SUBMIT(x=1)"))
    assert far.run("apply", "-f", str(file)).code == 3
    words = [sys.executable, "-P", "-m", "fleetctl", "apply", "-f", str(file), "--wait"]
    with Terminal(words, far.env, tmp_path) as terminal:
        terminal.shows("go on? [y/N]")
        terminal.types("y\n", until="ucceeded")
        assert terminal.ends()[0] == 0


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


def test_files_are_checked_and_compared_with_what_the_server_has(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    file = tmp_path / "job.json"
    file.write_text(job("far", "SUBMIT(x=2)", tasks=4))
    for verb, code in (("diff", 1), ("validate", 0)):
        here, there = far.run(verb, "-f", str(file)), served.run(verb, "-f", str(file))
        assert (here.code, here.out) == (there.code, there.out) == (code, here.out)
        assert here.out
    hosts = [{"host": "gpu1.invalid", "slots": 1}]
    provider = {"kind": "Provider", "name": "own", "type": "ssh", "ssh": {"hosts": hosts}}
    served.ok("apply", "-f", "-", stdin=json.dumps(provider))
    file.write_text(job("placed", placement={"provider": "own"}))
    assert far.run("validate", "-f", str(file)).code == 0
    file.write_text(job("placed", placement={"provider": "owm"}))
    for verb, code in (("validate", 2), ("diff", 1)):
        here, there = far.run(verb, "-f", str(file)), served.run(verb, "-f", str(file))
        assert here.code == there.code == code
        assert here.talk == there.talk
        assert "there is no such provider" in here.talk


def test_a_command_runs_on_the_server(served: ServedFleet, far: Fleet, tmp_path: Path) -> None:
    assert far.ok("run", "--name", "said", "--", "echo", "from afar") == "from afar\n"
    assert served.status("job/said")["phase"] == "Succeeded"
    (tmp_path / "note.txt").write_text("taken along")
    words = ("run", "--name", "sent", "--source", str(tmp_path), "--", "cat", "note.txt")
    assert far.ok(*words) == "taken along\n"
    failed = far.run("run", "--", "sh", "-c", "exit 7")
    assert failed.code == 7


def test_a_schedule_makes_its_job_now(served: ServedFleet, far: Fleet) -> None:
    made = json.loads(job("inner"))["spec"]
    schedule = {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "Schedule",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 1 1 *", "template": {"kind": "BatchJob", "spec": made}},
    }
    far.ok("apply", "-f", "-", stdin=json.dumps(schedule))
    key = far.ok("create", "job", "--from", "schedule/nightly").removesuffix(" created\n")
    far.ok("wait", key, "--for", "complete", "--timeout", "4m")
    assert served.status(key)["phase"] == "Succeeded"
    assert "create" in {row["action"] for row in served.json("audit", "--user", "far", "-A")}


def test_an_object_is_edited_from_afar(served: ServedFleet, far: Fleet, tmp_path: Path) -> None:
    far.ok("apply", "-f", "-", stdin=job("edited", suspend=True))
    editor = tmp_path / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i 's/^  parallelism:.*/  parallelism: 5/' \"$1\"\n")
    editor.chmod(0o755)
    far.ok("set", "job/edited", "parallelism=2")
    far.env["FLEETCTL_EDITOR"] = str(editor)
    try:
        far.ok("edit", "job/edited")
    finally:
        del far.env["FLEETCTL_EDITOR"]
    assert served.json("get", "job/edited")["spec"]["parallelism"] == 5


def test_costs_name_the_user_of_an_object(served: ServedFleet, far: Fleet) -> None:
    rows = json.loads(far.ok("cost", "--by", "user", "-o", "json"))
    assert "far" in {row["key"] for row in rows}
    served.ok("apply", "-f", "-", "--wait", stdin=job("own"))
    rows = json.loads(served.ok("cost", "--by", "user", "-o", "json"))
    assert {"far", None} <= {row["key"] for row in rows}


def test_sql_shows_a_namespace_to_its_users_alone(served: ServedFleet, tmp_path: Path) -> None:
    served.ok("apply", "-f", "-", "--wait", stdin=job("theirs", namespace="theirs"))
    served.ok("apply", "-f", "-", "--wait", stdin=job("ours", namespace="ours"))
    fleet = Fleet(
        tmp_path / "home",
        {
            "FLEETCTL_SERVER": served.url,
            "FLEETCTL_TOKEN": served.token("one", "viewer", "-n", "ours"),
            "XDG_CONFIG_HOME": str(tmp_path),
        },
    )
    for view in ("objects", "tasks", "attempts", "results", "events", "costs"):
        sql = f"select distinct name, namespace from {view}"
        found = json.loads(fleet.ok("query", sql, "-o", "json"))
        assert found == [{"name": "ours", "namespace": "ours"}], view
    assert json.loads(fleet.ok("query", "select count(*) n from interpreters", "-o", "json")) == [
        {"n": 0}
    ]
    rows = json.loads(fleet.ok("cost", "-A", "-o", "json"))
    assert {row["key"] for row in rows} == {"batchjob/ours -n ours"}
    raw = fleet.run("query", "select * from state.runs")
    assert raw.code == 2
    assert "only the views" in raw.talk
    slow = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n"
    ended = fleet.run("query", slow, "--timeout", "1s")
    assert ended.code == 2
    assert "took too long" in ended.talk


@pytest.mark.parametrize("verb", ["backup", "gc", "orphans", "doctor"])
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


@pytest.mark.parametrize(
    ("ours", "fits"), [("0.0.9", True), ("0.2.0", True), ("0.3.0", False), ("1.1.0", False)]
)
def test_versions_may_be_one_minor_apart(
    served: ServedFleet, far: Fleet, tmp_path: Path, ours: str, fits: bool
) -> None:
    """A command line of another version, against the server as it is; and the other way round."""
    program = (
        "import sys, fleetctl.common.version as v\n"
        f"v.VERSION = '{ours}'\n"
        "from fleetctl.cli.main import main\n"
        "sys.exit(main())"
    )
    other = ServedFleet(tmp_path / "other", program=program)
    try:
        here = {**far.env, "FLEETCTL_SERVER": served.url}
        there = {**far.env, "FLEETCTL_SERVER": other.url, "FLEETCTL_TOKEN": ""}
        for words, env in (
            ([sys.executable, "-P", "-c", program, "get", "jobs"], here),
            ([sys.executable, "-P", "-m", "fleetctl", "get", "jobs"], there),
        ):
            ran = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
            assert ran.returncode == (0 if fits else 3), ran.stderr
            assert ("one minor version apart" in ran.stderr) is not fits
            assert fits or "install on the older side" in ran.stderr
    finally:
        other.close()

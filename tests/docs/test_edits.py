"""Edit, apply, and the world equals the file: with real processes, files and repositories."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.fleet import Fleet
from tests.docs.test_changes import job, watching

READS = {
    "script": 'printf \'{"text": "%s"}\' "$(cat a.txt)" > "$FLEETCTL_RESULT"; cat a.txt',
}


def texts(fleet: Fleet, key: str) -> list[str]:
    return [row["result"]["text"] for row in fleet.json("results", key)]


def test_edited_code_is_told_by_name_and_runs_again(fleet: Fleet, tmp_path: Path) -> None:
    code, path = tmp_path / "src" / "a.txt", tmp_path / "job.yaml"
    code.parent.mkdir()
    code.write_text("one")
    path.write_text(job("edits", template={**READS, "source": {"path": "src"}}))
    fleet.ok("apply", "-f", str(path), "--wait")
    assert texts(fleet, "job/edits") == ["one"]
    assert "unchanged" in fleet.ok("apply", "-f", str(path))
    code.write_text("two")
    (code.parent / "new.txt").write_text("beside it")
    message = "source 2 files: a.txt, new.txt"
    assert message in fleet.ok("apply", "-f", str(path), "--dry-run")
    assert "2 files: a.txt, new.txt" in fleet.ok("plan", "-f", str(path))
    assert message in fleet.run("diff", "-f", str(path)).out
    assert "1 to run again" in fleet.ok("apply", "-f", str(path), "--wait")
    assert texts(fleet, "job/edits") == ["two"]
    code.write_text("three")
    retried = fleet.run("retry", "job/edits", "--all")
    assert (retried.code, "a.txt" in retried.talk, "apply -f" in retried.talk) == (0, True, True)
    fleet.ok("wait", "job/edits", "--for=complete")
    assert texts(fleet, "job/edits") == ["two"]  # the copy of the apply
    fleet.ok("apply", "-f", str(path), "--keep-finished", "--wait")
    (row,) = fleet.json("results", "job/edits")
    assert (row["result"], row["outdated"]) == ({"text": "two"}, True)
    assert fleet.json("get", "job/edits")["status"]["outdated"] == 1
    fleet.ok("delete", "job/edits")


def test_a_cached_task_shows_the_log_of_the_one_whose_result_it_has(fleet: Fleet) -> None:
    template = {"script": "echo said once; echo '{}' > $FLEETCTL_RESULT"}
    shared = {"policy": "ReuseSucceeded"}
    fleet.ok("apply", "-f", "-", "--wait", stdin=job("says", template=template))
    said = fleet.ok(
        "apply", "-f", "-", "--wait", stdin=job("says-too", template=template, cache=shared)
    )
    assert "1 cached" in said
    shown = fleet.run("logs", "job/says-too")
    assert "said once" in shown.out and "batchjob/says 0" in shown.talk
    fleet.ok("delete", "job/says", "job/says-too")
    assert "cached" not in fleet.ok("apply", "-f", "-", stdin=job("says", template=template))
    fleet.ok("delete", "job/says")


def test_the_same_command_runs_each_time(fleet: Fleet) -> None:
    said = [fleet.ok("run", "--no-source", "--", "date", "+%s%N").split() for _ in range(2)]
    first, second = (int(words[0]) for words in said)
    assert second > first


def written_rows(form: str, values: Sequence[int], directory: Path) -> dict[str, object]:
    """Returns `tasks` with a row for each value, written in one of the ways that there are."""
    if form == "items":
        return {"items": [{"a": value} for value in values]}
    if form == "matrix":
        return {"matrix": {"a": [*values]}}
    lines = {
        "csv": ["a", *map(str, values)],
        "jsonl": [json.dumps({"a": value}) for value in values],
    }[form]
    path = directory / f"rows.{form}"
    path.write_text("\n".join(lines) + "\n")
    return {"fromFile": str(path)}


@pytest.mark.parametrize("form", ["items", "csv", "jsonl", "matrix"])
def test_rows_keep_their_results_when_others_come_and_go(
    fleet: Fleet, tmp_path: Path, form: str
) -> None:
    template = {"python": "import random\nSUBMIT(r=random.random())"}
    five = [5] if form == "matrix" else [5, 5]  # a value of a matrix stands there once

    def rows(*values: int) -> list[tuple[int, float]]:
        """What is recorded after an apply of these rows, in their order."""
        manifest = job("keeps", tasks=written_rows(form, values, tmp_path), template=template)
        fleet.ok("apply", "-f", "-", "--wait", stdin=manifest)
        found = fleet.json("results", "job/keeps")
        return sorted((int(row["params"]["a"]), row["result"]["r"]) for row in found)

    first = rows(0, *five, 7, 8, 9)
    assert rows(*five, 7, 8, 9) == first[1:]
    fleet.ok("rerun", "job/keeps")
    fleet.ok("wait", "job/keeps", "--for=complete")
    again = rows(*five, 7, 8, 9)
    assert not {*again} & {*first}
    kept = [row for row in again if row[0] != 7]
    assert rows(9, 8, *five) == kept
    fleet.ok("delete", "job/keeps")


def test_waiting_can_show_what_new_tasks_print(fleet: Fleet) -> None:
    template = {"script": "echo task $TASK_N"}
    said = job("talks", tasks={"items": [{"n": 1}]}, template=template)
    assert "[0/1] task 1" in fleet.ok("apply", "-f", "-", "--wait", "--logs", stdin=said)
    more = job("talks", tasks={"items": [{"n": 1}, {"n": 2}]}, template=template)
    lines = fleet.ok("apply", "-f", "-", "--wait", "--logs", stdin=more).splitlines()
    assert [line for line in lines if "task" in line and line[0] == "["] == ["[1/1] task 2"]
    assert lines[-1].startswith("batchjob/talks succeeded: 2 done")


def test_watching_follows_the_code(fleet: Fleet, tmp_path: Path) -> None:
    code, path = tmp_path / "src" / "deep" / "a.txt", tmp_path / "job.yaml"
    code.parent.mkdir(parents=True)
    code.write_text("one")
    path.write_text(job("follows", template={**READS, "source": {"path": "src/deep"}}))
    with watching(fleet, "-f", str(path)) as watch:
        watch.until("watching")
        code.write_text("two")
        assert "source 1 file: a.txt" in watch.until("configured")
    fleet.ok("wait", "job/follows", "--for=complete")
    assert texts(fleet, "job/follows") == ["two"]
    fleet.ok("delete", "job/follows")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    made.mkdir()
    git(made, "init", "--quiet", "--initial-branch=main")
    return made


def git(where: Path, *words: str) -> str:
    about = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(
        ["git", *about, *words], cwd=where, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(where: Path, text: str) -> str:
    (where / "a.txt").write_text(text)
    git(where, "add", "-A")
    git(where, "commit", "--quiet", "-m", text)
    return git(where, "rev-parse", "HEAD")


def test_a_branch_that_moved_is_told_by_its_commits(
    fleet: Fleet, tmp_path: Path, repository: Path
) -> None:
    one = commit(repository, "one")
    path, source = tmp_path / "job.yaml", {"git": {"url": f"file://{repository}", "ref": "main"}}
    path.write_text(job("branch", template={**READS, "source": source}))
    fleet.ok("apply", "-f", str(path), "--wait")
    assert "unchanged" in fleet.ok("apply", "-f", str(path))
    two = commit(repository, "two")
    assert f"{one[:7]} -> {two[:7]}" in fleet.ok("plan", "-f", str(path))
    fleet.ok("apply", "-f", str(path), "--wait")
    assert texts(fleet, "job/branch") == ["two"]
    path.write_text(
        job("branch", template={**READS, "source": {"git": {**source["git"], "ref": "x"}}})
    )
    refused = fleet.run("plan", "-f", str(path))
    assert (refused.code, "source.git.ref `x` is not in" in refused.talk) == (2, True)
    fleet.ok("delete", "job/branch")

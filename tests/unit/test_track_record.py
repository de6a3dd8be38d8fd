"""The record of `make test-all`: what a part that passed spares, and what the page says of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.record import results
from tests.record.__main__ import has_passed, run_part
from tests.record.page import render_page
from tests.record.parts import (
    UNFINISHED,
    Part,
    count_campaign,
    count_mutants,
    count_passed,
    parts,
    spent_of_campaign,
)
from tests.record.results import CHANGED, OnlyThere, Record, Result, find_commit, is_same_code

PART = Part("echo", "an echo", "echo 3 passed", count_passed)
Git = Callable[..., None]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Runs git in a repository that stands for this one, with one commit."""

    def run(*words: str) -> None:
        names = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "FILE", tmp_path / "results.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "page.md")
    run("init", "-q")
    (tmp_path / "code.py").write_text("1")
    run("add", ".")
    run("commit", "-qm", "One")
    return run


@pytest.mark.parametrize(
    ("words", "passed", "count"),
    [("echo 1,2 and 3 passed", True, "3 tests"), ("false", False, "0 tests")],
)
def test_a_part_is_recorded_as_it_went(words: str, passed: bool, count: str) -> None:
    result = run_part(replace(PART, command=words))
    assert (result.passed, result.count, result.command) == (passed, count, words)
    assert result.seconds >= 0 and "cores" in result.machine


def test_a_part_that_passed_is_spared_until_the_code_changes(git: Git, tmp_path: Path) -> None:
    result = Result("echo", PART.command, "", True, find_commit(), "", "", 0, 0)
    assert has_passed(result, PART)
    assert not has_passed(replace(result, passed=False), PART)
    assert not has_passed(result, replace(PART, command="echo 4 passed"))
    assert not has_passed(None, PART)
    (tmp_path / "results.json").write_text("{}")
    (tmp_path / "page.md").write_text("passed")
    git("add", ".")
    git("commit", "-qm", "The record alone")
    assert has_passed(result, PART)
    (tmp_path / "code.py").write_text("2")
    assert find_commit().endswith(CHANGED) and not has_passed(result, PART)
    git("commit", "-qam", "Two")
    assert not has_passed(result, PART)


def test_what_ran_with_changes_is_no_pass_of_a_commit(git: Git, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("2")
    commit = find_commit()
    git("checkout", "-q", "code.py")
    assert not is_same_code(commit)


def test_output_is_counted() -> None:
    assert count_passed("12 passed, 1 failed in 3s\n1000 passed in 2s") == "1,012 tests"
    assert count_mutants("mutants caught: 60 of 61; 80 s") == "60 of 61 caught"


def test_a_part_of_the_campaign_has_what_all_of_its_runs_came_to() -> None:
    output = (
        "cuts: 150 of 200 power cuts\ncuts: 200 of 200 power cuts; 0 findings; 1,002 s, 7 s CPU"
    )
    assert count_campaign(output) == "200 of 200 power cuts; 0 findings"
    assert spent_of_campaign(output) == (1002.0, 7.0)


def test_a_part_that_is_not_whole_goes_on_another_time(git: Git, tmp_path: Path) -> None:
    part = replace(PART, command=f"sh {tmp_path}/part.sh", paths=("code.py",))
    (tmp_path / "part.sh").write_text(f"exit {UNFINISHED}")
    result = run_part(part)
    assert result.passed and not result.whole and not has_passed(result, part)
    row = render_page(Record({"echo": result}, ()), [part]).split("| an echo |")[1]
    assert "nothing found so far" in row
    assert has_passed(replace(result, whole=True), part)  # though another file has changed
    (tmp_path / "code.py").write_text("2")
    git("commit", "-qam", "Two")
    assert not has_passed(replace(result, whole=True), part)
    assert find_commit(("code.py",)) == find_commit().removesuffix(CHANGED)


def test_the_page_has_a_row_for_each_part_and_each_reason() -> None:
    table = parts(lives=7)
    result = Result(
        "lives", "play 7", "7 lives", False, "abc", "2026-01-02", "2 cores", 12.3, 1234.5
    )
    only = OnlyThere("every backend", {"tests/a.py": 2, "tests/b.py": 3})
    lines = render_page(Record({"lives": result}, (only,)), table).splitlines()
    row = "`play 7` | 7 lives | **failed** | abc | 2026-01-02 | 2 cores | 12 | 1,234 |"
    assert [line for line in lines if line.endswith(row)]
    assert sum("not run yet" in line for line in lines) == len(table) - 1
    assert "| 5 | every backend | `tests/b.py`, `tests/a.py` |" in lines
    assert all(any(f"| {part.why} |" in line for line in lines) for part in table if part.why)


def test_what_earlier_commits_came_to_stays_apart_from_the_present_one() -> None:
    table = parts(lives=7)
    first = Result("lives", "play", "50 of 100", True, "abc", "2026-01-02", "m", 1, 2, whole=False)
    record = Record({}, ()).with_result(first, kept=True)
    again = replace(first, count="70 of 100")
    assert record.with_result(again, kept=True).earlier == ()  # the same code went on
    second = replace(first, count="10 of 100", commit="def")
    assert record.with_result(second, kept=False).earlier == ()
    grown = record.with_result(second, kept=True)
    assert (grown.results["lives"], grown.earlier) == (second, (first,))
    page = render_page(grown, table)
    assert page.index("10 of 100") < page.index("Earlier commits") < page.index("50 of 100")
    assert "Earlier commits" not in render_page(record, table)


def test_earlier_results_are_kept_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "FILE", tmp_path / "results.json")
    result = Result("lives", "play", "50 of 100", True, "abc", "2026-01-02", "m", 1, 2)
    record = Record({"lives": result}, (), (replace(result, commit="old"),))
    results.save_record(record)
    assert results.load_record() == record

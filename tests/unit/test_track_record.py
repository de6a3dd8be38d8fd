"""The record of `make test-all`: what a part that passed spares, and what the page says of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.campaign import parts as campaign
from tests.campaign.progress import Finding, Progress, Share
from tests.record import results
from tests.record.__main__ import has_passed, run_part
from tests.record.page import Row, render_page
from tests.record.parts import Part, count_mutants, count_passed, parts
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
    monkeypatch.setattr(results, "PLAYED", tmp_path / "played")
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
    assert find_commit(("code.py",)) == result.commit != find_commit()
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


def test_the_page_has_a_row_for_each_part_and_each_reason() -> None:
    table = parts()
    result = Result(
        "mutants", "play 7", "7 caught", False, "abc", "2026-01-02", "2 cores", 12.3, 1234.5
    )
    only = OnlyThere("every backend", {"tests/a.py": 2, "tests/b.py": 3})
    lines = render_page(Record({"mutants": result}, (only,)), table, ()).splitlines()
    row = "`play 7` | 7 caught | **failed** | abc | 2026-01-02 | 2 cores | 12 | 1,234 |"
    assert [line for line in lines if line.endswith(row)]
    assert sum("not run yet" in line for line in lines) == len(table) - 1
    assert "| 5 | every backend | `tests/b.py`, `tests/a.py` |" in lines
    assert all(any(f"| {part.why} |" in line for line in lines) for part in table if part.why)


LIVES = campaign.Part("lives", "lives of it", "lives", 100, 10, lambda _: (10, []), __name__)


def test_a_row_of_the_campaign_counts_all_commits_and_lists_the_share_of_each() -> None:
    first = Share("abc", "2026-01-02", "2026-01-03", "m", 50, 10, 20)
    second = Share("def", "2026-01-04", "2026-01-04", "m", 20, 1, 2)
    progress = Progress("lives", shares=[first, second])
    page = render_page(Record({}, ()), (), [Row(LIVES, progress)])
    count = "70 of 100 lives, 20 of them at def; 0 findings | goes on; no finding is open"
    assert f"{count} | abc to def | 2026-01-02 to 2026-01-04 | m | 11 | 22 |" in page
    assert "| 50 lives | 0 | abc | 2026-01-02 | 2026-01-03 |" in page
    assert "| 20 lives | 0 | def |" in page and "## Findings" not in page
    second.done = 50
    assert "0 findings | passed" in render_page(Record({}, ()), (), [Row(LIVES, progress)])


def test_a_finding_stays_on_the_page_and_is_open_until_a_test_is_named() -> None:
    share, found = Share("abc", "2026-01-02", "2026-01-02", "m", 100), Finding("a | b", "abc", "d")
    progress = Progress("lives", shares=[share], findings=[found])
    page = render_page(Record({}, ()), (), [Row(LIVES, progress)])
    assert "100 of 100 lives; 1 finding | **1 open**" in page
    assert "| lives | `a \\| b` | abc | d | **none yet** |" in page
    found.test = "tests/a.py::test_b"
    page = render_page(Record({}, ()), (), [Row(LIVES, progress)])
    assert "1 finding | passed" in page and "| `tests/a.py::test_b` |" in page


def test_results_are_kept_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FILE", tmp_path / "results.json")
    result = Result("lint", "play", "50", True, "abc", "2026-01-02", "m", 1, 2)
    record = Record({"lint": result}, (OnlyThere("a", {"b": 1}),))
    results.save_record(record)
    assert results.load_record() == record

"""`make check` runs the tests that are nearest to a change, and stays within its budget."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests import costs, nearest
from tests.mutants.mutant import load_mutants

# Of the mutants whose test is one of NEAR. It was 98 of 108 when this was written.
FOUND_MIN = 0.8


def test_four_in_five_faults_have_their_test_among_the_nearest() -> None:
    mutants = [it for it in load_mutants() if it.test.startswith(nearest.NEAR)]
    found = [it for it in mutants if it.test.partition("::")[0] in nearest.choose_files(it.files)]
    assert len(mutants) > 100
    assert len(found) >= FOUND_MIN * len(mutants)


def test_what_imports_a_changed_module_comes_before_what_imports_its_importers() -> None:
    ranks = nearest.rank_modules(frozenset({"fleetctl.controllers.reasons"}))
    importer = next(name for name, rank in ranks.items() if rank == 1)
    distances = nearest.rank_files(frozenset({"controllers/reasons.py"}))
    assert distances["tests/unit/controllers/test_controllers_reasons.py"] == 0
    assert ranks["fleetctl.controllers.reasons"] == 0
    assert nearest.rank_modules(frozenset({importer}))[importer] == 0


def test_files_of_tests_that_changed_come_first_of_every_ring() -> None:
    changed = {"tests/servers/test_exec.py", "tests/unit/test_ports.py"}
    assert set(nearest.choose_files(changed, budget_s=1_000.0)[:2]) == changed
    assert "tests/servers/test_run_cp.py" not in nearest.choose_files(changed, budget_s=1_000.0)


def test_a_changed_helper_leads_to_the_tests_that_use_it() -> None:
    distances = nearest.rank_files(frozenset({"tests/mutants/mutant.py"}))
    assert {file for file, distance in distances.items() if distance == 0} == {
        "tests/unit/test_mutants.py",
        "tests/unit/test_nearest.py",
    }


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("specs/content.py", "fleetctl.specs.content"),
        ("fleetctl/apply/propose.py", "fleetctl.apply.propose"),
        ("fleetctl/stores/sql/reader.sql", "fleetctl.stores.sqlite_errors"),
        ("fleetctl/engine/__init__.py", "fleetctl.engine"),
    ],
)
def test_a_file_of_the_product_is_a_module_or_stands_for_those_beside_it(
    path: str, module: str
) -> None:
    assert module in nearest.find_modules([path])


def test_what_is_no_part_of_the_product_is_near_to_nothing() -> None:
    assert nearest.find_modules(["README.md", "docs/index.md", "specs/gone.py"]) == frozenset()


@pytest.mark.parametrize(
    ("changed", "budget_s"),
    [
        ([], nearest.FAR_BUDGET_S),
        (["README.md"], nearest.FAR_BUDGET_S),
        (["fleetctl/common/clock.py"], nearest.BUDGET_S),
        (["specs/content.py"], nearest.BUDGET_S),
    ],
)
def test_the_budget_is_kept_whatever_changed(changed: list[str], budget_s: float) -> None:
    known = json.loads(nearest.COSTS.read_text("utf-8"))
    chosen = nearest.choose_files(changed)
    spent_s = sum(known[it]["cpu_s"] if it in known else nearest.UNKNOWN_S for it in chosen)
    assert 0.8 * budget_s < spent_s <= budget_s
    assert len(chosen) == len({*chosen})


def test_changes_are_commits_of_the_branch_edits_and_new_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(["git", *author, *words], cwd=tmp_path, check=True, capture_output=True)

    def commit(name: str) -> None:
        (tmp_path / name).write_text(name)
        git("add", name)
        git("commit", "-qm", name)

    monkeypatch.setattr(nearest, "ROOT", tmp_path)
    assert nearest.list_changes() == frozenset()  # there is no repository yet
    git("init", "-qb", "main")
    commit("first")
    git("checkout", "-qb", "branch")
    commit("second word")
    (tmp_path / "first").write_text("edited")
    (tmp_path / "new").write_text("new")
    assert nearest.list_changes() == {"first", "second word", "new"}
    assert nearest.list_changes("HEAD") == {"first", "new"}
    git("checkout", "-q", "main", "--force")
    assert nearest.list_changes() == {"new"}


def test_records_of_costs_replace_those_of_the_same_files_alone(tmp_path: Path) -> None:
    record, into = tmp_path / "record", tmp_path / "costs.json"
    ours, other = "tests/unit/test_nearest.py", "tests/unit/test_order.py"
    cost = {"cpu_s": 2.0, "wall_s": 3.0}
    into.write_text(json.dumps(dict.fromkeys((ours, other, "tests/unit/test_gone.py"), cost)))
    rows = [
        {"test": f"{ours}::test_{n}", "wall_s": 2, "self_s": 1.5, "children_s": n} for n in (0, 1)
    ]
    record.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    costs.write_costs([record], into)
    assert json.loads(into.read_text()) == {
        ours: {"cpu_s": 4.0, "wall_s": 4.0},
        other: cost,
    }

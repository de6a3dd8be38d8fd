"""The set of mutants stays playable: each patch fits the tree, and each names a test that is there.

They are played by `make mutants`.
"""

from __future__ import annotations

import ast
import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.mutant import ROOT, Mutant, UnusablePatch, load_mutants, parse_mutant
from tests.mutants.play import Outcome, judge_outcome, linked_tree, play_mutant
from tests.simulation.planted import PLANTS

MUTANTS = load_mutants()
PROMISES = {f"P{number}" for number in range(1, 11)}
SUITES = ("tests.", "fleetctl.testing.")  # packages with tests that others inherit


def test_there_are_60_mutants_and_each_promise_has_one() -> None:
    assert len(MUTANTS) >= 60
    assert {mutant.promise for mutant in MUTANTS} >= PROMISES


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_patch_fits_the_tree_and_leaves_a_program(mutant: Mutant) -> None:
    for file, text in mutant.apply(ROOT).items():
        ast.parse(text)
        assert text != (ROOT / file).read_text()
        assert file.startswith(("fleetctl/", "specs/", "controllers/")), "only the product mutates"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_test_that_must_fail_is_there(mutant: Mutant) -> None:
    file, *_, name = mutant.test.partition("[")[0].split("::")
    assert name in functions_in(ROOT / file)


def test_each_fault_of_the_past_has_its_test_and_its_planted_bug() -> None:
    text = (ROOT / "tests/mutants/README.md").read_text().partition("| fault |")[2]
    rows = [line.split(" | ") for line in text.splitlines() if "`" in line]
    known = {*PLANTS, *(mutant.name for mutant in MUTANTS)}
    assert len(rows) >= 15
    for _, tests, plants in rows:
        for name in re.findall(r"`([^`]+)`", tests) + re.findall(r"`([^`]+::[^`]+)`", plants):
            file, _, function = name.partition("::")
            assert function in functions_in(ROOT / file), name
        planted = re.findall(r"`([^`:]+)`", plants)
        assert set(planted) <= known and "`" in plants, plants


@cache
def functions_in(path: Path) -> frozenset[str]:
    """Names of its functions, and of those of the suites that it imports from."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(SUITES):
            suite = ROOT.joinpath(*(node.module or "").split(".")).with_suffix(".py")
            if suite.is_file() and suite.name.endswith(("_suite.py", "_contract.py")):
                found |= functions_in(suite)
    return frozenset(found)


# -- how one is judged -----------------------------------------------------------------------------

PATCH = """Breaks: a sum is a difference
Promise: P2
Test: test_product.py::{test}

--- a/product.py
+++ b/product.py
@@
-    return a + b
+    return a - b
"""
PRODUCT = "def total(a, b):\n    return a + b\n"
TESTS = """from product import total

def test_a_sum(): assert total(1, 2) == 3

def test_nothing(): assert total(0, 0) == 0

def test_a_list(): [1, 2, 3, 4][total(1, 2)] and [0, 1][total(0, -2)]
"""


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """A product of one file with its tests, and a tree of links beside it."""
    original = tmp_path / "tree"
    original.mkdir()
    (original / "product.py").write_text(PRODUCT)
    (original / "test_product.py").write_text(TESTS)
    (original / "pytest.ini").write_text("[pytest]\n")
    return original, linked_tree(original, "job-0")


@pytest.mark.parametrize(
    ("test", "why"),
    [
        ("test_a_sum", ""),
        ("test_nothing", "the test passes with the patch"),
        ("test_a_list", "the test fails by another exception than AssertionError: IndexError"),
        ("test_that_is_not_there", "no test was run"),
    ],
)
def test_a_mutant_is_caught_by_an_assertion_alone(
    trees: tuple[Path, Path], test: str, why: str
) -> None:
    original, tree = trees
    verdict = play_mutant(
        parse_mutant("sum", PATCH.format(test=test)), tree=tree, original=original
    )
    assert verdict.caught is (not why)
    assert why in verdict.why
    for place in trees:
        assert (place / "product.py").read_text() == PRODUCT


def test_a_patch_that_fits_nowhere_or_twice_is_refused(trees: tuple[Path, Path]) -> None:
    original, _ = trees
    mutant = parse_mutant("sum", PATCH.format(test="test_a_sum"))
    (original / "product.py").write_text(PRODUCT + PRODUCT)
    with pytest.raises(UnusablePatch, match="stand 2 times"):
        mutant.apply(original)
    shutil.copy(original / "test_product.py", original / "product.py")
    with pytest.raises(UnusablePatch, match="stand 0 times"):
        mutant.apply(original)


def test_a_test_that_breaks_or_does_not_end_catches_nothing() -> None:
    mutant = parse_mutant("sum", PATCH.format(test="test_a_sum"))
    broken = Outcome(0, ("assert 1 == 2",), "error of test_a_sum: fixture failed")
    assert judge_outcome(mutant, broken) == "error of test_a_sum: fixture failed"
    assert judge_outcome(mutant, Outcome(1, ("Failed: DID NOT RAISE StoreError",), "")) == ""
    named = parse_mutant(
        "sum", PATCH.format(test="test_a_list").replace("P2", "P2\nFails-by: IndexError")
    )
    assert judge_outcome(named, Outcome(0, ("IndexError: out of range",), "")) == ""

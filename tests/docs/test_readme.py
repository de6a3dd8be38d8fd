"""The README is true: its commands print what it shows, and what it names is there."""

from __future__ import annotations

import ast
import re

import yaml

from fleetctl.cli.verbs import EXIT_CODES
from fleetctl.controllers.history.retry import Limits
from fleetctl.daemon.spawn import IDLE_EXIT_S
from fleetctl.guest.task import RESULT_BYTES_MAX, Sandbox
from fleetctl.specs.common import Execution
from fleetctl.specs.kinds import KINDS
from fleetctl.specs.template import Template
from fleetctl.views import kinds as cli_kinds
from tests.docs.fleet import EXAMPLES, ROOT, Fleet
from tests.docs.readme import README, blocks, comparable, screen_of, shown

TEXT = README.read_text("utf-8")


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the README has no section `{title}`"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of the rows of the tables in a text, headers left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads = {at - 1 for at, row in enumerate(cells) if set("".join(row)) <= set("-: ")}
    return [row for at, row in enumerate(cells) if at not in heads and at - 1 not in heads]


def words(text: str) -> set[str]:
    """What stands in backticks."""
    return set(re.findall(r"`([^`\n]+)`", text))


def test_every_command_prints_what_the_readme_shows(tour: Fleet) -> None:
    commands = shown(TEXT)
    assert len(commands) > 10
    for one in commands:
        printed = screen_of(tour.shell(one.command))
        told = f"$ {one.command}\n{printed}\n(`python -m tests.docs.readme` records anew)"
        assert comparable(printed) == comparable(one.screen), told


def test_the_manifests_that_the_readme_shows_are_those_of_the_examples() -> None:
    whole = [yaml.safe_load(it) for it in blocks(TEXT, "yaml") if it.startswith("apiVersion")]
    assert whole
    examples = [yaml.safe_load_all(it.read_text("utf-8")) for it in EXAMPLES.glob("*.yaml")]
    documents = [document for example in examples for document in example]
    assert all(manifest in documents for manifest in whole)


def test_every_promise_names_tests_that_exist() -> None:
    promises = rows(section("Promises"))
    assert [row[0] for row in promises] == sorted(
        {row[0] for row in promises}, key=lambda p: int(p[1:])
    )
    for _, _, held_by in promises:
        tests = [word for word in words(held_by) if "::" in word]
        assert tests
        for test in tests:
            path, _, name = test.partition("::")
            tree = ast.parse((ROOT / path).read_text("utf-8"))
            functions = {it.name for it in ast.walk(tree) if isinstance(it, ast.FunctionDef)}
            functions |= {it.name for it in ast.walk(tree) if isinstance(it, ast.AsyncFunctionDef)}
            assert name in functions, test


def test_the_invariants_that_hold_promises_are_checked_by_the_simulation() -> None:
    checks = "".join(
        path.read_text("utf-8") for path in (ROOT / "tests" / "simulation").glob("*.py")
    )
    named = set(re.findall(r"\bI\d+\b", section("Promises")))
    assert named
    assert {it for it in named if f"{it}:" not in checks and f"{it}," not in checks} == set()


def test_links_and_paths_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", TEXT) if "://" not in link]
    folders = ("specs/", "controllers/", "fleetctl/", "tests/")
    paths = [word for word in words(TEXT) if word.startswith(folders) and "<" not in word]
    assert links and paths
    for path in (*links, *(path.partition("::")[0] for path in paths)):
        assert (ROOT / path).exists(), path


def test_anchors_lead_to_headings() -> None:
    headings = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors


def test_make_knows_every_target_that_the_readme_names() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)", TEXT, re.MULTILINE))
    named |= {word.split()[1] for word in words(TEXT) if word.startswith("make ")}
    assert {"setup", "demo", "test", "bench", "simulate", "soak"} <= named <= targets


def test_the_table_of_kinds_is_the_registry() -> None:
    table = {next(iter(words(row[0]))): words(row[1]) for row in rows(section("Kinds"))}
    assert set(table) == set(KINDS)
    for kind, shorts in table.items():
        assert all(cli_kinds.kind_of(short).name == kind for short in shorts)


def test_the_fields_that_kinds_share_are_all_named() -> None:
    named = words(section("Kinds"))
    for model in (Execution, Template):
        fields = {str(field.alias) for field in model.model_fields.values()}
        assert fields - named <= {"terminationGracePeriodSeconds", "workdir"}


def test_the_helpers_of_a_python_task_are_all_named() -> None:
    namespace = Sandbox([])._namespace
    helpers = {name for name in namespace if not name.startswith("__")}
    named = {word.partition("(")[0] for word in words(section("Kinds"))}
    assert helpers <= named


def test_the_table_of_exit_codes_is_that_of_the_help() -> None:
    table = [row[0] for row in rows(section("What scripts may rely on"))]
    assert table == re.findall(r"\b(\d+) ", EXIT_CODES)


def test_the_numbers_in_the_decisions_are_those_of_the_code() -> None:
    limits = Limits()
    assert (limits.backoff_limit_per_index, limits.max_infra_retries) == (0, 5)
    assert (limits.backoff_initial_s, limits.backoff_max_s, limits.backoff_factor) == (1, 300, 2)
    assert IDLE_EXIT_S == 600
    assert RESULT_BYTES_MAX == 256 * 1024
    said = " ".join(section("Decisions").split())
    assert "`backoffLimitPerIndex` is 0 unless given" in said
    assert "The first wait is 1 s and doubles up to 5 minutes" in said
    assert "leaves after ten idle minutes" in said

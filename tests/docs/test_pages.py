"""README and docs are true: their commands print what they show, and what they name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from fleetctl.cli.command.verbs import EXIT_CODES, VERBS
from fleetctl.controllers.history.retry_limits import RetryLimits
from fleetctl.daemon.client.spawn import IDLE_EXIT_S
from fleetctl.guest.task.task import RESULT_BYTES_MAX, Sandbox
from fleetctl.manifest.hints.fields import look_up, manifest_field
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.views import kinds as cli_kinds
from tests.docs import reference
from tests.docs.fleet import EXAMPLES, ROOT, Fleet
from tests.docs.screens import PAGES, README, blocks, comparable, played, screen_of, shown

# Of tests that pages name: ours, and those that packages of other projects import.
HELD_IN = ("tests/", "fleetctl/testing/")
TEXTS = {page: page.read_text("utf-8") for page in PAGES}
README_BYTES_MAX = 6 * 1024
PAGE_WORDS_MAX = 1500
# Longer pages, each with its reason.
LONG_PAGES = {
    "docs/reference/fields": "made from the kinds, and read by their anchors",
    "docs/reference/verbs.md": "made from the help of all verbs, and read by its anchors",
    "docs/reference/reasons.md": "a table of all reasons, made from the code",
    "docs/reference/status.md": "a table of all keys, made from the code",
    "docs/reference/python.md": "made from the methods of the client, and read by its anchors",
    "docs/reference/server-api.md": "made from the routes, and read by their anchors",
    "docs/reference/figures.md": "a table of measurements, made by `make bench`",
    "docs/reference/track-record.md": "a table of trials, made by `make test-all`",
}
# What users search for, and the page whose headings have it.
SEARCHED = {
    "cost": "docs/explanation/cost-estimates-and-budgets.md",
    "artifact": "docs/faq.md",
    "exit code": "docs/reference/scripts.md",
    "glob": "docs/faq.md",
    "glossary": "docs/reference/glossary.md",
    "troubleshoot": "docs/how-to/troubleshooting.md",
}
OPENING_WORDS_MAX = 100


def page(path: str) -> str:
    return TEXTS[ROOT / path]


def rows(text: str) -> list[list[str]]:
    """The cells of the rows of the tables in a text, headers left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads = {at - 1 for at, row in enumerate(cells) if set("".join(row)) <= set("-: ")}
    return [row for at, row in enumerate(cells) if at not in heads and at - 1 not in heads]


def links_in(text: str) -> list[str]:
    """Where the links of a text lead, those to other sites left out; no code is a link."""
    prose = re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
    found = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    return [link for link in found if "://" not in link]


def words(text: str) -> set[str]:
    """What stands in backticks."""
    return set(re.findall(r"`([^`\n]+)`", text))


def test_a_page_has_at_most_1500_words_or_a_reason() -> None:
    words_in = {
        path: len(text.split()) for path, text in TEXTS.items() if ROOT / "docs" in path.parents
    }
    long = {str(it.relative_to(ROOT)) for it, count in words_in.items() if count > PAGE_WORDS_MAX}
    assert [it for it in sorted(long) if not it.startswith(tuple(LONG_PAGES))] == []
    assert [it for it in LONG_PAGES if not any(name.startswith(it) for name in long)] == []


@pytest.mark.parametrize("term", SEARCHED)
def test_a_search_finds_its_page_by_a_heading(term: str) -> None:
    headings = re.findall(r"^#+ (.*)$", page(SEARCHED[term]), re.MULTILINE)
    assert any(re.search(rf"\b{term}", it, re.IGNORECASE) for it in headings), headings


def test_a_how_to_begins_with_what_is_copied() -> None:
    for path in PAGES:
        if path.parent.name == "how-to":
            opening = TEXTS[path].partition("\n```")
            assert opening[1] and len(opening[0].split()) <= OPENING_WORDS_MAX, path.name


@pytest.mark.parametrize("shows", played(), ids=lambda it: it.name)
def test_every_command_prints_what_the_page_shows(tour: Fleet, shows: Path) -> None:
    for one in shown(TEXTS[shows]):
        printed = screen_of(tour.shell(one.command, installed=shows == README))
        message = f"$ {one.command}\n{printed}\n(`python -m tests.docs.screens` records anew)"
        assert comparable(printed) == comparable(one.screen), message


def test_the_readme_and_the_tutorial_show_screens() -> None:
    assert {"README.md", "first-steps.md"} <= {it.name for it in played()}


def test_the_readme_is_short() -> None:
    assert len(TEXTS[README].encode()) <= README_BYTES_MAX


def test_no_page_runs_what_a_public_index_may_call_fleetctl() -> None:
    """Before a release that name may be somebody else's: a path, a URL or a wheel is named."""
    bare = re.compile(r"^(uvx|uv tool run|(uv )?pip install|uv tool install) fleetctl\b", re.M)
    assert not [path.name for path, text in TEXTS.items() if bare.search(text)]
    wheel = "uvx --from dist/fleetctl-0.1.0-py3-none-any.whl fleetctl run --"
    assert all(wheel in page(f"docs/how-to/{it}.md") for it in ("install", "run-a-command"))


def test_the_manifests_that_the_pages_show_are_those_of_the_examples() -> None:
    found = [it for text in TEXTS.values() for it in blocks(text, "yaml")]
    whole = [yaml.safe_load(it) for it in found if it.startswith("apiVersion")]
    assert whole
    examples = [yaml.safe_load_all(it.read_text("utf-8")) for it in EXAMPLES.glob("*.yaml")]
    documents = [document for example in examples for document in example]
    assert all(manifest in documents for manifest in whole)


@pytest.mark.parametrize("path", sorted(reference.pages()), ids=lambda it: it.name)
def test_the_generated_pages_are_those_of_the_code(path: Path) -> None:
    assert path.read_text("utf-8") == reference.pages()[path], "`make reference` writes it anew"


def test_examples_are_short() -> None:
    for example in EXAMPLES.glob("*.yaml"):
        assert len(example.read_text("utf-8").splitlines()) <= 60, example.name


def test_every_promise_names_tests() -> None:
    promises = rows(page("docs/explanation/promises.md"))
    assert [row[0] for row in promises] == sorted(
        {row[0] for row in promises}, key=lambda p: int(p[1:])
    )
    assert all("::" in held_by for _, _, held_by in promises)


def test_the_tests_that_pages_name_exist() -> None:
    named = {word for text in TEXTS.values() for word in words(text) if word.startswith(HELD_IN)}
    tests = [word.partition("::") for word in named if "::" in word]
    assert tests
    for path, _, name in tests:
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        assert name in {it.name for it in ast.walk(tree) if isinstance(it, functions)}, name


def test_the_invariants_that_hold_promises_are_checked_by_the_simulation() -> None:
    checks = "".join(
        path.read_text("utf-8") for path in (ROOT / "tests" / "simulation").glob("*.py")
    )
    named = set(re.findall(r"\bI\d+\b", page("docs/explanation/promises.md")))
    assert named
    assert {it for it in named if f"{it}:" not in checks and f"{it}," not in checks} == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda it: it.name)
def test_links_and_paths_lead_somewhere(path: Path) -> None:
    text = TEXTS[path]
    folders = ("specs/", "controllers/", "fleetctl/", "tests/")
    named = [word for word in words(text) if word.startswith(folders) and "<" not in word]
    for link in links_in(text):
        assert (path.parent / link).exists(), link
    for name in named:
        assert (ROOT / name.partition("::")[0]).exists(), name


def test_anchors_lead_to_headings() -> None:
    for path, text in TEXTS.items():
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^a-z0-9 -]", "", it.lower()).replace(" ", "-") for it in headings}
        assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors, path


def test_every_page_of_the_docs_is_reached_from_the_readme() -> None:
    reached, queue = set[Path](), [README]
    while queue:
        path = queue.pop()
        if path in reached or path not in TEXTS:
            continue
        reached.add(path)
        queue += [(path.parent / link).resolve() for link in links_in(TEXTS[path])]
    assert set(TEXTS) - reached == set()


def test_make_knows_every_target_that_the_pages_name() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = "\n".join(TEXTS.values())
    named = set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE))
    named |= {word.split()[1] for word in words(text) if word.startswith("make ")}
    assert {"setup", "demo", "test", "bench", "simulate", "soak"} <= named <= targets


def test_the_table_of_kinds_is_the_registry() -> None:
    table = {
        next(iter(words(row[0]))): words(row[1]) for row in rows(page("docs/reference/kinds.md"))
    }
    assert set(table) == set(KINDS)
    for kind, shorts in table.items():
        assert all(cli_kinds.kind_of(short).name == kind for short in shorts)


def test_the_fields_that_kinds_share_are_all_named() -> None:
    named = words(page("docs/reference/kinds.md"))
    for model in (WorkSpec, Template):
        fields = {str(field.alias) for field in model.model_fields.values()}
        assert fields - named <= {"terminationGracePeriodSeconds", "workdir"}


def test_the_helpers_of_a_python_task_are_all_named() -> None:
    namespace = Sandbox([])._namespace
    helpers = {name for name in namespace if not name.startswith("__")}
    named = {word.partition("(")[0] for word in words(page("docs/reference/kinds.md"))}
    assert helpers <= named


def test_the_table_of_exit_codes_is_that_of_the_help() -> None:
    table = [row[0] for row in rows(page("docs/reference/scripts.md"))]
    assert table == re.findall(r"\b(\d+) ", EXIT_CODES)


def test_the_numbers_in_the_decisions_are_those_of_the_code() -> None:
    limits = RetryLimits()
    assert (limits.backoff_limit_per_index, limits.max_infra_retries) == (0, 5)
    assert (limits.backoff_initial_s, limits.backoff_max_s, limits.backoff_factor) == (1, 300, 2)
    assert IDLE_EXIT_S == 600
    assert RESULT_BYTES_MAX == 256 * 1024
    message = " ".join(page("docs/decisions/work-and-retries.md").split())
    message += " ".join(page("docs/decisions/store-and-controller.md").split())
    assert "`backoffLimitPerIndex` is 0 unless given" in message
    assert "The first wait is 1 s and doubles up to 5 minutes" in message
    assert "leaves after ten idle minutes" in message


def test_what_the_page_on_wandb_names_as_ours_is_there() -> None:
    """Its first table: fields of a Sweep, verbs and their options, examples."""
    table = page("docs/how-to/from-wandb-sweeps.md").partition("## W&B terms in fleetctl")[2]
    ours = [right for _, right in rows(table.partition("\n## ")[0])]
    assert len(ours) >= 19
    top = manifest_field("Sweep")
    for word in {one for cell in ours for one in words(cell)}:
        name = re.match(r"([a-z][A-Za-z]+(?:\.[A-Za-z]+)*)(?::|$)", word)
        if name:
            path = name[1].split(".")
            above = (["spec"], ["spec", "search"], ["spec", "template"], ["metadata"])
            places = [[*it, *path] for it in above]
            assert any(look_up(top, it).depth == len(it) for it in places), word
        elif word.startswith("fleetctl "):
            assert word.split()[1] in VERBS, word

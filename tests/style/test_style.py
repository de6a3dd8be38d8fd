"""Holds names, prose, messages and files of the product below their ceilings.

The ceilings of prose are those of code bases that the field reads: 0.2 to 5 of each word in a
thousand. Those of names and files are what the tree has; `dense`, tokens a code line, is to be 6.9.
"""

from __future__ import annotations

import ast
import builtins
import re

import pytest

from tests.style.measures import (
    PACKAGES,
    ROOT,
    Measured,
    list_modules,
    list_openers,
    measure_code,
    measure_docs,
    private_words,
)

CODE = {
    "twins": 0.5, "one-word": 1.0, "small": 20.0, "same-file": 3, "dense": 6.9,
    "what": 1.0, "told": 1.5, "nobody": 5.0, "of-it": 1.0, "of-opener": 0.2, "who": 0.3,
    "people": 0.5, "anew": 0.7, "place": 0.5,
}  # fmt: skip
DOCS = {
    "what": 1.0, "told": 1.5, "nobody": 5.0, "of-it": 1.0, "of-opener": 0.2, "who": 0.3,
    "people": 0.5, "anew": 0.7, "place": 0.6,
}  # fmt: skip

# How often a comment may silence a checker at most.
SUPPRESSIONS = {"noqa": 90, "type: ignore": 45}
# Docstrings of tests that still open with a pronoun: fewer each time a file is read again.
TEST_OPENERS_MAX = 466
CATCHES_ALL = re.compile(r" *except Exception\b.*:")
# The errors after "Raises" in a docstring, and all that a name there can be.
RAISES = re.compile(r"\bRaises ((?:[A-Z]\w+(?:, and |, | and | or )?)+)")
DEFINES = re.compile(r"^ *(?:class )?([A-Z]\w+)\b.*[:=]", re.MULTILINE)
MENTIONS = re.compile(r"(?:\.|\bimport |\braise )([A-Z]\w+)")


@pytest.fixture(scope="module")
def code() -> Measured:
    return measure_code()


@pytest.fixture(scope="module")
def docs() -> Measured:
    return measure_docs()


@pytest.mark.parametrize("name", CODE)
def test_the_code_stays_below_its_ceiling(code: Measured, name: str) -> None:
    hint = f"`python -m tests.style {name}` lists what it finds"
    assert code.values[name] <= CODE[name], hint


@pytest.mark.parametrize("name", DOCS)
def test_the_pages_stay_below_their_ceiling(docs: Measured, name: str) -> None:
    hint = f"`python -m tests.style --docs {name}` lists what it finds"
    assert docs.values[name] <= DOCS[name], hint


def test_what_catches_any_exception_says_why() -> None:
    """In a comment on the line, or on the one above."""
    silent = []
    for path in list_modules():
        above = ""
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if CATCHES_ALL.match(line) and "#" not in line and not above.startswith("#"):
                silent.append(f"{path.relative_to(ROOT)}:{number}")
            above = line.strip()
    assert silent == []


@pytest.mark.parametrize("name", SUPPRESSIONS)
def test_suppressions_stay_few(name: str) -> None:
    """Each hides what a checker found; better code, a typed helper or a rule of pyproject.toml for
    all of a package says more."""
    mark = re.compile(rf"# {name}\b")
    texts = (path.read_text(encoding="utf-8") for path in list_modules())
    assert sum(len(mark.findall(text)) for text in texts) <= SUPPRESSIONS[name]


def test_the_engine_compares_no_kind() -> None:
    """Its parts are declared for kinds in a table; see fleetctl/engine/engine.py."""
    files = (ROOT / "fleetctl/engine").rglob("*.py")
    assert [it.name for it in files if "kind ==" in it.read_text("utf-8")] == []


def test_no_message_has_a_private_word() -> None:
    """In messages, hints, help and descriptions; `PRIVATE` has the words."""
    assert private_words() == []


def test_docstrings_of_the_product_open_with_a_verb_or_a_noun() -> None:
    assert list_openers(PACKAGES) == []


def test_the_head_of_a_package_says_in_a_few_lines_how_it_works() -> None:
    heads = {
        str(path.parent.relative_to(ROOT)): ast.get_docstring(ast.parse(path.read_text("utf-8")))
        for path in list_modules()
        if path.name == "__init__.py"
    }
    counts = {
        name: sum(bool(line.strip()) for line in (head or "").splitlines())
        for name, head in heads.items()
    }
    assert {name: count for name, count in counts.items() if not 3 <= count <= 8} == {}


def test_no_more_docstrings_of_tests_open_with_a_pronoun() -> None:
    assert len(list_openers(["tests"])) <= TEST_OPENERS_MAX


def test_an_error_that_a_docstring_names_exists() -> None:
    """Renaming a class leaves the sentences about it behind."""
    texts = {path: path.read_text(encoding="utf-8") for path in list_modules()}
    known = set(dir(builtins))
    for text in texts.values():
        known.update(DEFINES.findall(text), MENTIONS.findall(text))
    gone = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in texts.items()
        for names in RAISES.findall(" ".join(text.split()))
        for name in re.findall(r"[A-Z]\w+", names)
        if name not in known
    ]
    assert gone == []

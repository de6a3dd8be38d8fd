"""Every reason that the code can give stands in the list, with a sentence; and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.controllers.reasons import REASONS, is_reason

ROOT = Path(__file__).parents[3]
WORD = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*|OOMKilled")
FOLDERS = ("controllers", *(f"fleetctl/{it}" for it in ("daemon", "engine", "guest")))
FOLDERS += tuple(f"fleetctl/{it}" for it in ("gateway", "providers", "tracking"))
# Functions whose argument at this place is a reason.
GIVEN_TO = {"say": 1, "Wait": 0, "Verdict": 1, "_denied": 1, "Plan": 2}


def texts() -> Iterator[tuple[Path, str]]:
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if path.name != "reasons.py":
                yield path, path.read_text("utf-8")


def given(tree: ast.Module) -> Iterator[str]:
    """Words that stand where a reason is expected."""
    for node in ast.walk(tree):
        if (isinstance(node, ast.keyword) and node.arg == "reason") or (
            isinstance(node, ast.Assign) and _names_a_reason(node.targets)
        ):
            yield from _word(node.value)
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = name or (node.func.id if isinstance(node.func, ast.Name) else "")
            at = GIVEN_TO.get(name)
            if at is not None and len(node.args) > at:
                yield from _word(node.args[at])
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "reason":
                    yield from _word(value)


def _names_a_reason(targets: list[ast.expr]) -> bool:
    return any(isinstance(it, ast.Name) and it.id == "reason" for it in targets)


def _word(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from _word(node.body)
        yield from _word(node.orelse)
    elif isinstance(node, ast.Constant) and WORD.fullmatch(str(node.value)):
        yield str(node.value)


def test_every_reason_that_is_given_is_in_the_list() -> None:
    found = {word: path for path, text in texts() for word in given(ast.parse(text))}
    assert len(found) > 40
    assert {word: path for word, path in found.items() if not is_reason(word)} == {}


def test_every_word_of_the_list_occurs_in_the_code() -> None:
    message = "".join(text for _, text in texts())
    assert [word for word in REASONS if word not in message] == []


@pytest.mark.parametrize("word", sorted(REASONS))
def test_a_reason_has_one_whole_sentence(word: str) -> None:
    assert re.fullmatch(r"[A-Z`].+\.", REASONS[word], re.DOTALL)


@pytest.mark.parametrize(
    ("word", "known"),
    [("ExitCode:3", True), ("Signal:SIGKILL", True), ("NoCapacity", True), ("NoSuchWord", False)],
)
def test_a_reason_may_carry_a_value(word: str, known: bool) -> None:
    assert is_reason(word) is known

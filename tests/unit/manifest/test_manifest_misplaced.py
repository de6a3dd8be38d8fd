"""Fields one level too high or too low: the hint leads to a block that has them, in all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from fleetctl.manifest import findings
from fleetctl.manifest.hints.synonyms import (
    HINTS,
    HINTS_BELOW,
    NOT_YET_FIELDS,
    SYNONYMS,
    guess_name,
)
from fleetctl.specs.kinds.registry import KINDS

Path = tuple[str, ...]


def list_blocks(
    model: type[BaseModel], path: Path = (), around: tuple[type[BaseModel], ...] = ()
) -> Iterator[tuple[Path, type[BaseModel]]]:
    yield path, model
    for name, info in model.model_fields.items():
        inner = findings._model_in(info.annotation)
        if inner is not None and inner not in around:
            yield from list_blocks(inner, (*path, info.alias or name), (*around, inner))


def list_misplaced(kind: str) -> Iterator[tuple[Path, str, str]]:
    """Yields (block, word, block that has it) for a block within another one."""
    for path, outer in list_blocks(KINDS[kind].spec):
        known = findings._field_names(outer)
        for name, info in outer.model_fields.items():
            inner = findings._model_in(info.annotation)
            block = info.alias or name
            if inner is None:
                continue
            below = findings._field_names(inner)
            yield from ((path, word, block) for word in below if word not in known)
            up = path[-1] if path else "spec"
            yield from (((*path, block), word, up) for word in known if word not in below)


def find_hint(kind: str, path: Path, word: str) -> str | None:
    """Returns the hint at an unknown field; None where the block is not read as a mapping."""
    data: Any = {word: 1}
    for part in reversed(path):
        data = {part: data}
    model = KINDS[kind].spec
    try:
        model.model_validate(data)
    except ValidationError as error:
        for it in findings.list_findings(error, model, data, ("spec",)):
            if it.where == ("spec", *path, word) and it.what == " is an unknown field":
                return it.fix
    return None


def has_a_name_of_its_own(kind: str, path: Path, word: str) -> bool:
    parent = path[-1] if path else "spec"
    known = findings._field_names(findings._model_at(KINDS[kind].spec, path))
    named = guess_name(word, known, similar=False) is not None
    if named or word in SYNONYMS or word in NOT_YET_FIELDS:
        return True
    return (parent, word) in HINTS_BELOW or word in HINTS


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_field_beside_or_below_its_block_is_led_to_a_block_that_has_it(kind: str) -> None:
    wrong = []
    for path, word, block in list_misplaced(kind):
        hint = find_hint(kind, path, word)
        if hint is None or has_a_name_of_its_own(kind, path, word):
            continue
        if f"{word}`" not in hint:
            wrong.append((path, word, block, hint))
    assert not wrong


def test_the_metric_of_a_sweep_belongs_into_its_search() -> None:
    assert find_hint("Sweep", (), "metric") == "did you mean `search.metric`?"


@pytest.mark.parametrize(
    ("kind", "word", "hint"),
    [
        ("Source", "interval", "did you mean `git.interval`?"),
        ("Settings", "schedule", "did you mean `backup.schedule`?"),
        ("BatchJob", "schedule", HINTS["schedule"]),
        ("Sweep", "paralelism", "did you mean `parallelism`?"),
    ],
)
def test_a_hint_about_work_is_not_given_to_a_kind_with_the_field(
    kind: str, word: str, hint: str
) -> None:
    assert find_hint(kind, (), word) == hint

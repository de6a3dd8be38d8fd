"""Expressions of policies against the fields that there are, and optional fields."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.apply.policies.expressions import (
    ExpressionData,
    ExpressionError,
    compile_expression,
    evaluate_expression,
    parse_expression,
    write_expression,
)
from fleetctl.apply.policies.typecheck import check_types
from fleetctl.apply.predictions.predict import find_wrong
from fleetctl.specs.kinds.policy import PolicySpec
from fleetctl.specs.kinds.registry import KINDS

ALL = tuple(it for it in KINDS if it != "Policy")
RIGHT = (
    "object.spec.parallelism <= 3",
    "has(object.metadata.labels.team) && object.metadata.labels.team != ''",
    "object.metadata.labels.?team.orValue('x') == 'x'",
    "object.spec.?template.?image.?python.orValue('') != ''",
    "object.spec.template.env.exists(key, key == 'A')",
    "object.spec.template.resources.memory <= 4 * 1024",
    "object.spec.template.volumes.all(it, it.mountPath.startsWith('/data'))",
    "object.spec.template.?timeoutSeconds.hasValue()",
    "'team' in object.metadata.labels && namespace != 'default'",
    "old == null || old.spec.parallelism <= object.spec.parallelism",
    "plan.changes.exists(it, it.path == 'spec.seed') || cost.usd < 5.0",
    "object.spec.tasks.items.all(row, row.anything == 1)",
)
# Each is valid, and took more frames to read or to check than Python has.
LONG = (
    "!" * 2000 + "true",
    "-" * 2000 + "1 == 1",
    " || ".join(["true"] * 500),
    "+".join(["1"] * 2000) + " > 1",
    "object.metadata" + "['a']" * 600 + " == 1",
    "(" * 90 + "true" + ")" * 90,
)
# (expression, what is wrong with it)
WRONG = (
    ("object.spec.paralelism <= 3", "there is no field `paralelism`"),
    ("has(object.spec.paralelism)", "there is no field `paralelism`"),
    ("object.spec.?templat.hasValue()", "there is no field `templat`"),
    ("object.spec.template.volumes.all(it, it.nam != '')", "there is no field `nam`"),
    ("object.metadata.label.team == 'x'", "there is no field `label`"),
    ("plan.acton == 'create'", "there is no field `acton`"),
    ("object.spec.parallelism == '3'", "it compares a number with a text"),
    ("object.spec.suspend == 'true'", "it compares true or false with a text"),
)


@pytest.mark.parametrize("text", RIGHT)
def test_what_there_is_may_be_named(text: str) -> None:
    compile_expression(text)
    check_types(text, ("BatchJob",))


@pytest.mark.parametrize("text", LONG)
def test_an_expression_too_long_to_be_walked_is_left_to_the_library(text: str) -> None:
    rules: Any = {"match": {"kinds": ["BatchJob"]}, "rules": [{"expression": text}]}
    assert list(find_wrong(PolicySpec.model_validate(rules))) == []


def test_optional_fields_of_an_expression_that_is_nested_too_deep_are_refused_in_words() -> None:
    text = " || ".join(["object.spec.?a.hasValue()"] * 120)
    rules: Any = {"match": {"kinds": ["BatchJob"]}, "rules": [{"expression": text}]}
    (found,) = find_wrong(PolicySpec.model_validate(rules))
    assert "its optional fields cannot be read: it is nested too deep" in found.what


@pytest.mark.parametrize(("text", "why"), WRONG)
def test_what_there_is_not_is_refused_with_the_policy(text: str, why: str) -> None:
    rules: Any = {"match": {"kinds": ["BatchJob"]}, "rules": [{"expression": text}]}
    (found,) = find_wrong(PolicySpec.model_validate(rules))
    assert found.where == ("spec", "rules", 0, "expression")
    assert why in found.what


def test_a_field_of_one_of_the_kinds_is_enough() -> None:
    check_types("!has(object.spec.search) || object.spec.search.method == 'grid'", ALL)
    with pytest.raises(ExpressionError, match="there is no field `search`"):
        check_types("has(object.spec.search)", ("BatchJob",))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("object.spec.?a.orValue(0)", 1),
        ("object.spec.?b.orValue(2)", 2),
        ("object.?spec.?deep.?x.orValue('none')", "y"),
        ("object.spec.?nothing.x.orValue('none')", "none"),
        ("object.spec.list[?1].orValue(0)", 20),
        ("object.spec.list[?5].orValue(0)", 0),
        ("object.spec[?'a'].hasValue()", True),
        ("object.spec.list.all(it, object.spec.?a.orValue(0) < it) ? 'yes' : 'no'", "yes"),
        ("object.spec.?b.or(object.spec.?a).value()", 1),
    ],
)
def test_an_optional_field_is_there_or_not(text: str, value: object) -> None:
    data = ExpressionData({"object": {"spec": {"a": 1, "deep": {"x": "y"}, "list": [10, 20]}}})
    assert evaluate_expression(compile_expression(text), data) == value


def test_an_optional_index_that_is_worked_out_is_refused() -> None:
    with pytest.raises(ExpressionError, match="must be a number or a text"):
        compile_expression("object.spec.list[?size(object.spec.list)].hasValue()")


@pytest.mark.parametrize("text", RIGHT)
def test_a_text_that_is_read_means_the_same_when_it_is_written(text: str) -> None:
    assert parse_expression(write_expression(parse_expression(text))) is not None

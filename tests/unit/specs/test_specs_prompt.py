"""What a prompt says, and how parameters come into it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fleetctl.specs.blocks.prompt import Prompt, fill_text, names_in
from fleetctl.specs.kinds.batchjob import BatchJobSpec


def prompt(**fields: Any) -> Prompt:
    return Prompt.model_validate({"endpoint": "small", "text": "hi", **fields})


@pytest.mark.parametrize(
    ("text", "is_said"),
    [
        ("say ${word}", "say tree"),
        ("${word}${word}", "treetree"),
        ("${n} of ${of}", '3 of ["a", "ä"]'),
        ("${flag} ${nothing}", "true null"),
        ("$${word} costs $5 and $word", "${word} costs $5 and $word"),
        ("a ${two words} b", "a 2 b"),
        ("${word ${word}", "${word tree"),
    ],
)
def test_a_parameter_stands_where_it_is_named(text: str, is_said: str) -> None:
    params = {"word": "tree", "n": 3, "of": ["a", "ä"], "flag": True, "nothing": None}
    assert fill_text(text, {**params, "two words": 2}) == is_said


def test_what_a_row_says_is_never_read_as_a_name() -> None:
    assert fill_text("${a}", {"a": "${b}", "b": "secret"}) == "${b}"


def test_the_names_of_a_text_are_those_that_are_filled_in() -> None:
    assert list(names_in("${a} $${b} ${c d}")) == ["a", "c d"]


def test_the_system_speaks_first_and_the_text_last() -> None:
    said = prompt(system="be ${how}", text="${what}?").said({"how": "brief", "what": "why"})
    assert said == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "why?"},
    ]


def test_parameters_have_the_names_that_servers_know() -> None:
    given = {"temperature": 0, "maxTokens": 9, "topP": 0.5, "stop": ["\n"], "extra": {"top_k": 4}}
    body = prompt(parameters=given).parameters.body()
    assert body == {"temperature": 0, "max_tokens": 9, "top_p": 0.5, "stop": ["\n"], "top_k": 4}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, "exactly one of"),
        ({"text": None}, "exactly one of"),
        ({"parameters": {"extra": {"seed": 3}}}, "has a field of its own"),
        ({"parameters": {"extra": {"messages": []}}}, "has a field of its own"),
        ({"parameters": {"temperature": 3}}, "less than or equal to 2"),
        ({"mode": "later"}, "'online' or 'batch'"),
        (
            {"text": None, "system": "a", "messages": [{"role": "system", "content": "b"}]},
            "leave `system` out",
        ),
    ],
)
def test_a_prompt_says_one_thing(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        prompt(**fields)


def test_a_prompt_is_asked_at_an_endpoint_without_a_word_of_it() -> None:
    asked = {"prompt": {"endpoint": "small", "text": "hi"}}
    spec = BatchJobSpec.model_validate({"template": asked})
    assert spec.providers() == ("endpoint",)
    assert BatchJobSpec.model_validate({"template": {"script": "x"}}).providers() == ("local",)


@pytest.mark.parametrize("field", ["image", "env", "resources", "python", "endpoints"])
def test_nothing_of_a_sandbox_stands_beside_a_prompt(field: str) -> None:
    values: dict[str, Any] = {"python": "x", "endpoints": ["small"]}
    asked = {"prompt": {"endpoint": "small", "text": "hi"}, field: values.get(field, {})}
    with pytest.raises(ValidationError, match=f"leave `{field}` out beside `prompt`"):
        BatchJobSpec.model_validate({"template": asked})

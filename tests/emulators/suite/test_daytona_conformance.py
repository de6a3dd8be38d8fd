"""Every answer of the emulator is one that the pinned client's models take without a rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from tests.emulators.daytona import routes
from tests.emulators.daytona.running import DaytonaEmulator
from tests.emulators.daytona.specification import problems
from tests.emulators.daytona.state import World
from tests.emulators.suite.daytona_tour import Answer, Tour

# The client says of some calls that they are old; the platform answers them all the same.
pytestmark = pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def answers(server: DaytonaEmulator) -> list[Answer]:
    return Tour(server).make()


def test_every_answer_has_all_that_the_clients_models_know_and_nothing_else(
    answers: list[Answer],
) -> None:
    unknown = {
        f"{answer.operation}: {line}" for answer in answers for line in _rests(answer.data, "body")
    }
    assert unknown == set()


def test_the_tour_makes_every_call_of_the_control_plane(
    answers: list[Answer], tmp_path: Any
) -> None:
    there = {
        route.kwargs["name"]
        for route in routes.everything(World(tmp_path))
        if route.path.startswith("/api/") and "name" in route.kwargs
    }
    assert there - {answer.operation for answer in answers} == set()
    assert len(there) > 70


def test_numbers_are_whole_and_moments_are_text(answers: list[Answer]) -> None:
    bodies = [json.loads(a.raw) for a in answers if a.operation == "getSandbox"]
    assert {type(body[key]) for body in bodies for key in ("cpu", "memory", "disk", "gpu")} == {int}
    assert all(body["createdAt"].endswith("Z") for body in bodies)


DOCUMENT = {
    "paths": {
        "/one": {
            "get": {
                "operationId": "getOne",
                "responses": {
                    "200": {
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/One"}}
                        }
                    }
                },
            }
        }
    },
    "components": {
        "schemas": {
            "One": {
                "type": "object",
                "required": ["id", "at"],
                "properties": {
                    "id": {"type": "string"},
                    "at": {"type": "string", "format": "date-time"},
                    "kind": {"type": "string", "enum": ["a", "b"]},
                    "size": {"type": "integer", "nullable": True},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/One"}},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                },
            }
        }
    },
}
GOOD = {"id": "1", "at": "2026-01-01T00:00:00.000Z"}


def test_an_answer_as_described_has_no_problems() -> None:
    body = {**GOOD, "kind": "a", "size": None, "parts": [GOOD], "labels": {"a": "b"}, "more": 1}
    assert problems(DOCUMENT, "getOne", 200, json.dumps(body).encode()) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"id": "1"}, "body.at is missing"),
        ({**GOOD, "id": 1}, "which is no string"),
        ({**GOOD, "id": None}, "body.id is null"),
        ({**GOOD, "at": "yesterday"}, "which is no date-time"),
        ({**GOOD, "kind": "c"}, "not one of"),
        ({**GOOD, "size": True}, "which is no integer"),
        ({**GOOD, "parts": [{"id": "2"}]}, "body.parts[].at is missing"),
        ({**GOOD, "labels": {"a": 1}}, "body.labels.*"),
    ],
)
def test_an_answer_that_is_not_as_described_is_told_apart(body: Any, said: str) -> None:
    (line,) = problems(DOCUMENT, "getOne", 200, json.dumps(body).encode())
    assert said in line


def test_a_status_that_is_not_described_is_a_problem() -> None:
    assert problems(DOCUMENT, "getOne", 201, b"") == ["getOne: status 201 is not described"]


def _rests(value: Any, at: str) -> Iterator[str]:
    """Keys of the body that a model does not know, and enum words that it took as unknown."""
    if isinstance(value, list):
        for item in value:
            yield from _rests(item, f"{at}[]")
    if not isinstance(value, BaseModel):
        if "unknown_default_open_api" in str(value):
            yield f"{at} is an unknown word"
        return
    for name in getattr(value, "additional_properties", {}):
        yield f"{at}.{name}"
    for name in type(value).model_fields:
        if name != "additional_properties":
            yield from _rests(getattr(value, name), f"{at}.{name}")

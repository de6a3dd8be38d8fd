"""Whether an answer is the JSON that a schema asks for, and where it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import Refused
from fleetctl.common.install import install_hint
from fleetctl.specs.values.hashing import canonical_json

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MESSAGE_CHARS_MAX = 300
# Models without a grammar of their own put their JSON into a block of Markdown.
_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)

_THOUGHT = "</think>"


class Mismatch(Exception):
    """The answer is not what the schema asks for; the text says where and why."""


def parsed(text: str, schema: Mapping[str, Any]) -> Any:
    """The value that an answer is. Raises Mismatch; Refused for a schema that is none, or without
    the library.
    """
    try:
        value = _value(text)
    except RecursionError:
        raise Mismatch("the answer is nested too deeply") from None
    except ValueError as error:
        raise Mismatch(f"the answer is not JSON: {error}") from None
    validator = _validator(canonical_json(schema))
    try:
        # The mistake nearest to the top says most; of equally near ones the first.
        errors = validator.iter_errors(value)
        found = min(errors, key=lambda it: len(it.absolute_path), default=None)
    except _unresolved() as error:
        message = f"prompt.schema refers to `{error}`, which it does not hold"
        raise Refused(message, hint="write it below `$defs`; nothing is fetched") from error
    if found is not None:
        raise Mismatch(f"at {found.json_path}: {found.message[:MESSAGE_CHARS_MAX]}")
    return value


def _value(text: str) -> Any:
    """Raises ValueError, RecursionError. Thoughts before the answer, which servers without a parser
    for them leave in the text, are no part of it.
    """
    match = _FENCED.fullmatch(text)
    try:
        return json.loads(match[1] if match else text, parse_constant=_no_number)
    except ValueError:
        _, thought, answer = text.rpartition(_THOUGHT)
        if not thought:
            raise
        return _value(answer)


def _unresolved() -> type[Exception]:
    from referencing.exceptions import Unresolvable

    return Unresolvable


def _no_number(word: str) -> object:
    raise ValueError(f"{word} is not a number of JSON")


@lru_cache(64)
def _validator(schema: str) -> Validator:
    """schema: canonical JSON. Nothing that it refers to is fetched."""
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from referencing import Registry
    except ModuleNotFoundError as error:
        raise Refused(
            f"a schema needs the package `{error.name}`, which is not installed",
            hint=install_hint("endpoints"),
        ) from error
    document = json.loads(schema)
    try:
        Draft202012Validator.check_schema(document)
    except SchemaError as error:
        message = f"prompt.schema must be a JSON Schema: {error.message}"
        raise Refused(message, hint="`{type: object, properties: {...}}` is one") from error
    return Draft202012Validator(document, registry=Registry())

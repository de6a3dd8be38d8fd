"""Checks whether an answer is the JSON that a schema asks for, and where it is not."""

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


class SchemaMismatch(Exception):
    """Raised when an answer does not fit the schema; the text has where and why."""


def parse_matching(text: str, schema: Mapping[str, Any]) -> Any:
    """Returns the value of an answer. Raises SchemaMismatch; Refused for an invalid schema, or
    without the library.
    """
    try:
        value = _parse_value(text)
    except RecursionError:
        raise SchemaMismatch("the answer is nested too deeply") from None
    except ValueError as error:
        raise SchemaMismatch(f"the answer is not JSON: {error}") from None
    validator = _build_validator(canonical_json(schema))
    try:
        # The mistake nearest to the top explains most; of equally near ones the first.
        errors = validator.iter_errors(value)
        found = min(errors, key=lambda it: len(it.absolute_path), default=None)
    except _unresolved_error() as error:
        message = f"prompt.schema refers to `{error}`, which it does not hold"
        raise Refused(message, hint="write it below `$defs`; nothing is fetched") from error
    if found is not None:
        raise SchemaMismatch(f"at {found.json_path}: {found.message[:MESSAGE_CHARS_MAX]}")
    return value


def _parse_value(text: str) -> Any:
    """Returns the JSON value of an answer. Raises ValueError, RecursionError. Thoughts before the
    answer, which servers without a parser for them leave in the text, are cut off.
    """
    match = _FENCED.fullmatch(text)
    try:
        return json.loads(match[1] if match else text, parse_constant=_no_number)
    except ValueError:
        _, thought, answer = text.rpartition(_THOUGHT)
        if not thought:
            raise
        return _parse_value(answer)


def _unresolved_error() -> type[Exception]:
    from referencing.exceptions import Unresolvable

    return Unresolvable


def _no_number(word: str) -> object:
    raise ValueError(f"{word} is not a number of JSON")


@lru_cache(64)
def _build_validator(schema: str) -> Validator:
    """Returns the validator of a schema. schema: canonical JSON. Its references are never
    fetched.
    """
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

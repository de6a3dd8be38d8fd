"""The JSON body of a request, whose fields have the types that the daemon's structs give them.

A field that is absent or null has its type's empty value, as in Go; one of another type is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .errors import ToolboxError


class Body:
    def __init__(self, raw: bytes, *, kind: str = "") -> None:
        """`kind` is the name of the daemon's struct, which its sentences name. Raises ToolboxError
        for what is not a JSON object."""
        self._kind = kind
        try:
            fields = json.loads(raw or b"{}")
        except ValueError as error:
            raise _invalid(f"invalid request body: {error}") from error
        if not isinstance(fields, dict):
            raise _invalid("invalid request body: not an object")
        self._fields: dict[str, Any] = fields

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Body:
        return cls(json.dumps(dict(fields)).encode())

    def need(self, *names: str) -> None:
        """Raises what the daemon's validator says of a required field that is absent or empty."""
        for name in names:
            if self._fields.get(name) in (None, "", []):
                field = name[0].upper() + name[1:]
                raise _invalid(
                    "invalid body request: invalid request body: "
                    f"Key: '{self._kind}.{field}' Error:Field validation for '{field}' "
                    "failed on the 'required' tag"
                )

    def text(self, name: str, default: str = "") -> str:
        value = self._typed(name, str, "string")
        return value or default

    def texts(self, name: str) -> list[str]:
        value = self._typed(name, list, "[]string") or []
        if not all(isinstance(one, str) and "\0" not in one for one in value):
            raise self._mistyped(name, "[]string")
        return value

    def mapping(self, name: str) -> dict[str, str]:
        value = self._typed(name, dict, "map[string]string") or {}
        if not all(isinstance(one, str) and "\0" not in key + one for key, one in value.items()):
            raise self._mistyped(name, "map[string]string")
        return value

    def number(self, name: str, default: int = 0) -> int:
        value = self._fields.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._mistyped(name, "int")
        return value

    def flag(self, name: str) -> bool:
        return bool(self._typed(name, bool, "bool"))

    def _typed(self, name: str, kind: type, said: str) -> Any:
        value = self._fields.get(name)
        if value is not None and not isinstance(value, kind):
            raise self._mistyped(name, said)
        if isinstance(value, str) and "\0" in value:
            raise _invalid(f"invalid request body: {name} holds a NUL")
        return value

    def _mistyped(self, name: str, said: str) -> ToolboxError:
        return _invalid(
            f"invalid request body: json: cannot unmarshal into field {self._kind}.{name} "
            f"of type {said}"
        )


def _invalid(message: str) -> ToolboxError:
    return ToolboxError(400, message, code="INVALID_REQUEST_BODY")

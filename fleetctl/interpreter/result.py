"""The result of `execute` for code that submitted values, and the errors of interpreters with their
messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from fleetctl.common.errors import FleetctlError

_SLOT = "_submitted"

START_ANEW = "the code is never run again by itself; the next execute() starts a new sandbox"
_CREDENTIALS = (
    re.compile(r"()\bsk-[A-Za-z0-9_-]{8,}"),
    re.compile(r"(\bbearer\s+)[^\s,;]+", re.IGNORECASE),
    re.compile(r"((?:api[_-]?key|token|secret|password)\s*[=:]\s*)[^\s,;]+", re.IGNORECASE),
)
_SHORTEST_SECRET = 4  # shorter values would blank out half of any text


class FinalOutput:
    """The values of a SUBMIT: `result.loss`, `result["loss"]`, or `.output` for all.

    A submitted field takes precedence over the object's own attributes, so that fields may be
    called `items`, `keys`, `count` or `output`. Names with two underscores around are only found by
    `result["__name__"]`. Cannot be changed.
    """

    __slots__ = (_SLOT,)

    def __init__(self, output: Any) -> None:
        object.__setattr__(self, _SLOT, output)

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, _SLOT)
        reserved = name.startswith("__") and name.endswith("__")
        if isinstance(value, dict) and not reserved and name in value:
            return value[name]
        if name == "output":
            return value
        if not reserved:
            names = ", ".join(f"`{one}`" for one in _as_fields(value)) or "no fields"
            raise AttributeError(f"the result has no field `{name}`; it has {names}")
        return object.__getattribute__(self, name)

    def __getitem__(self, name: str) -> Any:
        value = read_submitted(self)
        return value[name]

    def __contains__(self, name: object) -> bool:
        return name in _as_fields(read_submitted(self))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a result cannot be changed (field `{name}`)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a result cannot be changed (field `{name}`)")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a result is not iterable; use as_dict(result) or result.output")

    def __dir__(self) -> list[str]:
        return sorted({*(str(name) for name in _as_fields(read_submitted(self))), "output"})

    def __repr__(self) -> str:
        return f"FinalOutput({read_submitted(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FinalOutput):
            return NotImplemented
        return bool(read_submitted(self) == read_submitted(other))

    __hash__ = None  # type: ignore[assignment]  # its values can be lists

    def __reduce__(self) -> tuple[type[FinalOutput], tuple[Any]]:
        return (FinalOutput, (read_submitted(self),))


def as_dict(result: FinalOutput) -> dict[str, Any]:
    """Returns all submitted fields, in their order; a copy. {} when something else than fields was
    set as `Final`.
    """
    return dict(_as_fields(read_submitted(result)))


def read_submitted(result: FinalOutput) -> Any:
    """Returns the submitted value, unchanged."""
    return object.__getattribute__(result, _SLOT)


def _as_fields(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {}


class InterpreterError(FleetctlError):
    """The sandbox, not the code in it, went wrong: it could not start, ended, or took too long.

    What code itself does wrong is not an exception but text that `execute` returns.
    """


class InvalidArgument(ValueError):
    """A helper of ours does not take an argument. In the code that called it: ValueError."""


def redact_text(text: str, secrets: Iterable[str]) -> str:
    """Returns `text` without these values, and without what looks like a credential."""
    for value in secrets:
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "***")
    for pattern in _CREDENTIALS:
        text = pattern.sub(r"\1***", text)
    return text

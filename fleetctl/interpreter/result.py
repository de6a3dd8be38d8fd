"""Defines the result of `execute` for code that submitted values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_SLOT = "_submitted"


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

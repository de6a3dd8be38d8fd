"""What `execute` returns when the code handed something in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_SLOT = "_submitted"


class FinalOutput:
    """The values of a SUBMIT: `result.loss`, `result["loss"]`, or `.output` for all of them.

    A submitted field goes before everything that the object has of its own, so that fields may be
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
            names = ", ".join(f"`{one}`" for one in _fields(value)) or "no fields"
            raise AttributeError(f"the result has no field `{name}`; it has {names}")
        return object.__getattribute__(self, name)

    def __getitem__(self, name: str) -> Any:
        value = submitted(self)
        return value[name]

    def __contains__(self, name: object) -> bool:
        return name in _fields(submitted(self))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a result cannot be changed (field `{name}`)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a result cannot be changed (field `{name}`)")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a result is not iterable; use as_dict(result) or result.output")

    def __dir__(self) -> list[str]:
        return sorted({*(str(name) for name in _fields(submitted(self))), "output"})

    def __repr__(self) -> str:
        return f"FinalOutput({submitted(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FinalOutput):
            return NotImplemented
        return bool(submitted(self) == submitted(other))

    __hash__ = None  # type: ignore[assignment]  # its values can be lists

    def __reduce__(self) -> tuple[type[FinalOutput], tuple[Any]]:
        return (FinalOutput, (submitted(self),))


def as_dict(result: FinalOutput) -> dict[str, Any]:
    """All submitted fields, in their order; a copy. {} when something else than fields was set as
    `Final`.
    """
    return dict(_fields(submitted(result)))


def submitted(result: FinalOutput) -> Any:
    """All that was handed in, as it is."""
    return object.__getattribute__(result, _SLOT)


def _fields(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

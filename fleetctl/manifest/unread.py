"""Marks the values of a spec that could not be read: a check that comes to one stops there, and all
others go on. So an object with mistakes is checked as far as it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

from fleetctl.common.finding import Path

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class UnreadError(Exception):
    """A check came to a value that could not be read."""


def _stop(*_: Any) -> NoReturn:
    raise UnreadError


class UnreadValue:
    """A value that could not be read: any use but `is` raises UnreadError."""

    __getattribute__ = __bool__ = __iter__ = __len__ = __getitem__ = __contains__ = _stop
    __eq__ = __hash__ = __lt__ = __le__ = __gt__ = __ge__ = __str__ = __format__ = _stop
    __int__ = __float__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _stop


UNREAD = UnreadValue()


@contextmanager
def stop_at_unread() -> Iterator[None]:
    """Leaves the block where it comes to a value that could not be read."""
    try:
        yield
    except (UnreadError, TypeError) as error:
        if not _came_to_unread(error):
            raise


def until_unread(found: Iterable[T]) -> Iterator[T]:
    """Yields the findings of a check until it comes to a value that could not be read.

    Without `stop_at_unread`, which costs more than most checks of a valid object.
    """
    try:
        yield from found
    except (UnreadError, TypeError) as error:
        if not _came_to_unread(error):
            raise


def _came_to_unread(error: Exception) -> bool:
    """Whether a check ended at such a value; functions in C refuse it by a TypeError."""
    return isinstance(error, UnreadError) or UnreadValue.__name__ in str(error)


def without_values(model: M, paths: Iterable[Path]) -> M:
    """Returns a copy whose values at these paths, as a manifest has them, are marked."""
    copy = model.model_copy(deep=True)
    for path in paths:
        _mark(copy, path)
    return copy


def _mark(model: BaseModel, path: Path) -> None:
    fields = {info.alias or name: name for name, info in type(model).model_fields.items()}
    name = fields.get(str(path[0])) if path else None
    if name is None or model.__dict__[name] is UNREAD:
        return  # an unknown field, which no check reads
    value = model.__dict__[name]
    rest = path[1:]
    if rest and isinstance(value, tuple) and isinstance(rest[0], int) and rest[0] < len(value):
        value, rest = value[rest[0]], rest[1:]
    elif rest and name == "spec" and isinstance(value, dict):
        value = getattr(model, "work", None)  # the object that a Schedule makes
    if rest and isinstance(value, BaseModel):
        _mark(value, rest)
    else:
        model.__dict__[name] = UNREAD

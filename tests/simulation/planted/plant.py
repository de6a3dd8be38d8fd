"""What a planted bug is, and how one is made. Used by the catalogue's files beside this one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

Plant = Callable[[], AbstractContextManager[object]]


def swapped(owner: object, name: str, new: Any) -> AbstractContextManager[object]:
    """`owner.name` is `new`. Raises AttributeError when the code has no such name any more."""
    return mock.patch.object(owner, name, new)


def around(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> AbstractContextManager[object]:
    """`owner.name` is what `make` builds around the original."""
    return mock.patch.object(owner, name, make(getattr(owner, name)))

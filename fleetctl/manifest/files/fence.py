"""While manifests of a repository are loaded, files outside of it are none of them: what such a
file says, and be it in the message of an error, must not get to who wrote the manifest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_ROOT: ContextVar[Path | None] = ContextVar("root", default=None)


class Outside(OSError):
    """A file that is not below the directory that is looked at."""


@contextmanager
def fenced(root: Path) -> Iterator[None]:
    """Nothing is read from outside of this directory, whatever links say."""
    before = _ROOT.set(root.resolve())
    try:
        yield
    finally:
        _ROOT.reset(before)


def inside(path: str | Path) -> bool:
    root = _ROOT.get()
    return root is None or Path(os.path.realpath(path)).is_relative_to(root)


def check(path: str | Path) -> None:
    """To be asked before a file is opened. Raises Outside."""
    if not inside(path):
        raise Outside


def reason(error: OSError) -> str:
    """Why a file cannot be read, in small letters."""
    if isinstance(error, Outside):
        return "it lies outside of the repository"
    return os.strerror(error.errno or 0).lower()

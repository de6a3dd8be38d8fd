"""The manifests that a command line names, as raw text. Called by apply, validate and delete.

Parsing belongs to the controller (apply) or to manifests.py, so that a client stays thin.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.text import and_more, safe
from fleetctl.manifest.files.documents import SET, VALUES, Document, is_address, read_documents

NAMES_SHOWN_MAX = 5


def documents_of(
    names: Sequence[str],
    *,
    values: Sequence[str] = (),
    recursive: bool = False,
    may_be_empty: bool = False,
    tell: Callable[[str], None] | None = None,
) -> list[Document]:
    """The texts behind files, directories, addresses and `-`. Raises NotFound for a path that is
    not there. values: files with values of variables.

    What is there and cannot be read is told by the loader, beside all other problems. tell: gets a
    sentence on files of directories that are left out, for they are of other tools.
    """
    for name in (*names, *values):
        if name != "-" and not is_address(name) and not _exists(name):
            raise NotFound(f"there is no file or directory `{name}`", hint=_near(Path(name)))
    foreign: list[str] = []
    found = read_documents(
        names,
        stdin=sys.stdin.buffer,
        recursive=recursive,
        may_be_empty=may_be_empty,
        foreign=foreign,
    )
    given = [it._replace(role=VALUES) for it in read_documents(values, stdin=sys.stdin.buffer)]
    read = {os.path.abspath(name) for name in values}  # noqa: PTH100 - as text
    foreign = [name for name in foreign if os.path.abspath(name) not in read]  # noqa: PTH100
    if foreign and tell is not None:
        shown = and_more([safe(Path(name).name) for name in foreign], most=NAMES_SHOWN_MAX)
        tell(f"left out, for nothing in it is `kind: ...`: {shown}")
    return found + given


def assignment(text: str) -> Document:
    """One `--set NAME=VALUE` of a variable. Raises UsageError for what is not one."""
    name, equals, _ = text.partition("=")
    if not equals or not name:
        raise UsageError(f"`{text}` is not NAME=VALUE", hint="for instance `--set gpu=A100:4`")
    return Document(f"--set {name}", text, str(Path.cwd()), role=SET)


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return True  # it has a problem of its own, which reading it will tell


def _near(path: Path) -> str:
    from fleetctl.common.text import did_you_mean

    try:
        names = [str(entry) for entry in path.parent.iterdir()]
    except OSError:
        return f"there is no directory `{path.parent}` either"
    return did_you_mean(str(path), names)

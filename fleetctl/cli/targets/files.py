"""The manifests that a command line names, as raw text. Called by apply, validate and delete.

Parsing belongs to the controller (apply) or to manifests.py, so that a client stays thin.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fleetctl.common.errors import NotFound, UsageError
from fleetctl.common.text import and_more, escape_line
from fleetctl.manifest.files.documents import (
    SET,
    VALUES,
    Document,
    is_address,
    is_sweep_file,
    read_documents,
)

NAMES_SHOWN_MAX = 5


def documents_of(
    names: Sequence[str],
    *,
    values: Sequence[str] = (),
    recursive: bool = False,
    may_be_empty: bool = False,
    tell: Callable[[str], None] | None = None,
) -> list[Document]:
    """Returns the texts behind files, directories, addresses and `-`. Raises NotFound for a missing
    path. values: files with values of variables.

    Unreadable files are reported by the loader, beside all other errors. tell: gets a sentence on
    files of directories that are left out, for they are of other tools.
    """
    for name in (*names, *values):
        if name != "-" and not is_address(name) and not _path_exists(name):
            raise NotFound(
                f"there is no file or directory `{name}`", hint=_suggest_path(Path(name))
            )
    foreign: list[Document] = []
    found = read_documents(
        names,
        stdin=sys.stdin.buffer,
        recursive=recursive,
        may_be_empty=may_be_empty,
        foreign=foreign,
    )
    given = [it._replace(role=VALUES) for it in read_documents(values, stdin=sys.stdin.buffer)]
    read = {os.path.abspath(name) for name in values}  # as text
    foreign = [it for it in foreign if os.path.abspath(it.path) not in read]
    if foreign and tell is not None:
        _report_left_out(foreign, found, tell)
    return found + given


def _report_left_out(
    foreign: Sequence[Document],
    found: Sequence[Document],
    tell: Callable[[str], None],
) -> None:
    names = [escape_line(Path(it.path).name) for it in foreign]
    tell(f"left out, for nothing in it is `kind: ...`: {and_more(names, most=NAMES_SHOWN_MAX)}")
    for it in foreign:
        if is_sweep_file(it.text) and not any(Path(it.path).name in one.text for one in found):
            tell(f"a W&B sweep runs where it is named itself: `-f {escape_line(it.path)}`")
            break


def parse_assignment(text: str) -> Document:
    """Reads one `--set NAME=VALUE` of a variable. Raises UsageError for other forms."""
    name, equals, _ = text.partition("=")
    if not equals or not name:
        raise UsageError(f"`{text}` is not NAME=VALUE", hint="for instance `--set gpu=A100:4`")
    return Document(f"--set {name}", text, str(Path.cwd()), role=SET)


def _path_exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return True  # it has an error of its own, which the loader reports


def _suggest_path(path: Path) -> str:
    from fleetctl.common.text import did_you_mean

    try:
        names = [str(entry) for entry in path.parent.iterdir()]
    except OSError:
        return f"there is no directory `{path.parent}` either"
    return did_you_mean(str(path), names)

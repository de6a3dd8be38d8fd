"""The manifests that a command line names, as raw text. Called by apply, validate and delete.

Parsing belongs to the controller (apply) or to loading.py, so that a client stays thin.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fleetctl.errors import NotFound
from fleetctl.manifest.documents import Document, read_documents


def documents_of(names: Sequence[str]) -> list[Document]:
    """The texts behind files, directories and `-`. Raises NotFound for a path that is not there.

    What is there and cannot be read is told by the loader, beside all other problems.
    """
    for name in names:
        if name != "-" and not _exists(name):
            raise NotFound(f"there is no file or directory `{name}`", hint=_near(Path(name)))
    return read_documents(names, stdin=sys.stdin.buffer)


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        return True  # it has a problem of its own, which reading it will tell


def _near(path: Path) -> str:
    from fleetctl.cli.flags import did_you_mean

    try:
        names = [str(entry) for entry in path.parent.iterdir()]
    except OSError:
        return f"there is no directory `{path.parent}` either"
    return did_you_mean(str(path), names)

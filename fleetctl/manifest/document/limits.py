"""Blocks that are too long to be meant, found before a model lists every entry that is wrong.

Called by manifest/loader.py. Mappings are limited as they are read, by reader.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetctl.common.finding import Finding, Path

ENTRIES_MAX = 10_000  # the longest useful list, of requirements or arguments, has some hundreds

# Data of the author's, any length and any form; their own models look at each entry once.
_DATA = frozenset(
    {
        ("spec", "tasks", "items"),
        ("spec", "tasks", "files"),
        ("spec", "tasks", "matrix"),
        ("spec", "search", "parameters"),
    }
)


def find_overlong(value: Any, path: Path) -> Iterator[Finding]:
    """Lists with more than ENTRIES_MAX entries, wherever no data of the author's is expected."""
    if isinstance(value, list):
        if len(value) > ENTRIES_MAX:
            message = f" has {len(value):,} entries; it must have at most {ENTRIES_MAX:,}"
            yield Finding(path, message)
            return
        entries: Any = enumerate(value)
    elif isinstance(value, dict):
        entries = value.items()
    else:
        return
    for key, entry in entries:
        if isinstance(entry, dict | list) and _own_path((*path, key)) not in _DATA:
            yield from find_overlong(entry, (*path, key))


def _own_path(path: Path) -> Path:
    """Returns the path in a document of its own, for a field in the template of another one."""
    if path[:3] == ("spec", "template", "spec"):
        return path[2:]
    return path

"""Anchors and aliases of a YAML document, as W&B's reader expands them. Called by reader.py.

A repeated value is not copied, but a reader of the document meets it each time: so the expansions
of aliases are counted, and no file is a bomb.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REPEATED_MAX = 100_000  # values that all aliases of a document stand for


class YamlAnchors:
    """The anchors of a document. full: more than REPEATED_MAX; reading has to end."""

    def __init__(self) -> None:
        self.full = False
        self._values: dict[str, Any] = {}
        self._sizes: dict[str, tuple[int, int]] = {}  # values, and how deep they are
        self._open: set[str] = set()
        self._repeated = 0

    def open(self, name: str) -> None:
        """A collection begins."""
        self._open.add(name)

    def close(self, name: str, value: Any) -> None:
        """A value is whole; a name that stands for something already is another from here on."""
        self._open.discard(name)
        self._values[name] = value
        self._sizes.pop(name, None)

    def repeat(self, name: str, *, depth_max: int) -> Any:
        """Raises ValueError with the rest of a sentence about the alias."""
        if name in self._open:
            raise ValueError("is an alias of a value that holds it")
        if name not in self._values:
            raise ValueError(f"is an alias, and no `&{name}` is before it")
        size, depth = self._sizes.get(name) or self._measured(name)
        self._repeated += size
        if self._repeated > REPEATED_MAX:
            self.full = True
            raise ValueError(f"is one too many: they stand for more than {REPEATED_MAX:,} values")
        if depth > depth_max:
            raise ValueError("is nested too deep")
        return self._values[name]

    def _measured(self, name: str) -> tuple[int, int]:
        """Returns the size and the depth of an anchor. All values of a level are counted before the
        next level; at most as many as may be repeated.
        """
        size = 0
        depth = 0
        level = [self._values[name]]
        while level and size <= REPEATED_MAX:
            size += len(level)
            depth += any(isinstance(it, dict | list) for it in level)
            level = [below for it in level for below in _child_values(it)]
        self._sizes[name] = size, depth
        return size, depth


def merge_mappings(container: dict[str, Any], merged: Sequence[Any]) -> bool:
    """Adds the entries of `<<`: a mapping's own keys win, and of merged ones the first. Returns
    False if a merged value is not a mapping.
    """
    for one in merged:
        if not isinstance(one, dict):
            return False
        for key, value in one.items():
            container.setdefault(key, value)
    return True


def _child_values(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    return ()

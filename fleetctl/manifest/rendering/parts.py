"""Where the pieces of a merged tree were written: paths of the tree to places in other documents.

Called by merging.py. Asked and changed once for each field of a patch, so what lies below a path is
known without a look at all of them.
"""

from __future__ import annotations

from fleetctl.manifest.positions import Written
from fleetctl.manifest.problems import Path

Place = tuple[Written, Path]


class Parts(dict[Path, Place]):
    """What is not here stands in the base, at its own path, or in the nearest part above it."""

    def __init__(self, base: Written) -> None:
        super().__init__()
        self.base = base
        self._under: dict[Path, set[Path]] = {}  # the parts at and below each path

    def put(self, path: Path, place: Place) -> None:
        """A new piece stands at the path, with all that is below."""
        self.forget(path)
        if place != (self.base, path):
            self.add(path, place)

    def add(self, path: Path, place: Place) -> None:
        """The same, beside what is known of what lies below."""
        self[path] = place
        for depth in range(len(path) + 1):
            self._under.setdefault(path[:depth], set()).add(path)

    def forget(self, path: Path) -> None:
        """Nothing stands there any more."""
        gone = self._under.pop(path, ())
        for it in tuple(gone):
            del self[it]
            for depth in range(len(it) + 1):
                if it[:depth] in self._under:
                    self._under[it[:depth]].discard(it)

    def origin(self, path: Path) -> Place:
        """Where what stands at a path was written."""
        for depth in range(len(path), -1, -1):
            if path[:depth] in self:
                written, there = self[path[:depth]]
                return written, (*there, *path[depth:])
        return self.base, path

    def below(self, path: Path) -> dict[Path, Place]:
        """By what follows the path."""
        depth = len(path)
        return {it[depth:]: self[it] for it in self._under.get(path, ()) if len(it) > depth}

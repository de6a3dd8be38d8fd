"""The origins of the pieces of a merged tree: paths of the tree to paths in other documents.

Called by merging.py. Read and changed once for each field of a patch, so the parts below a path are
known without a look at all paths.
"""

from __future__ import annotations

from fleetctl.manifest.positions import ManifestOrigin
from fleetctl.manifest.problems import Path

Place = tuple[ManifestOrigin, Path]


class MergeOrigins(dict[Path, Place]):
    """The origins by path. An absent path stands in the base, at its own path, or in the nearest
    part above.
    """

    def __init__(self, base: ManifestOrigin) -> None:
        super().__init__()
        self.base = base
        self._under: dict[Path, set[Path]] = {}  # the parts at and below each path

    def put(self, path: Path, place: Place) -> None:
        """A new piece stands at the path, with all that is below."""
        self.forget(path)
        if place != (self.base, path):
            self.add(path, place)

    def add(self, path: Path, place: Place) -> None:
        """Adds an origin, and keeps the known origins below it."""
        self[path] = place
        for depth in range(len(path) + 1):
            self._under.setdefault(path[:depth], set()).add(path)

    def forget(self, path: Path) -> None:
        """Forgets a path, whose value is gone."""
        gone = self._under.pop(path, ())
        for it in tuple(gone):
            del self[it]
            for depth in range(len(it) + 1):
                if it[:depth] in self._under:
                    self._under[it[:depth]].discard(it)

    def origin(self, path: Path) -> Place:
        """Returns the origin of the value at a path."""
        for depth in range(len(path), -1, -1):
            if path[:depth] in self:
                written, there = self[path[:depth]]
                return written, (*there, *path[depth:])
        return self.base, path

    def below(self, path: Path) -> dict[Path, Place]:
        """Returns the origins below a path, by the rest of their paths."""
        depth = len(path)
        return {it[depth:]: self[it] for it in self._under.get(path, ()) if len(it) > depth}

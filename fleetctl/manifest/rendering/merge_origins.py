"""Maps paths of a merged document to the documents and paths that their values come from.

Called by merging.py. Each field of a patch reads and changes the map, so the known paths below each
path are indexed.
"""

from __future__ import annotations

from fleetctl.common.finding import Path
from fleetctl.manifest.positions import ManifestOrigin

Origin = tuple[ManifestOrigin, Path]


class MergeOrigins(dict[Path, Origin]):
    """The origins of values by path. An absent path has the origin of the nearest path above it, or
    else comes from the base, at the same path.
    """

    def __init__(self, base: ManifestOrigin) -> None:
        super().__init__()
        self.base = base
        self._under: dict[Path, set[Path]] = {}  # the known paths at and below each path

    def put(self, path: Path, origin_of_value: Origin) -> None:
        """Sets the origin of a new value at the path, and forgets the origins below it."""
        self.forget(path)
        if origin_of_value != (self.base, path):
            self.add(path, origin_of_value)

    def add(self, path: Path, origin_of_value: Origin) -> None:
        """Adds an origin, and keeps the known origins below it."""
        self[path] = origin_of_value
        for depth in range(len(path) + 1):
            self._under.setdefault(path[:depth], set()).add(path)

    def forget(self, path: Path) -> None:
        """Forgets the origins at and below a path, whose value was removed or replaced."""
        for known in tuple(self._under.pop(path, ())):
            del self[known]
            for depth in range(len(known) + 1):
                if known[:depth] in self._under:
                    self._under[known[:depth]].discard(known)

    def origin(self, path: Path) -> Origin:
        """Returns the origin of the value at a path."""
        for depth in range(len(path), -1, -1):
            if path[:depth] in self:
                document, above = self[path[:depth]]
                return document, (*above, *path[depth:])
        return self.base, path

    def below(self, path: Path) -> dict[Path, Origin]:
        """Returns the origins below a path, by their paths from there."""
        depth = len(path)
        return {it[depth:]: self[it] for it in self._under.get(path, ()) if len(it) > depth}

"""Reads `kind: List`, as `get -o json` and kubectl write it: each item is a document of its own.

Called by readers of a text of manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from fleetctl.common.finding import Path
from fleetctl.manifest.yaml.reader import YamlDocument, YamlReading, read_yaml

KIND = "List"
ITEMS = "items"

V = TypeVar("V")


def read_manifests(
    file: str,
    text: str,
    *,
    wanted: Iterable[tuple[Path, Path]] = (),
) -> YamlReading:
    """Reads as `read_yaml`, with the items of each list instead of the list.

    wanted: paths whose positions to keep, each behind the prefix of its document.
    """
    paths: set[Path] = set()
    for prefix, path in wanted:
        whole = (*prefix, *path)
        paths.update(whole[:depth] for depth in range(1, len(whole) + 1))
    reading = read_yaml(file, text, wanted=frozenset(paths))
    reading.roots = [one for root in reading.roots for one in _split_list(root)]
    return reading


def _split_list(root: YamlDocument) -> Iterator[YamlDocument]:
    data = root.value
    listing = isinstance(data, dict) and data.get("kind") == KIND
    if not listing or not isinstance(data.get(ITEMS), list):
        yield root
        return
    for number, item in enumerate(data[ITEMS]):
        prefix: Path = (ITEMS, number)
        yield YamlDocument(
            value=item,
            position=root.values.get(prefix, root.position),
            keys=_marks_below(prefix, root.keys),
            values=_marks_below(prefix, root.values),
            collections={path[2:] for path in root.collections if path[:2] == prefix},
            written=_marks_below(prefix, root.written),
            broken={path[2:] for path in root.broken if path[:2] == prefix},
            prefix=prefix,
        )


def _marks_below(prefix: Path, marks: dict[Path, V]) -> dict[Path, V]:
    depth = len(prefix)
    return {path[depth:]: at for path, at in marks.items() if path[:depth] == prefix}

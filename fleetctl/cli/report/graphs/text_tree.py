"""The graph as a tree for terminals: an object stands below its dependency. An object with several
dependencies stands below the first; under the others it is only named. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.text import escape_line
from fleetctl.views.graph import DependencyGraph, GraphLink, GraphNode

HEADER = ("OBJECT", "STATUS", "DONE", "AFTER")
NONE = "-"
ABOVE = "see above"


def draw_rows(drawn: DependencyGraph) -> Iterator[tuple[str, str, str, str]]:
    """Yields cells by HEADER. Plain ASCII, so that it looks the same wherever it is pasted."""
    below: dict[str, list[GraphLink]] = {}
    for link in drawn.links:
        below.setdefault(link.tail, []).append(link)
    known = {it.key: it for it in drawn.nodes}
    heads = {it.head for it in drawn.links}
    shown: set[str] = set()
    # A cycle has no root; it begins at any of its objects.
    for node in [*(it for it in drawn.nodes if it.key not in heads), *drawn.nodes]:
        if node.key not in shown:
            yield from _walk_tree(node, below, known, shown)


def _walk_tree(
    root: GraphNode,
    below: dict[str, list[GraphLink]],
    known: dict[str, GraphNode],
    shown: set[str],
) -> Iterator[tuple[str, str, str, str]]:
    # (node, how it hangs on the one above, what stands before its name, and before those below it)
    left = [(root, "", "", "")]
    while left:
        node, told, prefix, indent = left.pop()
        if node.key in shown:
            yield escape_line(f"{prefix}{node.key}"), ABOVE, "", told
            continue
        shown.add(node.key)
        yield escape_line(f"{prefix}{node.key}"), node.state, node.done or NONE, told or NONE
        links = below.get(node.key, [])
        for number, link in reversed(list(enumerate(links))):
            last = number == len(links) - 1
            mark, rest = ("`-- ", "    ") if last else ("|-- ", "|   ")
            left.append((known[link.head], link.told, indent + mark, indent + rest))

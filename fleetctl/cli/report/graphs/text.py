"""The graph as a tree for terminals: what depends on an object stands below it. An object that
depends on several stands below the first of them; under the others it is only named. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.text import safe
from fleetctl.views.graph import Graph, Link, Node

HEADER = ("OBJECT", "STATUS", "DONE", "AFTER")
NONE = "-"
ABOVE = "see above"


def rows(drawn: Graph) -> Iterator[tuple[str, str, str, str]]:
    """Cells by HEADER. Plain ASCII, so that it looks the same wherever it is pasted."""
    below: dict[str, list[Link]] = {}
    for link in drawn.links:
        below.setdefault(link.tail, []).append(link)
    known = {it.key: it for it in drawn.nodes}
    heads = {it.head for it in drawn.links}
    shown: set[str] = set()
    # What is in a circle has no root; it is begun somewhere.
    for node in [*(it for it in drawn.nodes if it.key not in heads), *drawn.nodes]:
        if node.key not in shown:
            yield from _tree(node, below, known, shown)


def _tree(
    root: Node, below: dict[str, list[Link]], known: dict[str, Node], shown: set[str]
) -> Iterator[tuple[str, str, str, str]]:
    # (node, how it hangs on the one above, what stands before its name, and before those below it)
    left = [(root, "", "", "")]
    while left:
        node, told, prefix, indent = left.pop()
        if node.key in shown:
            yield safe(f"{prefix}{node.key}"), ABOVE, "", told
            continue
        shown.add(node.key)
        yield safe(f"{prefix}{node.key}"), node.state, node.done or NONE, told or NONE
        links = below.get(node.key, [])
        for number, link in reversed(list(enumerate(links))):
            last = number == len(links) - 1
            mark, rest = ("`-- ", "    ") if last else ("|-- ", "|   ")
            left.append((known[link.head], link.told, indent + mark, indent + rest))

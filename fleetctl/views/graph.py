"""Which objects depend on which, as data for drawings. Pure; the CLI draws it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.controllers.depends.edges import (
    FROM_RESULTS,
    PARAMS_FROM,
    PRIOR_TRIALS,
    Edge,
    edges_in,
)
from fleetctl.specs.values.namespaces import object_key
from fleetctl.views.objects import View, why

MISSING, NEW = "Missing", "New"
_TOLD = {FROM_RESULTS: "results", PARAMS_FROM: "best trial", PRIOR_TRIALS: "trials"}


class Node(NamedTuple):
    """state: a phase, `New` of what is not stored yet, or `Missing`. done: `3/10`, or empty."""

    key: str
    state: str
    done: str = ""
    why: str = ""


class Link(NamedTuple):
    """`head` depends on `tail`; told: by what of it, such as `Succeeded` or `results`."""

    tail: str
    head: str
    told: str


class Graph(NamedTuple):
    """nodes: what others depend on before them, each once."""

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]


def node_of(seen: View) -> Node:
    done = seen.done if seen.kind.runs and seen.status else ""
    return Node(seen.key, seen.phase, done, why(seen))


def graph(
    nodes: Iterable[Node],
    specs: Mapping[str, tuple[str, Mapping[str, object]]],
    chosen: Sequence[str] = (),
) -> Graph:
    """specs: (namespace, stored spec) by key. chosen: keys of objects of which all is wanted that
    they depend on, or that depends on them; default every object that has to do with another.
    """
    links = [
        Link(object_key(edge.kind, edge.name, namespace), key, told(edge))
        for key, (namespace, document) in specs.items()
        for edge in edges_in(document)
    ]
    wanted = _around(chosen, links) if chosen else {it for link in links for it in link[:2]}
    links = [it for it in links if it.tail in wanted and it.head in wanted]
    known = {it.key: it for it in nodes if it.key in wanted or it.key in chosen}
    for link in links:
        known.setdefault(link.tail, Node(link.tail, MISSING))
    return Graph(tuple(known[key] for key in _sorted([*known], links)), tuple(links))


def told(edge: Edge) -> str:
    return edge.condition or _TOLD.get(edge.via, edge.via)


def _around(chosen: Sequence[str], links: Sequence[Link]) -> set[str]:
    """These, all that they come after, and all that comes after them."""
    back = _reached(chosen, [(it.head, it.tail) for it in links])
    return back | _reached(chosen, [(it.tail, it.head) for it in links])


def _reached(chosen: Sequence[str], steps: Sequence[tuple[str, str]]) -> set[str]:
    next_of: dict[str, list[str]] = {}
    for here, there in steps:
        next_of.setdefault(here, []).append(there)
    left, seen = list(chosen), set(chosen)
    for key in left:
        fresh = [it for it in dict.fromkeys(next_of.get(key, ())) if it not in seen]
        seen.update(fresh)
        left += fresh
    return seen


def _sorted(keys: Sequence[str], links: Sequence[Link]) -> list[str]:
    """What others depend on first, else as they came; what is in a circle last."""
    before: dict[str, int] = dict.fromkeys(keys, 0)
    after: dict[str, list[str]] = {key: [] for key in keys}
    for link in links:
        before[link.head] += 1
        after[link.tail].append(link.head)
    order = [key for key in keys if not before[key]]
    for key in order:
        for head in after[key]:
            before[head] -= 1
            if not before[head]:
                order.append(head)
    placed = set(order)
    return order + [key for key in keys if key not in placed]


def layers(drawn: Graph) -> list[list[Node]]:
    """The nodes by how many stand before them at most; those of one layer depend on none of it."""
    depth: dict[str, int] = {}
    tails: dict[str, list[str]] = {}
    for link in drawn.links:
        tails.setdefault(link.head, []).append(link.tail)
    for node in drawn.nodes:
        depth[node.key] = 1 + max((depth.get(it, -1) for it in tails.get(node.key, ())), default=-1)
    found: list[list[Node]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in drawn.nodes:
        found[depth[node.key]].append(node)
    return found

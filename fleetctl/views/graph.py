"""The dependencies between objects, as data for drawings. Pure; the CLI draws them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fleetctl.controllers.depends.edges import (
    FROM_RESULTS,
    PARAMS_FROM,
    PRIOR_TRIALS,
    DependencyEdge,
    edges_in,
)
from fleetctl.specs.values.namespaces import object_key
from fleetctl.views.objects import View, explain_status

MISSING = "Missing"
NEW = "New"
_TOLD = {FROM_RESULTS: "results", PARAMS_FROM: "best trial", PRIOR_TRIALS: "trials"}


class GraphNode(NamedTuple):
    """An object. state: a phase, `New` for an object that is not stored yet, or `Missing`. done:
    `3/10`, or empty."""

    key: str
    state: str
    done: str = ""
    why: str = ""


class GraphLink(NamedTuple):
    """`head` depends on `tail`; told: the outcome, such as `Succeeded` or `results`."""

    tail: str
    head: str
    told: str


class DependencyGraph(NamedTuple):
    """The graph. nodes: each after its dependencies, once."""

    nodes: tuple[GraphNode, ...]
    links: tuple[GraphLink, ...]


def node_of(seen: View) -> GraphNode:
    done = seen.done if seen.kind.runs and seen.status else ""
    return GraphNode(seen.key, seen.phase, done, explain_status(seen))


def build_graph(
    nodes: Iterable[GraphNode],
    specs: Mapping[str, tuple[str, Mapping[str, object]]],
    chosen: Sequence[str] = (),
) -> DependencyGraph:
    """Returns the graph. specs: (namespace, stored spec) by key. chosen: keys of objects to draw
    with all their dependencies and dependents; default every object with a link.
    """
    links = [
        GraphLink(object_key(edge.kind, edge.name, namespace), key, describe_edge(edge))
        for key, (namespace, document) in specs.items()
        for edge in edges_in(document)
    ]
    wanted = find_connected(chosen, links) if chosen else {it for link in links for it in link[:2]}
    links = [it for it in links if it.tail in wanted and it.head in wanted]
    known = {it.key: it for it in nodes if it.key in wanted or it.key in chosen}
    for link in links:
        known.setdefault(link.tail, GraphNode(link.tail, MISSING))
    return DependencyGraph(tuple(known[key] for key in sort_keys([*known], links)), tuple(links))


def describe_edge(edge: DependencyEdge) -> str:
    return edge.condition or _TOLD.get(edge.via, edge.via)


def find_connected(chosen: Sequence[str], links: Sequence[GraphLink]) -> set[str]:
    """Returns these keys, all their dependencies, and all their dependents."""
    back = _find_reachable(chosen, [(it.head, it.tail) for it in links])
    return back | _find_reachable(chosen, [(it.tail, it.head) for it in links])


def _find_reachable(chosen: Sequence[str], steps: Sequence[tuple[str, str]]) -> set[str]:
    next_of: dict[str, list[str]] = {}
    for here, there in steps:
        next_of.setdefault(here, []).append(there)
    left = list(chosen)
    seen = set(chosen)
    for key in left:
        fresh = [it for it in dict.fromkeys(next_of.get(key, ())) if it not in seen]
        seen.update(fresh)
        left += fresh
    return seen


def sort_keys(keys: Sequence[str], links: Sequence[GraphLink]) -> list[str]:
    """Sorts dependencies first, else as they came; objects in a cycle last."""
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


def split_layers(drawn: DependencyGraph) -> list[list[GraphNode]]:
    """Returns the nodes by the length of the longest path before them; nodes of a layer do not
    depend on each other."""
    depth: dict[str, int] = {}
    tails: dict[str, list[str]] = {}
    for link in drawn.links:
        tails.setdefault(link.head, []).append(link.tail)
    for node in drawn.nodes:
        depth[node.key] = 1 + max((depth.get(it, -1) for it in tails.get(node.key, ())), default=-1)
    found: list[list[GraphNode]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in drawn.nodes:
        found[depth[node.key]].append(node)
    return found

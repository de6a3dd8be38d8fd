"""The graph of objects for the page: links of all sorts, the drawn part, and the position of each
object. Pure; the server calls it, and the page draws.

An object stands to the right of all that comes before it. Each connected part has a band of its
own; within it a column is one layer by longest path, or a piece of a layer too tall to be read. An
object that very many use, such as a queue, is a hub: its links have no part in the positions, and
objects without another link are in a grid at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from fleetctl.controllers.depends.edges import edges_in
from fleetctl.controllers.depends.references import references_in
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE, object_key
from fleetctl.views.graph import (
    DependencyGraph,
    GraphLink,
    GraphNode,
    describe_edge,
    find_connected,
    sort_keys,
    split_layers,
)
from fleetctl.views.kinds import kind_named

COLUMN_ROWS_MAX = 20  # about what a screen shows at once
GRID_COLUMNS = 4  # of objects without a link that counts: the width of a screen
HUB_LINKS_MAX = 12  # more lines from a single object hide all others
SWEEPS = 3  # orderings of the layers by their neighbours; more changed little in drawings of 200


class LinkRelation(StrEnum):
    AFTER = "after"  # the head waits for the tail, or takes data from it
    USES = "uses"  # the head names the tail: its queue, a volume, an endpoint
    KEEPS = "keeps"  # the tail makes the head, and keeps it as it is


class ObjectLink(NamedTuple):
    """`tail` comes before `head`; both are keys. text: the condition, or the naming field."""

    tail: str
    head: str
    relation: LinkRelation
    text: str = ""


class NodePosition(NamedTuple):
    """column: from the left; row: from the top."""

    column: int
    row: int


class GraphChoice(NamedTuple):
    """The part of the graph that is drawn. total: objects that could be; more: by key, the links
    to objects that are not drawn."""

    keys: tuple[str, ...]
    links: tuple[ObjectLink, ...]
    total: int
    more: Mapping[str, int]


def links_in(document: Mapping[str, object], key: str, namespace: str) -> list[ObjectLink]:
    """Returns the links that the stored spec of an object declares."""
    found = []
    for edge in edges_in(document):
        tail = object_key(edge.kind, edge.name, namespace)
        found.append(ObjectLink(tail, key, LinkRelation.AFTER, describe_edge(edge)))
    for reference in references_in(document):
        kind = kind_named(reference.kind)
        within = namespace if kind.namespaced else DEFAULT_NAMESPACE
        tail = object_key(reference.kind, reference.name, within)
        found.append(ObjectLink(tail, key, LinkRelation.USES, reference.field))
    return found


def hide_ends(
    links: Iterable[ObjectLink], visible: Callable[[str], bool], hidden: str
) -> Iterator[ObjectLink]:
    """Yields the links of visible objects. An end that is not visible becomes one without a name:
    one for each visible end, relation and side, so that the number of such objects is hidden, too.

    hidden: the beginning of the keys of those; no key of an object begins so.
    """
    found: dict[ObjectLink, None] = {}
    for link in links:
        sees_tail, sees_head = visible(link.tail), visible(link.head)
        if sees_tail and sees_head:
            found[link] = None
        elif sees_head:
            found[link._replace(tail=f"{hidden}<{link.relation} {link.head}", text="")] = None
        elif sees_tail:
            found[link._replace(head=f"{hidden}>{link.relation} {link.tail}", text="")] = None
    yield from found


def choose_part(
    links: Sequence[ObjectLink],
    chosen: Sequence[str] | None,
    rank: Callable[[str], float],
    limit: int,
) -> GraphChoice:
    """Returns at most `limit` objects with the links between them.

    chosen: keys whose dependencies and dependents are drawn, with theirs; None: all that have a
    link. rank: the lowest are drawn first. A cut goes around whole neighbourhoods, so that what is
    drawn hangs together.
    """
    if chosen is None:
        wanted = {key for link in links for key in (link.tail, link.head)}
        starts = sorted(wanted, key=lambda key: (rank(key), key))
    else:
        wanted = find_connected(chosen, [GraphLink(it.tail, it.head, "") for it in links])
        rest = sorted(wanted.difference(chosen), key=lambda key: (rank(key), key))
        starts = [*dict.fromkeys(chosen), *rest]
    within = [it for it in links if it.tail in wanted and it.head in wanted]
    keys = _take_neighbours(starts, within, rank, limit)
    drawn = set(keys)
    more: dict[str, int] = {}
    shown = []
    for link in within:
        if link.tail in drawn and link.head in drawn:
            shown.append(link)
        elif link.tail in drawn or link.head in drawn:
            near = link.tail if link.tail in drawn else link.head
            more[near] = more.get(near, 0) + 1
    return GraphChoice(tuple(keys), tuple(shown), len(wanted), more)


def _take_neighbours(
    starts: Sequence[str],
    links: Sequence[ObjectLink],
    rank: Callable[[str], float],
    limit: int,
) -> list[str]:
    """Returns keys from each start outwards, the nearest first, until there are `limit`."""
    near = _neighbours_of(links)
    found: dict[str, None] = {}
    for start in starts:
        queue = [start]
        for key in queue:
            if key in found:
                continue
            if len(found) >= limit:
                return list(found)
            found[key] = None
            queue += sorted(near.get(key, ()), key=lambda it: (rank(it), it))
    return list(found)


def _neighbours_of(links: Iterable[ObjectLink]) -> dict[str, list[str]]:
    near: dict[str, list[str]] = {}
    for link in links:
        near.setdefault(link.tail, []).append(link.head)
        near.setdefault(link.head, []).append(link.tail)
    return near


def find_hubs(links: Iterable[ObjectLink]) -> set[str]:
    """Returns the objects that so many others use, or that keep so many, that lines to all of them
    would hide the rest."""
    counts: dict[str, int] = {}
    for link in links:
        if link.relation is not LinkRelation.AFTER:
            counts[link.tail] = counts.get(link.tail, 0) + 1
    return {key for key, count in counts.items() if count > HUB_LINKS_MAX}


def is_faint(link: ObjectLink, hubs: Collection[str]) -> bool:
    """Returns true for a link that is drawn only while one of its ends is looked at."""
    return link.tail in hubs and link.relation is not LinkRelation.AFTER


def lay_out(keys: Sequence[str], links: Sequence[ObjectLink]) -> dict[str, NodePosition]:
    """Returns the position of each object, in the order in which they are best read: hubs, then
    the largest connected part, and at last the objects without a link that counts."""
    hubs = find_hubs(links)
    solid = [it for it in links if not is_faint(it, hubs)]
    parts = sorted(_split_parts(keys, solid), key=lambda it: (-len(it), it[0]))
    single = [it[0] for it in parts if len(it) == 1]
    found: dict[str, NodePosition] = {}
    top = _fill_grid(found, [key for key in single if key in hubs], 0)
    for part in parts:
        if len(part) > 1:
            top = _place_part(found, part, solid, top)
    _fill_grid(found, [key for key in single if key not in hubs], top)
    return found


def _place_part(
    found: dict[str, NodePosition], part: Sequence[str], links: Sequence[ObjectLink], top: int
) -> int:
    """Adds the positions of a connected part; returns the row below it. Rows are whole everywhere,
    so that lines have a lane between any two."""
    inside = set(part)
    layers = _order_layers(part, [it for it in links if it.tail in inside and it.head in inside])
    heights = [-(-len(it) // -(-len(it) // COLUMN_ROWS_MAX)) for it in layers]
    column = 0
    for layer, height in zip(layers, heights, strict=True):
        first = top + (max(heights) - height) // 2
        for number, key in enumerate(layer):
            found[key] = NodePosition(column + number // height, first + number % height)
        column += -(-len(layer) // height)
    return top + max(heights)


def _fill_grid(found: dict[str, NodePosition], keys: Sequence[str], top: int) -> int:
    """Adds the positions of single objects; returns the row below them."""
    for number, key in enumerate(keys):
        found[key] = NodePosition(number % GRID_COLUMNS, top + number // GRID_COLUMNS)
    return top + -(-len(keys) // GRID_COLUMNS)


def _split_parts(keys: Sequence[str], links: Sequence[ObjectLink]) -> Iterator[list[str]]:
    """Yields the connected parts, each with its keys in alphabetical order."""
    near = _neighbours_of(links)
    seen: set[str] = set()
    for start in keys:
        if start in seen:
            continue
        part = {start: None}
        queue = [start]
        for key in queue:
            fresh = [it for it in near.get(key, ()) if it not in part]
            part.update(dict.fromkeys(fresh))
            queue += dict.fromkeys(fresh)
        seen.update(part)
        yield sorted(part)


def _order_layers(keys: Sequence[str], links: Sequence[ObjectLink]) -> list[list[str]]:
    """Returns the layers by longest path, each ordered by the middle of its neighbours, so that
    few links cross."""
    edges = [GraphLink(it.tail, it.head, "") for it in links]
    order = sort_keys(keys, edges)
    drawn = DependencyGraph(tuple(GraphNode(key, "") for key in order), tuple(edges))
    layers = [[node.key for node in layer] for layer in split_layers(drawn)]
    layers = [layer for layer in layers if layer]
    near = _neighbours_of(links)
    at = {key: row / len(layer) for layer in layers for row, key in enumerate(layer)}
    for _ in range(SWEEPS):
        for layer in (*layers, *reversed(layers)):
            own = set(layer)
            layer.sort(key=lambda key: (_middle_of(near.get(key, ()), own, at, at[key]), key))
            at.update({key: row / len(layer) for row, key in enumerate(layer)})
    return layers


def _middle_of(
    near: Collection[str], own: Collection[str], at: Mapping[str, float], default: float
) -> float:
    """Returns the mean position of the neighbours in other layers."""
    positions = [at[key] for key in near if key not in own]
    if not positions:
        return default
    return sum(positions) / len(positions)

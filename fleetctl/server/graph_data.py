"""Answers the graph of objects: which come before which, by every sort of link, with a position for
each, so that a page only draws.

Links are read from all objects, for they lead from namespace to namespace; an object that the
caller may not see has no name in the reply. The links that a spec declares are kept for each open
store until that spec changes: the page asks again after every change of any object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fleetctl.common.text import count_noun
from fleetctl.server.callers import VIEWER, Caller
from fleetctl.server.reads import parse_query
from fleetctl.server.response_types import GraphEdge, GraphObject, ObjectGraph
from fleetctl.server.route_table import PAGE_MAX, ApiCall
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, Kind
from fleetctl.specs.values.namespaces import object_key, split_key
from fleetctl.stores.read.rows import ResourceRow
from fleetctl.tracking.annotations import SCHEDULED_BY
from fleetctl.tracking.kept_by import read_owner
from fleetctl.views.graph import MISSING
from fleetctl.views.kinds import kind_of, parse_target
from fleetctl.views.object_graph import (
    GraphChoice,
    LinkRelation,
    NodePosition,
    ObjectLink,
    choose_part,
    find_hubs,
    hide_ends,
    is_faint,
    lay_out,
    links_in,
)
from fleetctl.views.objects import build_view, explain_status, parse_document
from fleetctl.views.store_reading import StoreReading, must_find

NODES_DEFAULT, NODES_MAX = 200, 500
EDGES_MAX = 2000  # 500 objects with four links each; more would be a black area
READ_TOGETHER_MIN = 50  # of this many new specs, one query for all is quicker
HIDDEN = "hidden"  # no kind begins so, and a key of an object has a slash behind its kind
CHOOSERS = ("namespace", "phase", "filter", "kind")

_Declared = dict[str, tuple[int, list[ObjectLink]]]  # uid -> (generation, links)
_DECLARED: WeakKeyDictionary[StoreReading, _Declared] = WeakKeyDictionary()


class LinkedFleet(NamedTuple):
    """The objects by key, and all links between them that the caller may know of."""

    rows: Mapping[str, ResourceRow]
    links: Sequence[ObjectLink]


async def show_graph(call: ApiCall) -> ObjectGraph:
    """Shows which objects come before which, with the position of each in a drawing."""
    limit = max(1, call.number("limit", NODES_DEFAULT, most=NODES_MAX))
    of = call.text("of")

    def read(reading: StoreReading) -> ObjectGraph:
        if of:
            chosen: list[str] | None = [_find_key(call, of, reading)]
        else:
            chosen = _choose_keys(call, reading)
        return build_graph_reply(reading, call.caller, chosen, limit, whole=bool(of))

    return await call.parts.readers.read(read)


def build_graph_reply(
    reading: StoreReading,
    caller: Caller,
    chosen: list[str] | None,
    limit: int,
    *,
    whole: bool = False,
) -> ObjectGraph:
    """Returns the graph of the chosen objects, None: of all. whole: also a chosen one without any
    link is drawn."""
    fleet = _read_links(reading, caller)
    linked = {key for link in fleet.links for key in (link.tail, link.head)}
    alone = 0
    if not whole:
        seen = chosen if chosen is not None else _visible_keys(fleet, caller)
        alone = sum(key not in linked for key in seen)
        chosen = chosen and [key for key in chosen if key in linked]
    part = choose_part(fleet.links, chosen, _rank_newest(fleet), limit)
    return _build_reply(part, fleet, alone)


def _find_key(call: ApiCall, text: str, reading: StoreReading) -> str:
    """Returns the key of the object that `of` names. Raises UsageError, HttpError or NotFound."""
    named, flag, namespace = text.partition(" -n ")
    target = parse_target(named, namespace if flag else call.namespace)
    call.caller.require_kind(target.kind, VIEWER, target.namespace)
    return must_find(target, reading).key


def _choose_keys(call: ApiCall, reading: StoreReading) -> list[str] | None:
    """Returns the objects that the filter of a list chooses, the newest first; None where the
    request has none."""
    within = call.caller.namespaces(call.text("namespace"))
    if not within and not any(call.text(name) for name in CHOOSERS):
        return None
    kind = kind_of(call.text("kind")) if call.text("kind") else None
    wanted = parse_query(call, kind)._replace(
        sort="created", descending=True, after=None, limit=PAGE_MAX
    )
    found = [seen for seen, *_ in reading.page(wanted)]
    if within and kind is None:  # what belongs to no namespace is drawn where an object names it
        found = [seen for seen in found if seen.kind.namespaced]
    return [seen.key for seen in found]


def _visible_keys(fleet: LinkedFleet, caller: Caller) -> Iterator[str]:
    return (key for key, row in fleet.rows.items() if _may_see(caller, row.kind, row.namespace))


def _may_see(caller: Caller, kind: str, namespace: str) -> bool:
    known = KINDS.get(kind)
    return (known is not None and not known.namespaced) or caller.may(VIEWER, namespace)


def _rank_newest(fleet: LinkedFleet) -> Callable[[str], float]:
    """Returns a function by which the newest object comes first, and one without a row last."""

    def rank(key: str) -> float:
        row = fleet.rows.get(key)
        return 0.0 if row is None else -row.created_at_s

    return rank


def _read_links(reading: StoreReading, caller: Caller) -> LinkedFleet:
    every = reading.rows.resources()
    rows: dict[str, ResourceRow] = {}
    for row in every:
        key = object_key(row.kind, row.name, row.namespace)
        if key not in rows or row.deleted_at_s is None:
            rows[key] = row
    declared = _read_declared(reading, every)
    keys = {row.uid: key for key, row in rows.items()}
    links = [
        link
        for key, row in rows.items()
        for link in (*declared[row.uid][1], *_list_owners(row, key, keys))
    ]

    def visible(key: str) -> bool:
        word, _, namespace = split_key(key)
        return _may_see(caller, _KIND_BY_WORD.get(word, word), namespace)

    return LinkedFleet(rows, list(hide_ends(links, visible, HIDDEN)))


_KIND_BY_WORD = {name.lower(): name for name in KINDS}


def _list_owners(row: ResourceRow, key: str, keys: Mapping[str, str]) -> Iterator[ObjectLink]:
    """Yields the links to objects that made this one, and keep it."""
    note = read_owner(row.annotations)
    if note is not None:
        yield ObjectLink(note.source, key, LinkRelation.KEEPS, note.file)
    maker = keys.get(row.annotations.get(SCHEDULED_BY, ""))
    if maker is not None:
        yield ObjectLink(maker, key, LinkRelation.KEEPS)


def _read_declared(reading: StoreReading, rows: Sequence[ResourceRow]) -> _Declared:
    """Returns the links that the specs of the rows declare; reads new and changed specs alone."""
    known = _DECLARED.setdefault(reading, {})
    fresh = [row for row in rows if known.get(row.uid, (-1,))[0] != row.generation]
    if len(fresh) >= READ_TOGETHER_MIN:
        wanted = {row.uid for row in fresh}
        fresh = [row for row in reading.rows.resources(specs=True) if row.uid in wanted]
    for row in fresh:
        whole = row if row.spec is not None else reading.rows.resource_of(row.uid)
        document = parse_document((whole.spec if whole is not None else None) or "{}")
        key = object_key(row.kind, row.name, row.namespace)
        known[row.uid] = row.generation, links_in(document, key, row.namespace)
    # An object may have come between the two queries, and others are gone for good.
    found = {row.uid: known.get(row.uid, (row.generation, [])) for row in rows}
    _DECLARED[reading] = dict(found)
    return found


def _build_reply(part: GraphChoice, fleet: LinkedFleet, alone: int) -> ObjectGraph:
    edges = part.links[:EDGES_MAX]
    positions = lay_out(part.keys, edges)
    numbers = {key: number for number, key in enumerate(positions)}
    nodes = [
        _build_node(key, position, part.more.get(key, 0), fleet.rows.get(key))
        for key, position in positions.items()
    ]
    hubs = find_hubs(edges)
    links: list[GraphEdge] = [
        {
            "tail": numbers[it.tail],
            "head": numbers[it.head],
            "relation": it.relation,
            "text": it.text,
            "faint": is_faint(it, hubs),
        }
        for it in edges
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "Graph",
        "metadata": {
            "total": part.total,
            "drawn": len(nodes),
            "alone": alone,
            "notes": list(_describe_omissions(part, alone, hubs)),
        },
        "objects": nodes,
        "links": links,
    }


def _describe_omissions(part: GraphChoice, alone: int, hubs: Collection[str]) -> Iterator[str]:
    """Yields a sentence for each group of objects and links that is not drawn."""
    left = part.total - len(part.keys)
    if left > 0:
        yield (
            f"{count_noun(left, 'object')} of {part.total:,} are left out: drawn are the newest"
            f" {len(part.keys):,} with what is linked to them. Choose an object, or filter."
        )
    if len(part.links) > EDGES_MAX:
        yield f"{count_noun(len(part.links) - EDGES_MAX, 'link')} more between these are left out."
    if hubs:
        subject = next(iter(hubs)) if len(hubs) == 1 else f"the {len(hubs)} objects used most"
        yield f"Lines from {subject} show while one of their ends is pointed at or has the focus."
    if alone:
        verb = "has" if alone == 1 else "have"
        yield f"{count_noun(alone, 'object')} {verb} no link to another one."


def _build_node(
    key: str,
    position: NodePosition,
    more: int,
    row: ResourceRow | None,
) -> GraphObject:
    node: GraphObject = {
        "key": key,
        "kind": "",
        "plural": "",
        "name": "",
        "namespace": "",
        "phase": MISSING,
        "done": "",
        "why": "there is no such object",
        "column": position.column,
        "row": position.row,
        "more": more,
    }
    if key.startswith(HIDDEN):
        hidden = "objects that this token may not see"
        return {**node, "key": "", "phase": "Hidden", "why": hidden}
    if row is None:
        word, name, namespace = split_key(key)
        kind = KINDS[_KIND_BY_WORD[word]]
        _name_node(node, kind, name, namespace)
        return node
    seen = build_view(row, lambda: "{}")
    _name_node(node, seen.kind, row.name, row.namespace)
    node["phase"] = seen.text("state") or seen.phase
    node["done"] = seen.done if seen.kind.runs and seen.status else ""
    node["why"] = explain_status(seen)
    return node


def _name_node(node: GraphObject, kind: Kind, name: str, namespace: str) -> None:
    node["kind"], node["plural"], node["name"] = kind.name, kind.plural, name
    node["namespace"] = namespace if kind.namespaced else ""

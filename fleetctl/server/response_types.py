"""The forms of the API's replies, and their JSON Schemas for the OpenAPI document.

A handler returns one of these types, or a route names it where the handler returns a response that
is built already; the type checker holds the code to it, and `build_schema` writes the document from
the same type. A client has to accept fields that a later version adds.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import (
    Any,
    Literal,
    NotRequired,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from starlette.responses import Response

from fleetctl.views.documents import EventDocument, ResultDocument, TaskDocument
from fleetctl.views.object_graph import LinkRelation
from fleetctl.views.run_files import ArtifactDocument

Schema = dict[str, Any]

_PLAIN = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


class Done(TypedDict):
    """A reply of a change. code: the exit code of the same verb, 0 here."""

    ok: Literal[True]
    code: int


class ChangedObject(TypedDict):
    """An object of a change, and what became of it."""

    key: str
    outcome: NotRequired[str]
    message: NotRequired[str]
    hint: NotRequired[str]
    uid: NotRequired[str]
    units: NotRequired[object]
    live: NotRequired[object]
    unit: NotRequired[str]
    sourceMoved: NotRequired[str]
    request: NotRequired[str]


class Changed(Done):
    """A reply of `apply` and of the verbs."""

    results: Sequence[ChangedObject]
    warnings: NotRequired[Sequence[str]]
    planned: NotRequired[Mapping[str, object]]
    works: NotRequired[Mapping[str, object]]
    losses: NotRequired[Sequence[str]]
    hint: NotRequired[str]


class Planned(TypedDict):
    """A reply of `plan`. ok: an apply would not be refused."""

    ok: bool
    code: int
    plan: Mapping[str, object]
    warnings: Sequence[str]
    findings: Sequence[Mapping[str, object]]
    report: NotRequired[Mapping[str, object]]
    diff: NotRequired[Sequence[str]]


class WaitedObject(TypedDict):
    """An object that is waited for. outcome: of the goal: met, waiting or impossible; because: the
    rest of a sentence on that. done: units that have ended; total: of units, where it is known."""

    key: str
    uid: str
    outcome: str
    because: str
    phase: str
    why: str
    fix: str
    done: NotRequired[int]
    total: NotRequired[int | None]
    active: NotRequired[int]
    failed: NotRequired[int]
    tally: NotRequired[str]


class WaitReply(TypedDict):
    """A reply of `wait`. code: 0 all have met the goal, 1 one can no longer, 124 the time is over.
    message: how far they are."""

    ok: bool
    code: int
    goal: str
    message: str
    errors: Sequence[str]
    hint: str
    items: Sequence[WaitedObject]


class CallerReply(TypedDict):
    user: str
    role: str
    namespace: str
    token: str
    version: str
    apiVersion: str


class KindItem(TypedDict):
    kind: str
    plural: str
    short: Sequence[str]
    namespaced: bool
    runs: bool
    unit: str
    verbs: Sequence[str]
    summary: str
    columns: Sequence[str]


class ListHead(TypedDict):
    apiVersion: str
    kind: str


class KindList(ListHead):
    items: Sequence[KindItem]


class ObjectMetadata(TypedDict):
    name: str
    namespace: NotRequired[str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    uid: str
    generation: int
    version: int
    creationTimestamp: str
    deletionTimestamp: NotRequired[str]


class DetailItem(TypedDict):
    """A field as `fleetctl describe` shows it."""

    title: str
    text: str


class ObjectAddress(TypedDict):
    kind: str
    plural: str
    name: str
    namespace: str


class DetailCellItem(TypedDict):
    """A cell. object: the one that its text names; at: a time, in place of a text."""

    text: str
    at: NotRequired[str]
    object: NotRequired[ObjectAddress]


class DetailTableItem(TypedDict):
    """A table of a kind, such as the objects that wait in a Queue. note: what it leaves out;
    without a row, the sentence in its place."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[DetailCellItem]]
    note: str


class ObjectReply(TypedDict):
    """An object in full. why: it does not move; fix: a command that would help. details, tables: of
    kinds that run no work, as `fleetctl describe` shows them."""

    apiVersion: str
    kind: str
    metadata: ObjectMetadata
    spec: Mapping[str, object]
    status: Mapping[str, object]
    why: str
    fix: str
    details: Sequence[DetailItem]
    tables: Sequence[DetailTableItem]


class ListedObject(TypedDict):
    """An object of a list. cells: of its row in the table of its kind."""

    apiVersion: str
    kind: str
    metadata: ObjectMetadata
    spec: NotRequired[Mapping[str, object]]
    status: Mapping[str, object]
    cells: Sequence[str]
    why: str


# `continue` is no name of Python.
ObjectListMetadata = TypedDict(
    "ObjectListMetadata",
    {
        "continue": str,
        "revision": object,
        "counts": Mapping[str, int],
        "total": int,
        "columns": Sequence[str],
    },
)
PageMetadata = TypedDict(
    "PageMetadata", {"continue": str, "counts": NotRequired[Mapping[str, int]]}
)


class ObjectList(ListHead):
    metadata: ObjectListMetadata
    items: Sequence[ListedObject]


class TaskList(ListHead):
    metadata: PageMetadata
    items: Sequence[TaskDocument]


class ResultList(ListHead):
    metadata: PageMetadata
    items: Sequence[ResultDocument]


class ArtifactList(ListHead):
    """The kept outputs of an object's tasks. `run-outputs/RUN?path=PATH` sends one."""

    metadata: PageMetadata
    items: Sequence[ArtifactDocument]


class EventList(ListHead):
    metadata: PageMetadata
    items: Sequence[EventDocument]


class AuditItem(TypedDict):
    seq: int
    at_s: float
    user: str
    token: str
    address: str
    action: str
    object: str
    namespace: str
    code: int
    at: str


class AuditList(ListHead):
    items: Sequence[AuditItem]


class GraphObject(TypedDict):
    """An object in the graph. key: empty where the caller may not see it. column, row: its place in
    a drawing, from the top left; more: links to objects that are not drawn."""

    key: str
    kind: str
    plural: str
    name: str
    namespace: str
    phase: str
    done: str
    why: str
    column: int
    row: int
    more: int


class GraphEdge(TypedDict):
    """`tail` comes before `head`, each an index of `objects`. relation: the head waits for the
    tail, names it, or is made by it. text: the condition, the field or the file. faint: one of so
    many that it is drawn only while one of its ends is looked at."""

    tail: int
    head: int
    relation: LinkRelation
    text: str
    faint: bool


class GraphMetadata(TypedDict):
    """Counts of objects: that could be drawn, that are, and that have no link. notes: a sentence
    for each group that is left out."""

    total: int
    drawn: int
    alone: int
    notes: Sequence[str]


class ObjectGraph(TypedDict):
    apiVersion: str
    kind: str
    metadata: GraphMetadata
    objects: Sequence[GraphObject]
    links: Sequence[GraphEdge]


class NamespaceItem(TypedDict):
    name: str
    objects: Mapping[str, int]


class NamespaceList(TypedDict):
    items: Sequence[NamespaceItem]


class TaskStates(TypedDict):
    letters: str
    indexes: Sequence[int] | None


class ChartItem(TypedDict):
    title: str
    note: str
    svg: str


class ObjectCharts(TypedDict):
    """The charts of objects: of their metrics, and of what they use of their machines."""

    items: Sequence[ChartItem]
    system: Sequence[ChartItem]


class CurveItem(TypedDict):
    """A curve that may be chosen. index: of its task."""

    kind: str
    name: str
    namespace: str
    index: int
    unit: str
    picked: bool


class ComparedCharts(ObjectCharts):
    curves: Sequence[CurveItem]
    metrics: Sequence[str]


class CostReply(TypedDict):
    today: float
    perHour: float
    unpriced: int
    kinds: Mapping[str, float | None]


class ExecAbilities(Done):
    terminal: bool
    binary: bool
    link: str


class LackingContents(Done):
    missing: Mapping[str, int]


class TakenContents(Done):
    have: Mapping[str, int]


class MadeTree(Done):
    tree: str


def find_reply_type(handler: Callable[..., Any]) -> object:
    """Returns the type that a handler returns beside a response that is built already; None where
    it returns such a response alone."""
    found = get_type_hints(handler).get("return")
    parts = [it for it in _split_union(found) if it is not Response]
    return parts[0] if len(parts) == 1 else None


def build_schema(form: object) -> Schema:
    """Returns the JSON Schema of a type."""
    if is_typeddict(form):
        return _build_object_schema(form)
    parts = _split_union(form)
    if len(parts) > 1:
        return {"anyOf": [build_schema(it) for it in parts]}
    origin, inner = get_origin(form), get_args(form)
    if origin is NotRequired:
        return build_schema(inner[0])
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is not None and issubclass(origin, Mapping):
        values = build_schema(inner[1])
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if origin is not None and issubclass(origin, Sequence):
        return {"type": "array", "items": build_schema(inner[0])}
    if form in (object, Any):
        return {}
    assert isinstance(form, type), form
    if issubclass(form, StrEnum):
        return {"type": "string", "enum": [str(it) for it in form]}
    return {"type": _PLAIN[form]}


def _build_object_schema(form: Any) -> Schema:
    hints = get_type_hints(form, include_extras=True)
    required = [name for name, it in hints.items() if get_origin(it) is not NotRequired]
    return {
        "type": "object",
        "properties": {name: build_schema(it) for name, it in hints.items()},
        "required": required,
    }


def _split_union(form: object) -> tuple[object, ...]:
    if get_origin(form) in (Union, types.UnionType):
        return get_args(form)
    return (form,)

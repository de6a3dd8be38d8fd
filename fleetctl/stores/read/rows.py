"""Rows of the store for screens, and the SQL of a page of objects: filtered, sorted and counted in
the database. Light, because `get` loads no other part of the store.

Every value is a parameter; names come from tables here.
"""

from __future__ import annotations

from typing import NamedTuple

from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE

# Of a row of `resources`: the word that lists show, as views/objects.py has it.
_PHASE = (
    "CASE WHEN deleted_at_s IS NOT NULL THEN 'Deleting'"
    " ELSE coalesce(json_extract(nullif(status, ''), '$.phase'), 'Pending') END"
)
_COST = "coalesce(json_extract(nullif(status, ''), '$.cost.actual'), 0)"
_FAILED = "coalesce(json_extract(nullif(status, ''), '$.failed'), 0)"
_COLUMNS = (
    "uid, kind, name, generation, version, created_at_s, deleted_at_s, labels, annotations,"
    " status, {spec}, namespace"
)
SORTS = {"created": "rid", "name": "name", "phase": _PHASE, "cost": _COST, "failed": _FAILED}


class ResourceRow(NamedTuple):
    uid: str
    kind: str
    name: str
    generation: int
    version: int
    created_at_s: float
    deleted_at_s: float | None
    labels: dict[str, str]
    annotations: dict[str, str]
    status: str  # JSON object
    spec: str | None = None  # JSON object; unset if a list did not read it
    namespace: str = DEFAULT_NAMESPACE


class RunRow(NamedTuple):
    index: int  # type: ignore[assignment] # hides tuple.index, which a row does not need
    attempt: int
    state: str  # a RunState's value
    name: str
    provider: str
    sandbox: str
    handle: str
    created_at_s: float
    started_at_s: float | None
    ended_at_s: float | None
    exit_code: int | None
    reason: str
    message: str
    sandbox_open: bool
    params: str  # JSON object
    usd_per_s: float | None = None  # unset = the price is not known
    placed: str = ""  # why it is at this provider; empty where there was no choice
    content: str = ""  # the content of its unit when it began; empty: not known
    wandb: str = ""  # the run at W&B that it is an attempt of; empty without W&B
    hint: str = ""  # what its user can do about the message


RUN_COLUMNS = len(RunRow._fields)


class TaskRow(NamedTuple):
    """One index for users: its newest run, and how many runs there were."""

    run: RunRow
    attempts: int
    result: str | None  # JSON object
    older: tuple[RunRow, ...] = ()  # the attempts before it


class MetricRow(NamedTuple):
    seq: int
    step: int
    name: str
    value: float | None  # None = not a number
    at_s: float


class CheckpointRow(NamedTuple):
    """A complete checkpoint, and the attempt that wrote it."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    attempt: int
    step: int
    path: str
    at_s: float
    size: int  # bytes
    took_s: float


class MetricEnd(NamedTuple):
    """A metric of a run: its last report, and the number of reports."""

    name: str
    reports: int
    step: int
    value: float | None  # unset = not a number
    at_s: float


class LiveRunPrices(NamedTuple):
    """The prices of an object's runs that have begun and hold a sandbox."""

    runs: int
    usd: float  # so far
    usd_per_h: float
    unpriced: int


class NoticeRow(NamedTuple):
    """A notice and its delivery; see controllers/kinds/notices.py."""

    id: str
    event: str
    uid: str
    object: str  # key
    namespace: str
    sink: str  # JSON object
    state: str  # a NoticeState's value
    tries: int
    problem: str
    at_s: float
    due_at_s: float
    ended_at_s: float | None
    message: str
    body: str  # JSON object


class EventLine(NamedTuple):
    uid: str
    at_s: float
    kind: str
    reason: str
    message: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    hint: str | None = None


class LabelCondition(NamedTuple):
    """A term of a label selector, as views/selectors.py parses it."""

    key: str
    op: str  # "in", "notin", "exists" or "absent"
    values: tuple[str, ...] = ()


class ObjectQuery(NamedTuple):
    """The objects of a list, and which page of it. kinds, namespaces, phases: empty: all.

    everywhere: kinds that belong to no namespace. after: the sort value and the row number of the
    last object of the page before; None for the first page.
    """

    kinds: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    everywhere: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    text: str = ""  # a part of the name
    labels: tuple[LabelCondition, ...] = ()
    sort: str = "created"  # of SORTS
    descending: bool = False
    after: tuple[object, int] | None = None
    limit: int = 100
    specs: bool = False


Sql = tuple[str, tuple[object, ...]]


def page_sql(wanted: ObjectQuery) -> Sql:
    """Returns the query of a page: the columns of `resources` in reader.sql, then the sort value
    and the row number."""
    where, values = _build_conditions(wanted, phases=True)
    value = SORTS[wanted.sort]
    order = "DESC" if wanted.descending else "ASC"
    if wanted.after is not None:
        sign = "<" if wanted.descending else ">"
        where.append(f"({value}, rid) {sign} (?, ?)")
        values += wanted.after
    columns = _COLUMNS.format(spec="spec" if wanted.specs else "NULL")
    specs = " JOIN specs USING (rid)" if wanted.specs else ""
    # The inner query sorts numbers alone: with their statuses, sorting takes three times as long.
    sql = (
        f"SELECT {columns}, chosen.value, rid"  # noqa: S608 - our own words
        f" FROM (SELECT rid, {value} AS value FROM resources{_join_conditions(where)}"
        f" ORDER BY 2 {order}, 1 {order} LIMIT ?) AS chosen"
        f" JOIN resources USING (rid){specs} ORDER BY chosen.value {order}, rid {order}"
    )
    return sql, (*values, wanted.limit)


def counts_sql(wanted: ObjectQuery) -> Sql:
    """Returns the query for (phase, how many), whatever the phases that the list is of."""
    where, values = _build_conditions(wanted, phases=False)
    sql = f"SELECT {_PHASE}, count(*) FROM resources{_join_conditions(where)} GROUP BY 1 ORDER BY 1"  # noqa: S608
    return sql, tuple(values)


def _build_conditions(wanted: ObjectQuery, *, phases: bool) -> tuple[list[str], list[object]]:
    where: list[str] = []
    values: list[object] = []

    def add_set(expression: str, members: tuple[str, ...]) -> None:
        where.append(f"{expression} IN ({', '.join('?' * len(members))})")
        values.extend(members)

    if wanted.kinds:
        add_set("kind", wanted.kinds)
    if wanted.namespaces:
        own = ", ".join("?" * len(wanted.namespaces))
        free = ", ".join("?" * len(wanted.everywhere))
        where.append(f"(namespace IN ({own}) OR kind IN ({free}))")
        values.extend((*wanted.namespaces, *wanted.everywhere))
    if wanted.phases and phases:
        add_set(_PHASE, wanted.phases)
    if wanted.text:
        where.append("instr(lower(name), lower(?))")
        values.append(wanted.text)
    for term in wanted.labels:
        _add_label(term, where, values)
    return where, values


def _add_label(term: LabelCondition, where: list[str], values: list[object]) -> None:
    """Adds a term. By kubectl's rule an object without the label is outside of every set."""
    path = f'$."{term.key}"'
    found = "json_extract(labels, ?)"
    marks = ", ".join("?" * len(term.values))
    conditions = {
        "in": f"{found} IN ({marks})",
        "notin": f"coalesce({found} NOT IN ({marks}), 1)",
        "exists": f"{found} IS NOT NULL",
        "absent": f"{found} IS NULL",
    }
    where.append(conditions[term.op])
    values.extend((path, *term.values))


def _join_conditions(where: list[str]) -> str:
    return f" WHERE {' AND '.join(where)}" if where else ""

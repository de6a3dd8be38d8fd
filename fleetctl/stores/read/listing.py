"""Builds the SQL of a page of objects: filtered, sorted and counted in the database, so that who
looks at twenty of ten thousand pays for twenty.

Called by the Reader, for the server's lists. Every value is a parameter; names come from tables
here.
"""

from __future__ import annotations

from typing import NamedTuple

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

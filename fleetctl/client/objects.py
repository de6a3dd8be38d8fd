"""The results of a fleet's methods: objects, rows of results, lines of logs, events, in lists that
a notebook shows as tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from fleetctl.common.errors import Refused
from fleetctl.views.objects import View, build_document, explain_status
from fleetctl.views.store_reading import EventView as Read

if TYPE_CHECKING:
    import pandas


SHOWN_ROWS_MAX = 50  # of a table in a notebook
CELL_CHARACTERS_MAX = 200
Row = TypeVar("Row")


class RowTable(list[Row]):
    """A list of rows. columns: attributes that a notebook shows."""

    noun: ClassVar[str] = "row"
    columns: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} {self.noun}{'' if len(self) == 1 else 's'})"

    def _repr_html_(self) -> str:
        rows = [[getattr(row, name) for name in self.columns] for row in self[:SHOWN_ROWS_MAX]]
        return render_table(self.columns, rows, total=len(self))


class QueryRows(list[tuple[Any, ...]]):
    """The rows of a query. columns: their names, in order."""

    def __init__(self, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        super().__init__(rows)
        self.columns = tuple(columns)

    def __repr__(self) -> str:
        return f"QueryRows({len(self)} of {', '.join(self.columns)})"

    def _repr_html_(self) -> str:
        return render_table(self.columns, self[:SHOWN_ROWS_MAX], total=len(self))

    def to_pandas(self) -> pandas.DataFrame:
        """Returns the rows as a DataFrame. Raises Refused where pandas is not installed."""
        return import_pandas().DataFrame(list(self), columns=list(self.columns))


def import_pandas() -> Any:
    """Returns the module. Raises Refused where it is not installed."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise Refused("pandas is not installed", hint="pip install pandas") from error
    return pandas


def render_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    total: int,
) -> str:
    """Returns a table as HTML, with a line on the rows that it leaves out."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = [f"<tr>{''.join(map(_render_cell, row))}</tr>" for row in rows]
    left = total - len(body)
    more = f"<p>and {left:,} more</p>" if left > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}"


def render_fields(fields: Mapping[str, object]) -> str:
    """Returns names and values as HTML, a row each; empty values are left out."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th>{_render_cell(value)}</tr>"
        for name, value in fields.items()
        if value not in ("", None, {}, [])
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _render_cell(value: object) -> str:
    text = "" if value is None else str(value)
    if len(text) > CELL_CHARACTERS_MAX:
        text = text[:CELL_CHARACTERS_MAX] + "..."
    return f"<td>{escape(text)}</td>"


@dataclass(frozen=True, slots=True)
class AppliedObject:
    """One applied object. outcome: `created`, `configured`, `unchanged` or `pruned`; message: a
    sentence on the change."""

    key: str
    outcome: str
    message: str


@dataclass(frozen=True, slots=True)
class FleetObject:
    """A stored object as it was when it was read. why: a sentence on its obstacle, or empty.

    spec and status are as `get -o json` has them.
    """

    kind: str
    name: str
    namespace: str
    phase: str
    why: str
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    metadata: Mapping[str, Any]

    def __repr__(self) -> str:
        why = f": {self.why}" if self.why else ""
        return f"<{self.kind.lower()}/{self.name} {self.phase}{why}>"

    def _repr_html_(self) -> str:
        counts = ("total", "active", "succeeded", "failed")
        known = {name: self.status[name] for name in counts if name in self.status}
        fields = {"name": self.name, "namespace": self.namespace, "phase": self.phase}
        return render_fields({"kind": self.kind, **fields, "why": self.why, **known})


@dataclass(frozen=True, slots=True)
class ResultRow:
    """The result of the unit `index`. attempts: how many were made. metric: the value that its
    sweep compares. content: identifies its program. outdated: the declared content is another now.
    """

    index: int
    state: str
    params: Mapping[str, Any]
    result: Any
    metric: float | None
    attempts: int
    content: str | None
    outdated: bool


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that the attempt of a unit printed, without its end."""

    index: int
    attempt: int
    text: str


@dataclass(frozen=True, slots=True)
class MetricReport:
    """A report of a unit's attempt. value: None for one that is not a number; at: in UTC."""

    index: int
    attempt: int
    name: str
    step: int
    value: float | None
    at: datetime


@dataclass(frozen=True, slots=True)
class FleetEvent:
    """type: `Normal` or `Warning`; count: how often it happened; at: the last time, in UTC."""

    at: datetime
    type: str
    reason: str
    object: str
    message: str
    count: int
    hint: str = ""


class AppliedObjects(RowTable[AppliedObject]):
    """warnings: sentences of the controller on the apply."""

    noun = "object"
    columns = ("key", "outcome", "message")
    warnings: tuple[str, ...] = ()


class FleetObjects(RowTable[FleetObject]):
    noun = "object"
    columns = ("kind", "name", "namespace", "phase", "why")


class FleetEvents(RowTable[FleetEvent]):
    noun = "event"
    columns = ("at", "type", "reason", "object", "message", "count")


class MetricReports(RowTable[MetricReport]):
    columns = ("index", "attempt", "name", "step", "value", "at")

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a row a report. Raises Refused where pandas is not installed."""
        rows = [[getattr(row, name) for name in self.columns] for row in self]
        found: pandas.DataFrame = import_pandas().DataFrame(rows, columns=list(self.columns))
        return found


class ResultRows(Sequence[ResultRow]):
    """Rows by index."""

    def __init__(self, rows: Sequence[ResultRow]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> ResultRow: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[ResultRow]: ...
    def __getitem__(self, at: int | slice) -> ResultRow | Sequence[ResultRow]:
        return self._rows[at]

    def __iter__(self) -> Iterator[ResultRow]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"Results({len(self._rows)} rows)"

    def _repr_html_(self) -> str:
        shown = [
            (it.index, it.state, dict(it.params), it.result, it.metric, it.attempts)
            for it in self._rows[:SHOWN_ROWS_MAX]
        ]
        columns = ("index", "state", "params", "result", "metric", "attempts")
        return render_table(columns, shown, total=len(self))

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a row a unit, with its index; parameters and results as columns `params.lr` and
        `result.loss`. Raises Refused where pandas is not installed.
        """
        library = import_pandas()
        rows = [_flatten_row(row) for row in self._rows]
        index = library.Index([it.index for it in self], name="index")
        found: pandas.DataFrame = library.DataFrame(rows, index=index)
        return found


def object_of(seen: View, now_s: float) -> FleetObject:
    whole: Any = build_document(seen, now_s)
    about = seen.resource
    return FleetObject(
        about.kind,
        about.name,
        about.namespace,
        seen.phase,
        explain_status(seen),
        whole["spec"],
        whole["status"],
        whole["metadata"],
    )


def row_of(found: Mapping[str, Any]) -> ResultRow:
    """Returns a row. found: as `views/documents.py` reads it."""
    metric = found.get("metric")
    return ResultRow(
        found["index"],
        found["state"],
        found["params"],
        found["result"],
        metric["value"] if metric else None,
        found["attempts"],
        found["content"],
        found["outdated"],
    )


def parse_applied(result: Mapping[str, object]) -> AppliedObject:
    """Reads a result of the controller."""
    key = str(result.get("key"))
    outcome = str(result.get("outcome"))
    return AppliedObject(key, outcome, str(result.get("message") or ""))


def event_of(read: Read) -> FleetEvent:
    line = read.line
    at = datetime.fromtimestamp(line.at_s, UTC)
    return FleetEvent(
        at,
        line.kind,
        line.reason,
        read.key,
        line.message,
        line.count,
        line.hint or "",
    )


def _flatten_row(row: ResultRow) -> dict[str, object]:
    flat: dict[str, object] = {"state": row.state, "attempts": row.attempts}
    flat |= {f"params.{name}": value for name, value in row.params.items()}
    if row.metric is not None:
        flat["metric"] = row.metric
    if isinstance(row.result, Mapping):
        flat |= {f"result.{name}": value for name, value in row.result.items()}
    return flat

"""What a fleet answers with: objects, rows of results, lines of logs, events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, overload

from fleetctl.common.errors import Refused
from fleetctl.views.objects import View, document, why
from fleetctl.views.reading import Event as Read

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class Applied:
    """outcome: `created`, `configured`, `unchanged` or `pruned`; message: what changed."""

    key: str
    outcome: str
    message: str


@dataclass(frozen=True, slots=True)
class Object:
    """A stored object as it was when it was read. why: a sentence on what holds it up, or empty.

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


@dataclass(frozen=True, slots=True)
class Row:
    """What the unit `index` submitted. attempts: how many were made. metric: the value that its
    sweep compares. content: names what was run. outdated: that is no longer what is declared.
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
class Line:
    """A line that the attempt of a unit printed, without its end."""

    index: int
    attempt: int
    text: str


@dataclass(frozen=True, slots=True)
class Event:
    """type: `Normal` or `Warning`; count: how often it happened; at: the last time, in UTC."""

    at: datetime
    type: str
    reason: str
    object: str
    message: str
    count: int


class Results(Sequence[Row]):
    """Rows by index."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | Sequence[Row]:
        return self._rows[at]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"Results({len(self._rows)} rows)"

    def to_pandas(self) -> pandas.DataFrame:
        """A row a unit, with its index; parameters and results as columns `params.lr` and
        `result.loss`. Raises Refused where pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise Refused("pandas is not installed", hint="pip install pandas") from error
        rows = [_flat(row) for row in self._rows]
        return pandas.DataFrame(rows, index=pandas.Index([it.index for it in self], name="index"))


def object_of(seen: View, now_s: float) -> Object:
    whole: Any = document(seen, now_s)
    about = seen.resource
    return Object(
        about.kind,
        about.name,
        about.namespace,
        seen.phase,
        why(seen),
        whole["spec"],
        whole["status"],
        whole["metadata"],
    )


def row_of(found: Mapping[str, Any]) -> Row:
    """found: as `views/results.py` reads it."""
    metric = found.get("metric")
    return Row(
        found["index"],
        found["state"],
        found["params"],
        found["result"],
        metric["value"] if metric else None,
        found["attempts"],
        found["content"],
        found["outdated"],
    )


def event_of(read: Read) -> Event:
    line = read.line
    at = datetime.fromtimestamp(line.at_s, UTC)
    return Event(at, line.kind, line.reason, read.key, line.message, line.count)


def _flat(row: Row) -> dict[str, object]:
    flat: dict[str, object] = {"state": row.state, "attempts": row.attempts}
    flat |= {f"params.{name}": value for name, value in row.params.items()}
    if row.metric is not None:
        flat["metric"] = row.metric
    if isinstance(row.result, Mapping):
        flat |= {f"result.{name}": value for name, value in row.result.items()}
    return flat

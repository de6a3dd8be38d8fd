"""Lists that a notebook shows as tables: short as text, whole rows as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from fleetctl.common.errors import Refused

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
        """Raises Refused where pandas is not installed."""
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

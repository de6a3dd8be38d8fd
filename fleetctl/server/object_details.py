"""Describes an object that runs no work for the API: the fields and tables of `fleetctl describe`
as data, without what belongs to namespaces that the caller may not see.
"""

from __future__ import annotations

from fleetctl.common.text import format_timestamp
from fleetctl.server.callers import VIEWER, Caller
from fleetctl.server.response_types import DetailCellItem, DetailItem, DetailTableItem
from fleetctl.views.details import EMPTY, DetailCell, DetailRow, list_details, list_tables
from fleetctl.views.objects import View
from fleetctl.views.store_reading import StoreReading

HIDDEN = "of another namespace"  # in place of a name


def build_fields(seen: View, reading: StoreReading, now_s: float) -> list[DetailItem]:
    return [{"title": title, "text": text} for title, text in list_details(seen, reading, now_s)]


def build_tables(
    caller: Caller,
    seen: View,
    reading: StoreReading,
    now_s: float,
) -> list[DetailTableItem]:
    return [
        {
            "title": table.title,
            "columns": table.columns,
            "rows": [_build_row(caller, row) for row in table.rows],
            "note": table.note,
        }
        for table in list_tables(seen, reading, now_s)
    ]


def _build_row(caller: Caller, row: DetailRow) -> list[DetailCellItem]:
    shown = not row.namespace or caller.may(VIEWER, row.namespace)
    return [_build_cell(it if shown or not it.private else _hide_cell(it)) for it in row.cells]


def _hide_cell(cell: DetailCell) -> DetailCell:
    return DetailCell(EMPTY if cell.target is None else HIDDEN)


def _build_cell(cell: DetailCell) -> DetailCellItem:
    made: DetailCellItem = {"text": cell.text}
    if cell.at_s is not None:
        made["at"] = format_timestamp(cell.at_s)
    if cell.target is not None:
        kind, name, namespace = cell.target
        made["object"] = {
            "kind": kind.name,
            "plural": kind.plural,
            "name": name,
            "namespace": namespace if kind.namespaced else "",
        }
    return made

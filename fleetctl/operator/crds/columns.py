"""The columns of `fleetctl get` for `kubectl get`: their paths in a status, and their cells. Pure.

An API server shows the value at a path, so the cells that our lists compute are written into the
status, below `columns`. Ages are left to kubectl: they go on between two writes.
"""

from __future__ import annotations

from typing import Any

from fleetctl.specs.kinds.registry import Kind
from fleetctl.views.columns import TableColumn, choose_columns
from fleetctl.views.objects import NONE, View

CELLS = "columns"
# kubectl cannot leave out a column that is empty in every row. Columns that our lists leave out
# then are for `-o wide` there, except for those that users look for first.
SHOWN = frozenset(("COST", "DURATION"))
# kubectl has the first two of itself; the others would be wrong a second later.
_KUBECTLS = frozenset(("NAME", "LABELS"))
_AT = {"STATUS": ".status.phase", "ACTIVE": ".status.active", "FAILED": ".status.failed"}
_AGES = {"AGE": ".metadata.creationTimestamp", "STARTED": ".status.startTime"}


def printer_columns(kind: Kind) -> list[dict[str, Any]]:
    """Returns `additionalPrinterColumns` of its CRD."""
    made = [_build_printer_column(column) for column in _list_columns(kind)]
    # kubectl shows the columns of both sorts in their order; those always shown come first.
    return sorted(made, key=lambda it: it.get("priority", 0))


def build_cells(seen: View, now_s: float) -> dict[str, str]:
    """Returns the cells below `columns` of an object's status. A duration is shown once it is
    final.
    """
    told: dict[str, str] = {}
    for column in _list_columns(seen.kind):
        if column.title in _AT or column.title in _AGES:
            continue
        if column.title == "DURATION" and not seen.over:
            continue
        cell = column.cell(seen, now_s)
        if cell != NONE:
            told[cell_name(column.title)] = cell
    return told


def cell_name(title: str) -> str:
    """Returns `bestTrial` for `BEST TRIAL`, `usdPerHour` for `$/H`."""
    first, *others = title.replace("$/H", "USD PER HOUR").split()
    return str(first.lower() + "".join(word.capitalize() for word in others))


def _list_columns(kind: Kind) -> list[TableColumn]:
    return [it for it in choose_columns(kind, wide=True) if it.title not in _KUBECTLS]


def _build_printer_column(column: TableColumn) -> dict[str, Any]:
    title = column.title
    path = _AT.get(title) or _AGES.get(title) or f".status.{CELLS}.{cell_name(title)}"
    sort = "date" if title in _AGES else "integer" if title in ("ACTIVE", "FAILED") else "string"
    wide = column.wide or (column.sparse and title not in SHOWN)
    made = {"name": title, "type": sort, "jsonPath": path}
    return made | ({"priority": 1} if wide else {})

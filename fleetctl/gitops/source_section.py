"""The tables of a Source for `describe` and the page: what differs from its manifests, why a commit
is not applied, and the objects that it keeps.

The row of the kind in specs/kinds/registry.py names `source_tables`. It reads the store alone: the
value that a manifest has for a field is in the repository, and `fleetctl diff` shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fleetctl.common.text import escape_line, format_scalar, shorten_text
from fleetctl.controllers.model import Resource
from fleetctl.specs.kinds.source import REPAIR
from fleetctl.stores.read.rows import ResourceRow
from fleetctl.tracking.by_hand import list_drift
from fleetctl.tracking.kept_by import KeptBy, read_owner, shorten_commit
from fleetctl.views.details import EMPTY, ROWS_MAX, DetailCell, DetailRow, DetailTable
from fleetctl.views.kinds import Target, kind_named, target_of, target_with
from fleetctl.views.objects import FAILED, View, build_view, explain_status, is_standing_still
from fleetctl.views.store_reading import StoreReading

DRIFT_COLUMNS = ("OBJECT", "DIFFERS", "NOW", "NEXT")
PROBLEM_COLUMNS = ("WHERE", "PROBLEM")
OBJECT_COLUMNS = ("OBJECT", "STATUS", "DONE", "FILE", "REVISION", "WHY")
FIELDS_SHOWN_MAX = 10  # for each object
VALUE_CHARS_MAX = 60

_PLACED = re.compile(r"(\S+?:\d+(?::\d+)?): (.+)", re.DOTALL)
# `batchjob/embed was changed by hand`, as engine/kinds/source_pass.py writes it
_DRIFTED = re.compile(r"(\S+/\S+(?: -n \S+)?) (was .+)")


class KeptObject(NamedTuple):
    view: View
    note: KeptBy


def source_tables(seen: View, reading: StoreReading, _now_s: float) -> Iterator[DetailTable]:
    """Yields the differences, the problems and the kept objects."""
    kept = list_kept(seen, reading)
    if drift := seen.status.get("drift"):
        texts = [str(it) for it in drift] if isinstance(drift, list) else []
        rows = [row for text in texts for row in _build_drift(text, seen, kept, reading)]
        hint = f"`fleetctl diff {seen.key}` shows what the manifests have"
        yield DetailTable("Drift", DRIFT_COLUMNS, tuple(rows[:ROWS_MAX]), _count_rest(rows) or hint)
    if problems := _list_problems(seen):
        yield DetailTable("Problems", PROBLEM_COLUMNS, problems)
    ordered = sorted(kept.values(), key=_rank_kept)
    rows = [_build_object(it) for it in ordered[:ROWS_MAX]]
    rest = _count_rest(ordered) or ("" if rows else "none yet")
    yield DetailTable("Kept objects", OBJECT_COLUMNS, tuple(rows), rest)


def list_kept(source: View, reading: StoreReading) -> dict[str, KeptObject]:
    """Returns the objects that a Source keeps by key, without their specs."""
    found = {}
    for row in reading.rows.resources():
        note = read_owner(row.annotations)
        if note is not None and note.source == source.key:
            view = build_view(row, lambda: "{}")
            found[view.key] = KeptObject(view, note)
    return found


def _rank_kept(one: KeptObject) -> tuple[bool, bool, str]:
    """Returns a key that sorts what needs a look first."""
    return one.view.phase != FAILED, not is_standing_still(one.view), one.view.key


def _count_rest(rows: Sequence[object]) -> str:
    left = len(rows) - ROWS_MAX
    return f"and {left:,} more" if left > 0 else ""


def _build_object(one: KeptObject) -> DetailRow:
    view, note = one
    cells = (
        _name_cell(_target_of(view), view.key),
        DetailCell(view.text("state") or view.phase, private=True),
        DetailCell(view.done if view.kind.runs else EMPTY, private=True),
        DetailCell(escape_line(note.file), private=True),
        DetailCell(shorten_commit(note.revision), private=True),
        DetailCell(escape_line(explain_status(view)) or EMPTY, private=True),
    )
    return DetailRow(cells, _namespace_of(view))


def _build_drift(
    text: str, source: View, kept: Mapping[str, KeptObject], reading: StoreReading
) -> Iterator[DetailRow]:
    """Yields a row for each field of an object that differs; one row where no field is known."""
    parts = _DRIFTED.fullmatch(text)
    if parts is None:  # it counts objects that have no name any more
        yield _drift_row(None, text, EMPTY, source)
        return
    key, how = parts.groups()
    one = kept.get(key)
    fields = _list_fields(one, reading) if one is not None else []
    if not fields:
        yield _drift_row(key, how, EMPTY, source)
    for path, value in fields[:FIELDS_SHOWN_MAX]:
        yield _drift_row(key, path, value, source)
    if (left := len(fields) - FIELDS_SHOWN_MAX) > 0:
        yield _drift_row(key, f"and {left} more fields", EMPTY, source)


def _list_fields(one: KeptObject, reading: StoreReading) -> list[tuple[str, str]]:
    whole = reading.rows.resource_of(one.view.resource.uid)
    if whole is None:
        return []
    return [
        (escape_line(path), _format_value(value))
        for path, value in list_drift(_build_resource(whole), one.note)
    ]


def _build_resource(row: ResourceRow) -> Resource:
    """Returns a read row in the form that digests are computed of."""
    return Resource(
        uid=row.uid,
        kind=row.kind,
        name=row.name,
        generation=row.generation,
        version=row.version,
        spec=row.spec or "{}",
        status=row.status,
        labels=row.labels,
        annotations=row.annotations,
        created_at_s=row.created_at_s,
        deleted_at_s=row.deleted_at_s,
        namespace=row.namespace,
    )


def _format_value(value: object) -> str:
    if value is None:
        return "not set"
    return escape_line(shorten_text(format_scalar(value), VALUE_CHARS_MAX))


def _drift_row(key: str | None, how: str, now: str, source: View) -> DetailRow:
    target = None if key is None else target_with(key)
    name = DetailCell(EMPTY) if target is None else _name_cell(target, str(key))
    cells = (
        name,
        DetailCell(escape_line(how), private=target is not None),
        DetailCell(now, private=target is not None),
        DetailCell(_describe_next(source)),
    )
    return DetailRow(cells, target.namespace if target and target.kind.namespaced else "")


def _describe_next(source: View) -> str:
    spec = source.spec()
    if spec.get("suspend"):
        return "stays: `suspend` is set"
    if spec.get("drift", REPAIR) != REPAIR:
        return "stays: `drift` is Report"
    if source.text("lastError"):
        return "made equal again once a commit is applied"
    return "made equal again"


def _list_problems(seen: View) -> tuple[DetailRow, ...]:
    """Returns a row for each line of the last error: file and line apart, where it has both."""
    rows = []
    for line in filter(None, seen.text("lastError").splitlines()):
        placed = _PLACED.fullmatch(line)
        where, problem = placed.groups() if placed else (EMPTY, line)
        rows.append(DetailRow((DetailCell(escape_line(where)), DetailCell(escape_line(problem)))))
    return tuple(rows)


def _name_cell(target: Target, key: str) -> DetailCell:
    return DetailCell(escape_line(key), target=target, private=True)


def _target_of(view: View) -> Target:
    row = view.resource
    return target_of(kind_named(row.kind), row.name, row.namespace)


def _namespace_of(view: View) -> str:
    return view.resource.namespace if view.kind.namespaced else ""

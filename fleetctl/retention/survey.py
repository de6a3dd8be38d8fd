"""Lists all data of finished work, by sort, with its size, its last use, and why it may not go;
reads the objects' statuses for it, and reports to screens and scripts.

Called in a thread by the controller, and by `fleetctl gc --dry-run`. Only reads: neither the data
nor the statuses are ever changed here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from fleetctl.controllers.depends.edges import edges_in
from fleetctl.controllers.kinds.retention_decision import (
    ExpiredItem,
    RetentionDecision,
    RetentionItem,
    RetentionLimits,
    RetentionSort,
    decide_retention,
    shrink_group,
)
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.providers.contract.plugin import YOUNG_S, CachedEntry
from fleetctl.providers.paths import jobs_dir, providers_in
from fleetctl.providers.remote.remote_provider import INTERPRETERS, KEPT
from fleetctl.providers.rundir.kept_outputs import disk_usage
from fleetctl.providers.sources.source_snapshots import (
    InputFiles,
    Snapshots,
    StoredContent,
    name_of,
)
from fleetctl.providers.sources.upload_store import UPLOADS, measure_uploads
from fleetctl.retention.output_files import RunFiles, logs_in, outputs_in
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.namespaces import object_key
from fleetctl.stores.read.reader import Reader
from fleetctl.tracking.annotations import ORIGIN, REVISION
from fleetctl.tracking.kept_by import find_maker
from fleetctl.tracking.source_state import copy_in
from fleetctl.tracking.task_inputs import digests_in
from fleetctl.wiring.plugins import caches_of

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import ResourceRow


NOT_OVER = "not over"
UNKNOWN = "of no object of this store"
SENT = "goes a week after its last use"
DIGEST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class SortSurvey:
    """The survey of a sort: its limits, and the resulting decision."""

    sort: RetentionSort
    limits: RetentionLimits
    decision: RetentionDecision


def survey_items(
    home: Path,
    limits: Mapping[RetentionSort, RetentionLimits],
    now_s: float,
) -> dict[RetentionSort, SortSurvey]:
    """Returns the stored items of each sort with the decision to keep or delete them. Raises
    StoreError where the store cannot be read; then no item is selected.
    """
    with Reader(home) as reader:
        items = _list_items(home, reader, now_s)
    decisions = {sort: decide_retention(items[sort], limits[sort], now_s) for sort in RetentionSort}
    budgets = {it.group: it.group_bytes for it in limits.values() if it.group_bytes is not None}
    for group, most in budgets.items():
        sorts = [sort for sort in RetentionSort if limits[sort].group == group]
        decisions |= shrink_group(
            {sort: items[sort] for sort in sorts},
            {sort: decisions[sort] for sort in sorts},
            {sort: limits[sort].keep_last for sort in sorts},
            most,
        )
    return {sort: SortSurvey(sort, limits[sort], decisions[sort]) for sort in RetentionSort}


def _list_items(
    home: Path,
    reader: Reader,
    now_s: float,
) -> dict[RetentionSort, list[RetentionItem]]:
    # The files first: those of work that begins meanwhile are not among them.
    logs = list(logs_in(home))
    copies = list(Snapshots(home).kept())
    outputs = list(outputs_in(home))
    inputs = InputFiles(home).listed()

    objects = read_object_states(reader)
    over = {uid for uid, it in objects.items() if it.over}
    cached = [it for one in caches_of(home).values() for it in one.listed(over, now_s)]
    ended = cache(reader.ended_runs)
    found: dict[RetentionSort, list[RetentionItem]] = {
        **{sort: [] for sort in RetentionSort},
        RetentionSort.OBJECTS: [_object_item(it) for it in objects.values() if it.runs],
        RetentionSort.LOGS: [_run_item(it, objects, ended(it.uid)) for it in logs],
        RetentionSort.OUTPUTS: [_run_item(it, objects, ended(it.uid)) for it in outputs],
        RetentionSort.WORK_DIRECTORIES: [*_work_items(home, objects, cached)],
        RetentionSort.SOURCES: [*_source_items(copies, objects, now_s), *_upload_items(home)],
        RetentionSort.INPUTS: [*_input_items(inputs, objects, now_s)],
        RetentionSort.RUNS: [*_series_items(reader, objects)],
        RetentionSort.EVENTS: [*_event_items(reader, objects)],
        RetentionSort.REUSE: [*_reuse_items(reader, objects)],
        RetentionSort.DELETED: [*_deleted_items(reader)],
    }
    for it in cached:
        if it.sort != RetentionSort.WORK_DIRECTORIES:
            item = RetentionItem(it.key, it.name, it.bytes, it.used_s, it.held)
            found[RetentionSort(it.sort)].append(item)
    return found


def _upload_items(home: Path) -> Iterator[RetentionItem]:
    for name, size, used_s in measure_uploads(home):
        yield RetentionItem(f"{UPLOADS}/{name}", f"sent to namespace {name}", size, used_s, SENT)


def _event_items(reader: Reader, objects: Mapping[str, ObjectState]) -> Iterator[RetentionItem]:
    for uid, size, at_s in reader.events_bytes():
        state = objects.get(uid)
        if state is not None:
            yield RetentionItem(uid, state.key, size, at_s, "" if state.over else NOT_OVER)


def _reuse_items(reader: Reader, objects: Mapping[str, ObjectState]) -> Iterator[RetentionItem]:
    for uid, size, at_s in reader.reuse_bytes():
        state = objects.get(uid)
        if state is not None:
            yield RetentionItem(uid, state.key, size, at_s)


def _deleted_items(reader: Reader) -> Iterator[RetentionItem]:
    for uid, kind, name, namespace, size, gone_s in reader.gone_records():
        yield RetentionItem(uid, object_key(kind, name, namespace), size, gone_s)


def _run_item(
    it: RunFiles,
    objects: Mapping[str, ObjectState],
    ended: Collection[str],
) -> RetentionItem:
    standing = objects.get(it.uid)
    held = "" if it.run in ended else NOT_OVER if standing else UNKNOWN
    name = f"{standing.key if standing else it.uid} {it.run}"
    return RetentionItem(
        it.key,
        name,
        it.bytes,
        it.written_s,
        held,
    )


def _object_item(it: ObjectState) -> RetentionItem:
    held = _explain_retained(it)
    if keeper := find_maker(it.annotations):
        held = held or f"kept by {keeper}"
    return RetentionItem(
        it.uid,
        it.key,
        it.bytes,
        it.since_s,
        held,
    )


def _explain_retained(it: ObjectState) -> str:
    if not it.over:
        return NOT_OVER
    if it.needed_by:
        return f"needed by {it.needed_by[0]}"
    return ""


def _series_items(reader: Reader, objects: Mapping[str, ObjectState]) -> Iterator[RetentionItem]:
    for uid, size in reader.series_bytes().items():
        if uid in objects:
            it = objects[uid]
            yield RetentionItem(
                uid,
                it.key,
                size,
                it.since_s,
                _explain_retained(it),
            )


def _work_items(
    home: Path,
    objects: Mapping[str, ObjectState],
    cached: list[CachedEntry],
) -> Iterator[RetentionItem]:
    """Yields an item for each object: all files of its runs at any provider here, but logs."""
    sizes = {it.key: 0 for it in cached if it.sort == RetentionSort.WORK_DIRECTORIES}
    for it in cached:
        if it.sort == RetentionSort.WORK_DIRECTORIES:
            sizes[it.key] += it.bytes
    for provider in providers_in(home):
        jobs = jobs_dir(home, provider)
        for job in sorted(jobs.iterdir()) if jobs.is_dir() else ():
            if job.name == INTERPRETERS or not job.is_dir():
                continue
            size = sum(disk_usage(one) for one in job.iterdir() if one.name not in KEPT)
            sizes[job.name] = sizes.get(job.name, 0) + size
    for uid, size in sizes.items():
        standing = objects.get(uid)
        if not size:
            continue
        if standing is None:
            yield RetentionItem(
                uid,
                uid,
                size,
                0.0,
                UNKNOWN,
            )
        else:
            held = "" if standing.over else NOT_OVER
            yield RetentionItem(
                uid,
                standing.key,
                size,
                standing.since_s,
                held,
            )


def _source_items(
    copies: list[tuple[str, Path]],
    objects: Mapping[str, ObjectState],
    now_s: float,
) -> Iterator[RetentionItem]:
    """Yields copies that an object names; unnamed ones are deleted anyway, and are not listed."""
    keys = Snapshots(Path())
    users = dict[str, list[ObjectState]]()
    for it in objects.values():
        if REVISION in it.annotations and ORIGIN in it.annotations:
            name = name_of(Path(it.annotations[ORIGIN]))
            users.setdefault(keys.key_of(copy_in(it.annotations), name), []).append(it)
    for key, path in copies:
        if key not in users:
            continue
        needed = [it.key for it in users[key] if not it.over]
        held = f"needed by {needed[0]}" if needed else ""
        used_s = max([path.stat().st_mtime, *(it.since_s for it in users[key])])
        held = held or (NOT_OVER if used_s > now_s - YOUNG_S else "")
        yield RetentionItem(
            key,
            users[key][0].key,
            disk_usage(path),
            used_s,
            held,
        )


def _input_items(
    contents: list[StoredContent],
    objects: Mapping[str, ObjectState],
    now_s: float,
) -> Iterator[RetentionItem]:
    """Yields contents of tasks' files that an object names; unnamed ones are deleted anyway."""
    users = dict[str, list[ObjectState]]()
    for it in objects.values():
        for digest in it.inputs:
            users.setdefault(digest, []).append(it)
    for content in contents:
        named = users.get(content.digest)
        if not named:
            continue
        needed = [it.key for it in named if not it.over]
        held = f"needed by {needed[0]}" if needed else ""
        used_s = max([content.kept_s, *(it.since_s for it in named)])
        held = held or (NOT_OVER if used_s > now_s - YOUNG_S else "")
        yield RetentionItem(
            content.digest,
            f"{named[0].key} {content.digest[:DIGEST_SHOWN]}",
            content.bytes,
            used_s,
            held,
        )


@dataclass(frozen=True, slots=True)
class ObjectState:
    """The status of an object. runs: its kind does work. since_s: when it finished, or was made.
    bytes: approximate size of its records. needed_by: keys of unfinished objects that take input
    from it, or wait for it. inputs: digests of the files that its tasks are made of.
    """

    uid: str
    key: str
    runs: bool
    over: bool
    since_s: float
    bytes: int
    annotations: Mapping[str, str]
    needed_by: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


def read_object_states(reader: Reader) -> dict[str, ObjectState]:
    """Returns by uid all objects that are not being deleted."""
    rows = [it for it in reader.resources(specs=True) if it.deleted_at_s is None]
    live = reader.live_runs()
    sizes = reader.record_bytes()
    statuses = {it.uid: _read_status(it) for it in rows}
    over = {it.uid for it in rows if it.uid not in live and is_over(statuses[it.uid], it)}
    needed = _list_needed(it for it in rows if it.uid not in over)
    found = {}
    for row in rows:
        key = object_key(row.kind, row.name, row.namespace)
        since = statuses[row.uid].get("completionTime")
        found[row.uid] = ObjectState(
            uid=row.uid,
            key=key,
            runs=row.kind in KINDS and KINDS[row.kind].runs,
            over=row.uid in over,
            since_s=float(since) if isinstance(since, int | float) else row.created_at_s,
            bytes=sizes.get(row.uid, 0),
            annotations=row.annotations,
            needed_by=tuple(needed.get(key, ())),
            inputs=digests_in(row.spec or ""),
        )
    return found


def is_over(status: Mapping[str, object], row: ResourceRow) -> bool:
    """Returns true if its newest spec has finished; its runs are not checked."""
    seen = status.get("observedGeneration")
    current = isinstance(seen, int) and seen >= row.generation
    return current and status.get("phase") in TERMINAL_PHASES


def _list_needed(rows: Iterable[ResourceRow]) -> dict[str, list[str]]:
    """Returns dependents by the key of the needed object."""
    found: dict[str, list[str]] = {}
    for row in rows:
        key = object_key(row.kind, row.name, row.namespace)
        for edge in edges_in(_parse_document(row.spec or "{}")):
            found.setdefault(object_key(edge.kind, edge.name, row.namespace), []).append(key)
    return found


def _read_status(row: ResourceRow) -> Mapping[str, object]:
    return _parse_document(row.status or "{}")


def _parse_document(text: str) -> Mapping[str, object]:
    """Parses a status; an unreadable one is empty, so that it counts as unfinished."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if isinstance(found, dict):
        return found
    return {}


class GoingItem(TypedDict):
    """key: by which it is found. why: `maxAge` or `maxSize`. lastUsed: seconds since the epoch."""

    key: str
    name: str
    bytes: int
    lastUsed: float
    why: str


class SortReport(TypedDict):
    """items and bytes: of all items; held: of items that may not be deleted. limits: as in `kind:
    Settings`, seconds and bytes; null: no limit. groupSize: the bytes of all sorts of its group.
    """

    sort: str
    items: int
    bytes: int
    held: int
    limits: Mapping[str, float | int | None]
    goes: list[GoingItem]
    bytesGoing: int


def build_report(found: Mapping[RetentionSort, SortSurvey]) -> list[SortReport]:
    """Returns one report for each sort, in their order."""
    return [_report_sort(it) for it in found.values()]


def _report_sort(it: SortSurvey) -> SortReport:
    return {
        "sort": it.sort.value,
        "items": it.decision.items,
        "bytes": it.decision.bytes,
        "held": it.decision.held,
        "limits": {
            "maxAge": it.limits.max_age_s,
            "maxSize": it.limits.max_bytes,
            "keepLast": it.limits.keep_last,
            **({"groupSize": it.limits.group_bytes} if it.limits.group_bytes is not None else {}),
        },
        "goes": [_report_item(one) for one in it.decision.goes],
        "bytesGoing": it.decision.bytes_going,
    }


def _report_item(it: ExpiredItem) -> GoingItem:
    item = it.item
    return {
        "key": item.key,
        "name": item.name,
        "bytes": item.bytes,
        "lastUsed": item.used_s,
        "why": it.why,
    }

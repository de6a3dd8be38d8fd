"""The CLI's view of the store: read-only, without a controller, and empty where there is no store
yet.

Called by read verbs, whose whole process has some tens of milliseconds. So this file imports no
model, no dataclass and only the standard library; rows are named tuples. It never writes, never
checkpoints and never holds up the writer.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from fleetctl.common import state_paths as places
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.stores import queries
from fleetctl.stores.queries import STATES
from fleetctl.stores.read.connecting import connect_readonly
from fleetctl.stores.read.rows import (
    RUN_COLUMNS,
    CheckpointRow,
    EventLine,
    LiveRunPrices,
    MetricEnd,
    MetricRow,
    NoticeRow,
    ObjectQuery,
    ResourceRow,
    RunRow,
    TaskRow,
    counts_sql,
    page_sql,
)

EVENTS_MAX = 100_000


class Reader:
    """Owns up to two read-only connections, opened when first needed. Raises StoreError throughout
    when the files are damaged, foreign or newer than this program.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._open: dict[str, sqlite3.Connection] = {}

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def resources(
        self,
        kind: str | None = None,
        *,
        specs: bool = False,
        namespace: str | None = None,
    ) -> list[ResourceRow]:
        """Returns all resources of a kind and a namespace, or of all, oldest first; also those
        being deleted.
        """
        query = "resources_and_specs" if specs else "resources"
        return [
            _build_resource(row) for row in self._rows(places.STATE_DB, query, (kind, namespace))
        ]

    def page(self, wanted: ObjectQuery) -> list[tuple[ResourceRow, object, int]]:
        """Returns a page of a list: each resource with its sort value and its row number, which
        the next page comes after."""
        found = self._rows_of(places.STATE_DB, *page_sql(wanted))
        return [(_build_resource(row[:-2]), row[-2], row[-1]) for row in found]

    def phase_counts(self, wanted: ObjectQuery) -> dict[str, int]:
        """Returns the number of objects of a list, by phase."""
        return dict(self._rows_of(places.STATE_DB, *counts_sql(wanted)))

    def marks(self, changed_after: int) -> Iterator[tuple[int, int, int, int]]:
        """Yields (row number, version, change, 1) of all resources that the controller may write by
        itself, and with 0 of others whose spec changed after the change with this number."""
        return self._rows(places.STATE_DB, "marks", (changed_after,))

    def resources_at(self, rids: Collection[int]) -> list[tuple[int, ResourceRow]]:
        """Returns (row number, resource) of these row numbers that are there; at most 500."""
        marks = ", ".join("?" * len(rids))
        sql = queries.read_queries("reader.sql")["resources_at"].replace("?", marks)
        rows = self._rows_of(places.STATE_DB, sql, tuple(rids))
        return [(row[-1], _build_resource(row[:-1])) for row in rows]

    def resource(
        self,
        kind: str,
        name: str,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> ResourceRow | None:
        """Returns a resource with its spec: the living one of that name, else one that is being
        deleted.
        """
        for query in ("resource", "resource_going"):
            for row in self._rows(places.STATE_DB, query, (kind, name, namespace)):
                return _build_resource(row)
        return None

    def names(
        self,
        kind: str,
        begun: str,
        *,
        limit: int,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[str]:
        """Returns the names of the living resources whose name begins so, in alphabetical order."""
        rows = self._rows(places.STATE_DB, "names", (kind, begun, limit, namespace))
        return [name for (name,) in rows]

    def resource_of(self, uid: str) -> ResourceRow | None:
        """Returns the resource with this uid, with its spec; None once its records are gone."""
        for row in self._rows(places.STATE_DB, "resource_of", (uid,)):
            return _build_resource(row)
        return None

    def object_keys(self) -> Iterator[tuple[str, str, str, str]]:
        """Yields uid, kind, name and namespace of every object; streams."""
        return self._rows(places.STATE_DB, "keys", ())

    def all_keys(self) -> Iterator[tuple[str, str, str, str, float | None]]:
        """Yields keys as `object_keys` does, also of deleted objects, with the time of deletion;
        streams.

        A name means the newest object that has it; an older one is reported with its end.
        """
        return self._rows(places.STATE_DB, "all_keys", ())

    def gone(
        self,
        kind: str,
        name: str,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Iterator[tuple[str, str, float]]:
        """Yields uid, displayed name, and end of each object that had this name, the oldest
        first.
        """
        return self._rows(places.STATE_DB, "gone", (kind, name, namespace))

    def gone_since(self, at_s: float) -> Iterator[tuple[str, str, str, str, float]]:
        """Yields (uid, kind, name, namespace, end) of objects that are gone since a time, in the
        order of their ends."""
        return self._rows(places.STATE_DB, "gone_since", (at_s,))

    def namespaces(self) -> Iterator[tuple[str, str, int]]:
        """Yields (namespace, kind, how many) of all objects."""
        return self._rows(places.STATE_DB, "namespaces", ())

    def runs(
        self,
        uid: str,
        *,
        states: Collection[str] | None = None,
        index: int | None = None,
    ) -> Iterator[RunRow]:
        """Yields every attempt, by index and attempt; streams."""
        wanted = (uid, index, _states_mask(states), 0)
        return (_build_run(row) for row in self._rows(places.STATE_DB, "runs", wanted))

    def tasks(
        self,
        uid: str,
        *,
        states: Collection[str] | None = None,
        index: int | None = None,
        results: bool = False,
        begin: int = 0,
    ) -> Iterator[TaskRow]:
        """Yields the newest attempt of each index from `begin` on whose state is in `states`;
        streams.

        Results are read only on request: they can be long.
        """
        query = "runs_and_results" if results else "runs"
        rows = self._rows(places.STATE_DB, query, (uid, index, _states_mask(None), begin))
        wanted = _states_mask(states)
        for _, group in groupby(rows, key=lambda row: row[0]):
            *older, newest = group
            if (1 << newest[2]) & wanted:
                result = newest[RUN_COLUMNS] if results else None
                before = tuple(_build_run(row[:RUN_COLUMNS]) for row in older)
                yield TaskRow(_build_run(newest[:RUN_COLUMNS]), len(older) + 1, result, before)

    def run(self, name: str) -> RunRow | None:
        for row in self._rows(places.STATE_DB, "run", (name,)):
            return _build_run(row)
        return None

    def owner_of(self, run: str) -> str | None:
        """Returns the uid of the object that a run was made for; None when that is gone."""
        for (uid,) in self._rows(places.STATE_DB, "owner_of", (run,)):
            return str(uid)
        return None

    def metrics(self, run: str) -> Iterator[MetricRow]:
        """Yields the reports of a run, in order; streams."""
        return map(MetricRow._make, self._rows(places.STATE_DB, "metrics", (run,)))

    def samples(self, run: str) -> Iterator[MetricRow]:
        """Yields the samples of a run's machine, in order; streams."""
        return map(MetricRow._make, self._rows(places.STATE_DB, "samples", (run,)))

    def checkpoints(self, uid: str) -> Iterator[CheckpointRow]:
        """Yields the checkpoints of all attempts, the newest last; streams."""
        return map(CheckpointRow._make, self._rows(places.STATE_DB, "checkpoints", (uid,)))

    def resumed_steps(self, uid: str) -> set[int]:
        """Returns the steps of checkpoints from which attempts began."""
        return {step for (step,) in self._rows(places.STATE_DB, "resumed_steps", (uid,))}

    def metric_ends(self, run: str) -> list[MetricEnd]:
        """Returns the last report of each metric, sorted by name."""
        return [
            MetricEnd._make(row[:5]) for row in self._rows(places.STATE_DB, "metric_ends", (run,))
        ]

    def metric_names(self, run: str) -> list[str]:
        """Returns the metrics that it reported, in alphabetical order."""
        return [str(name) for (name,) in self._rows(places.STATE_DB, "metric_names", (run,))]

    def points(self, run: str, name: str) -> Iterator[tuple[int, float | None, float]]:
        """Yields (step, value or None if not a number, seconds since the epoch) of each report of a
        metric, in order; streams.
        """
        return iter(self._rows(places.STATE_DB, "points", (run, name)))

    def live_runs(self) -> dict[str, int]:
        """Returns how many runs hold a sandbox now, by resource uid; uids without one are
        absent.
        """
        return dict(self._rows(places.STATE_DB, "live_runs", ()))

    def runs_by_state(self) -> Iterator[tuple[str, str, int, float | None]]:
        """Yields (provider, state, how many, USD a second of the live ones) of all runs."""
        for provider, state, many, usd in self._rows(places.STATE_DB, "runs_by_state", ()):
            yield provider, STATES[state], many, usd

    def ended_runs(self, uid: str) -> set[str]:
        """Returns names of the runs of a resource that have ended and hold no sandbox."""
        return {str(name) for (name,) in self._rows(places.STATE_DB, "ended_runs", (uid,))}

    def record_bytes(self) -> dict[str, int]:
        """Returns the approximate size of each object's records in the store, by uid. Reads all of
        them.
        """
        return dict(self._rows(places.STATE_DB, "record_bytes", ()))

    def series_bytes(self) -> dict[str, int]:
        """Returns the approximate size of each object's metrics, without the last of each; by
        uid.
        """
        return dict(self._rows(places.STATE_DB, "series_bytes", ()))

    def events_bytes(self) -> Iterator[tuple[str, int, float]]:
        """Yields (uid, bytes, time of the newest) of all objects with more than one event."""
        return self._rows(places.EVENTS_DB, "events_bytes", ())

    def reuse_bytes(self) -> Iterator[tuple[str, int, float]]:
        """Yields (uid of the object, bytes, time of the newest) of results that can be reused."""
        return self._rows(places.STATE_DB, "reuse_bytes", ())

    def gone_records(self) -> Iterator[tuple[str, str, str, str, int, float]]:
        """Yields (uid, kind, name as it is shown, namespace, bytes, end) of every deleted
        object.
        """
        return self._rows(places.STATE_DB, "gone_records", ())

    def live_prices(self, uid: str, now_s: float) -> LiveRunPrices:
        for row in self._rows(places.STATE_DB, "live_prices", (uid, now_s)):
            return LiveRunPrices._make(row)
        return LiveRunPrices(0, 0.0, 0.0, 0)

    def durations(self, uid: str, *, limit: int) -> list[float]:
        """Returns how many seconds the newest successful runs took."""
        rows = self._rows(places.STATE_DB, "durations_of_object", (uid, limit))
        return [seconds for (seconds,) in rows]

    def durations_in_queue(self, queue: str, *, limit: int) -> list[float]:
        """Returns the seconds of the newest runs that succeeded in the queue, of any object."""
        begins = f'{{"queue":"{queue}",%'
        rows = self._rows(places.STATE_DB, "durations_of_queue", (begins, limit))
        return [seconds for (seconds,) in rows]

    def events(
        self,
        uid: str | None = None,
        *,
        since_s: float = 0.0,
        limit: int = EVENTS_MAX,
    ) -> list[EventLine]:
        """Returns the newest `limit` events of an object, or of all; oldest first."""
        query = "events" if uid is None else "events_of"
        wanted = (since_s, limit) if uid is None else (uid, since_s, limit)
        rows = list(map(EventLine._make, self._rows(places.EVENTS_DB, query, wanted)))
        rows.reverse()
        return rows

    def notices(self, uid: str | None = None) -> list[NoticeRow]:
        """Returns notices of an object, or of all, oldest first."""
        query, wanted = ("notices", ()) if uid is None else ("notices_of", (uid,))
        return list(map(NoticeRow._make, self._rows(places.STATE_DB, query, wanted)))

    def held_sandboxes(self) -> Iterator[tuple[str, str, str]]:
        """Yields (run, sandbox, handle) of every run that holds a sandbox now."""
        for name, sandbox, handle in self._rows(places.STATE_DB, "held", ()):
            yield name, name if sandbox is None else sandbox, handle

    def store_id(self) -> str:
        """Returns the id of the store, which our sandboxes carry in a tag; "" while there is no
        store.
        """
        return next((str(row[0]) for row in self._rows(places.STATE_DB, "store_id", ())), "")

    def data_version(self) -> tuple[int, int]:
        """Returns a pair that differs from this Reader's last one when either file changed. Takes
        microseconds.
        """
        state, events = (
            self._rows_of(file, "PRAGMA data_version", ())
            for file in (places.STATE_DB, places.EVENTS_DB)
        )
        return next(iter(state), (-1,))[0], next(iter(events), (-1,))[0]

    def _rows(
        self,
        file: str,
        query: str,
        parameters: tuple[object, ...],
    ) -> Iterator[tuple[Any, ...]]:
        return self._rows_of(file, queries.read_queries("reader.sql")[query], parameters)

    def _rows_of(
        self,
        file: str,
        sql: str,
        parameters: tuple[object, ...],
    ) -> Iterator[tuple[Any, ...]]:
        path = self._home / file
        try:
            connection = self._connection(file, path)
            if connection is not None:
                # `yield from` would close the cursor of a Reader that is closed already.
                for row in connection.execute(sql, parameters):  # noqa: UP028
                    yield row
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # Imported here: it brings in the models, which reading does without.
            from fleetctl.stores.sqlite_errors import explain_error

            raise explain_error(error, path) from error

    def _connection(self, file: str, path: Path) -> sqlite3.Connection | None:
        """Returns a connection that cannot write; None while there is no store, or while its writer
        is about to found it.
        """
        if file not in self._open:
            connection = connect_readonly(path)
            if connection is None:
                return None
            self._open[file] = connection
        return self._open[file]


def _states_mask(states: Iterable[str] | None) -> int:
    if states is None:
        return (1 << len(STATES)) - 1
    return sum(1 << STATES.index(state) for state in set(states))


def _build_resource(row: tuple[Any, ...]) -> ResourceRow:
    *columns, labels, annotations, status, spec, namespace = row
    texts = (_parse_texts(labels), _parse_texts(annotations))
    return ResourceRow._make((*columns, *texts, status, spec, namespace))


def _parse_texts(stored: str) -> dict[str, str]:
    """Returns labels or annotations; empty if the stored text is unreadable."""
    if stored == "{}":
        return {}
    try:
        found = json.loads(stored)
    except (ValueError, TypeError, RecursionError):
        return {}
    if isinstance(found, dict):
        return found
    return {}


def _build_run(row: tuple[Any, ...]) -> RunRow:
    *columns, usd, params, placed, content, wandb, hint = row
    index, attempt, state, name, provider, sandbox, *rest, sandbox_open = columns
    sandbox = name if sandbox is None else sandbox
    begun = (index, attempt, STATES[state], name, provider, sandbox)
    texts = (placed or "", content or "", wandb or "", hint or "")
    return RunRow._make((*begun, *rest, bool(sandbox_open), params, usd, *texts))

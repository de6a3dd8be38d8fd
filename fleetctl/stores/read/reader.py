"""The CLI's view of the store: read-only, without a controller, and empty where there is no store
yet.

Called by read verbs, whose whole process has some tens of milliseconds. So this file imports no
model, no dataclass and nothing outside the standard library; rows are named tuples. It never
writes, never checkpoints and never holds up the writer.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from fleetctl.common import home as places
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.stores import queries
from fleetctl.stores.codes import STATES
from fleetctl.stores.read.connecting import connect_readonly
from fleetctl.stores.read.rows import (
    RUN_COLUMNS,
    CheckpointRow,
    EventLine,
    LivePrices,
    MetricEnd,
    MetricRow,
    NoticeRow,
    ResourceRow,
    RunRow,
    TaskRow,
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
        self, kind: str | None = None, *, specs: bool = False, namespace: str | None = None
    ) -> list[ResourceRow]:
        """All resources of a kind and a namespace, or of all, oldest first; also those being
        deleted.
        """
        query = "resources_and_specs" if specs else "resources"
        return [_resource(row) for row in self._rows(places.STATE_DB, query, (kind, namespace))]

    def resource(
        self, kind: str, name: str, namespace: str = DEFAULT_NAMESPACE
    ) -> ResourceRow | None:
        """One, with its spec: the living one of that name, else one that is being deleted."""
        for query in ("resource", "resource_going"):
            for row in self._rows(places.STATE_DB, query, (kind, name, namespace)):
                return _resource(row)
        return None

    def names(
        self, kind: str, begun: str, *, limit: int, namespace: str = DEFAULT_NAMESPACE
    ) -> list[str]:
        """The names of the living resources whose name begins so, in alphabetical order."""
        rows = self._rows(places.STATE_DB, "names", (kind, begun, limit, namespace))
        return [name for (name,) in rows]

    def resource_of(self, uid: str) -> ResourceRow | None:
        """The one with this uid, with its spec; None once nothing of it is left."""
        for row in self._rows(places.STATE_DB, "resource_of", (uid,)):
            return _resource(row)
        return None

    def object_keys(self) -> Iterator[tuple[str, str, str, str]]:
        """uid, kind, name and namespace of every object; streams."""
        return self._rows(places.STATE_DB, "keys", ())

    def all_keys(self) -> Iterator[tuple[str, str, str, str, float | None]]:
        """As `object_keys`, also of objects that are gone, with the time when they went; streams.

        A name means the newest object that has it; of older ones it is told with its end.
        """
        return self._rows(places.STATE_DB, "all_keys", ())

    def gone(
        self, kind: str, name: str, namespace: str = DEFAULT_NAMESPACE
    ) -> Iterator[tuple[str, str, float]]:
        """uid, name as it is shown, and end of each object that had this name, the oldest first."""
        return self._rows(places.STATE_DB, "gone", (kind, name, namespace))

    def namespaces(self) -> Iterator[tuple[str, str, int]]:
        """(namespace, kind, how many) of all that is there."""
        return self._rows(places.STATE_DB, "namespaces", ())

    def runs(
        self, uid: str, *, states: Collection[str] | None = None, index: int | None = None
    ) -> Iterator[RunRow]:
        """Every attempt, by index and attempt; streams."""
        wanted = (uid, index, _mask(states))
        return (_run(row) for row in self._rows(places.STATE_DB, "runs", wanted))

    def tasks(
        self,
        uid: str,
        *,
        states: Collection[str] | None = None,
        index: int | None = None,
        results: bool = False,
    ) -> Iterator[TaskRow]:
        """The newest attempt of each index whose state is in `states`; streams.

        Results are read only when asked for: they can be long.
        """
        query = "runs_and_results" if results else "runs"
        rows = self._rows(places.STATE_DB, query, (uid, index, _mask(None)))
        wanted = _mask(states)
        for _, group in groupby(rows, key=lambda row: row[0]):
            *older, newest = group
            if (1 << newest[2]) & wanted:
                result = newest[RUN_COLUMNS] if results else None
                before = tuple(_run(row[:RUN_COLUMNS]) for row in older)
                yield TaskRow(_run(newest[:RUN_COLUMNS]), len(older) + 1, result, before)

    def run(self, name: str) -> RunRow | None:
        for row in self._rows(places.STATE_DB, "run", (name,)):
            return _run(row)
        return None

    def owner_of(self, run: str) -> str | None:
        """The uid of the object that a run was made for; None when that is gone."""
        for (uid,) in self._rows(places.STATE_DB, "owner_of", (run,)):
            return str(uid)
        return None

    def metrics(self, run: str) -> Iterator[MetricRow]:
        """What a run reported, in its order; streams."""
        return map(MetricRow._make, self._rows(places.STATE_DB, "metrics", (run,)))

    def checkpoints(self, uid: str) -> Iterator[CheckpointRow]:
        """The checkpoints of all attempts, the newest last; streams."""
        return map(CheckpointRow._make, self._rows(places.STATE_DB, "checkpoints", (uid,)))

    def metric_ends(self, run: str) -> list[MetricEnd]:
        """The last report of each metric, sorted by name."""
        return [
            MetricEnd._make(row[:5]) for row in self._rows(places.STATE_DB, "metric_ends", (run,))
        ]

    def metric_names(self, run: str) -> list[str]:
        """What it reported, in alphabetical order."""
        return [str(name) for (name,) in self._rows(places.STATE_DB, "metric_names", (run,))]

    def points(self, run: str, name: str) -> Iterator[tuple[int, float | None, float]]:
        """(step, value or None for what is not a number, seconds since the epoch) of each report of
        a metric, in its order; streams.
        """
        return iter(self._rows(places.STATE_DB, "points", (run, name)))

    def live_runs(self) -> dict[str, int]:
        """How many runs hold a sandbox now, by resource uid; uids without one are absent."""
        return dict(self._rows(places.STATE_DB, "live_runs", ()))

    def ended_runs(self, uid: str) -> set[str]:
        """Names of the runs of a resource that are over and hold no sandbox."""
        return {str(name) for (name,) in self._rows(places.STATE_DB, "ended_runs", (uid,))}

    def record_bytes(self) -> dict[str, int]:
        """About what the records of each object take in the store, by uid. Reads all of them."""
        return dict(self._rows(places.STATE_DB, "record_bytes", ()))

    def series_bytes(self) -> dict[str, int]:
        """About what the metrics of each object take, without the last of each; by uid."""
        return dict(self._rows(places.STATE_DB, "series_bytes", ()))

    def events_bytes(self) -> Iterator[tuple[str, int, float]]:
        """(uid, bytes, time of the newest) of all that have more than one event."""
        return self._rows(places.EVENTS_DB, "events_bytes", ())

    def reuse_bytes(self) -> Iterator[tuple[str, int, float]]:
        """(uid of the object, bytes, time of the newest) of results that can be reused."""
        return self._rows(places.STATE_DB, "reuse_bytes", ())

    def gone_records(self) -> Iterator[tuple[str, str, str, str, int, float]]:
        """(uid, kind, name as it is shown, namespace, bytes, end) of every object that is gone."""
        return self._rows(places.STATE_DB, "gone_records", ())

    def live_prices(self, uid: str, now_s: float) -> LivePrices:
        for row in self._rows(places.STATE_DB, "live_prices", (uid, now_s)):
            return LivePrices._make(row)
        return LivePrices(0, 0.0, 0.0, 0)

    def durations(self, uid: str, *, limit: int) -> list[float]:
        """How many seconds the newest runs took that succeeded."""
        rows = self._rows(places.STATE_DB, "durations_of_object", (uid, limit))
        return [seconds for (seconds,) in rows]

    def durations_in_queue(self, queue: str, *, limit: int) -> list[float]:
        """Seconds that the newest runs took which succeeded in it, whoever's they were."""
        begins = f'{{"queue":"{queue}",%'
        rows = self._rows(places.STATE_DB, "durations_of_queue", (begins, limit))
        return [seconds for (seconds,) in rows]

    def events(
        self, uid: str | None = None, *, since_s: float = 0.0, limit: int = EVENTS_MAX
    ) -> list[EventLine]:
        """The newest `limit` events of one object, or of all; oldest first."""
        query = "events" if uid is None else "events_of"
        wanted = (since_s, limit) if uid is None else (uid, since_s, limit)
        rows = list(map(EventLine._make, self._rows(places.EVENTS_DB, query, wanted)))
        rows.reverse()
        return rows

    def notices(self, uid: str | None = None) -> list[NoticeRow]:
        """Of one object, or of all, oldest first."""
        query, wanted = ("notices", ()) if uid is None else ("notices_of", (uid,))
        return list(map(NoticeRow._make, self._rows(places.STATE_DB, query, wanted)))

    def held(self) -> Iterator[tuple[str, str, str]]:
        """(run, sandbox, handle) of every run that holds a sandbox now."""
        for name, sandbox, handle in self._rows(places.STATE_DB, "held", ()):
            yield name, name if sandbox is None else sandbox, handle

    def store_id(self) -> str:
        """The id of the store, which our sandboxes carry in a tag; "" while there is no store."""
        return next((str(row[0]) for row in self._rows(places.STATE_DB, "store_id", ())), "")

    def data_version(self) -> tuple[int, int]:
        """Differs from this Reader's last answer when either file changed. Takes microseconds."""
        state, events = (
            self._rows_of(file, "PRAGMA data_version", ())
            for file in (places.STATE_DB, places.EVENTS_DB)
        )
        return next(iter(state), (-1,))[0], next(iter(events), (-1,))[0]

    def _rows(
        self, file: str, query: str, parameters: tuple[object, ...]
    ) -> Iterator[tuple[Any, ...]]:
        return self._rows_of(file, queries.named("reader.sql")[query], parameters)

    def _rows_of(
        self, file: str, sql: str, parameters: tuple[object, ...]
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
            from fleetctl.stores.errors import explain

            raise explain(error, path) from error

    def _connection(self, file: str, path: Path) -> sqlite3.Connection | None:
        """A connection that cannot write; None while there is no store, or while its writer is
        about to found it.
        """
        if file not in self._open:
            connection = connect_readonly(path)
            if connection is None:
                return None
            self._open[file] = connection
        return self._open[file]


def _mask(states: Iterable[str] | None) -> int:
    if states is None:
        return (1 << len(STATES)) - 1
    return sum(1 << STATES.index(state) for state in set(states))


def _resource(row: tuple[Any, ...]) -> ResourceRow:
    *columns, labels, annotations, status, spec, namespace = row
    texts = (_texts(labels), _texts(annotations))
    return ResourceRow._make((*columns, *texts, status, spec, namespace))


def _texts(stored: str) -> dict[str, str]:
    """Labels or annotations; none where what is stored cannot be read."""
    if stored == "{}":
        return {}
    try:
        found = json.loads(stored)
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _run(row: tuple[Any, ...]) -> RunRow:
    *columns, usd, params, placed, content, wandb = row
    index, attempt, state, name, provider, sandbox, *rest, sandbox_open = columns
    sandbox = name if sandbox is None else sandbox
    begun = (index, attempt, STATES[state], name, provider, sandbox)
    texts = (placed or "", content or "", wandb or "")
    return RunRow._make((*begun, *rest, bool(sandbox_open), params, usd, *texts))

"""Resources in SQLite: specs and their status, deleted objects for as long as their records stay,
and the objects that a controller need not look at.

A deletion moves one row; the object's runs, results and metrics stay where they are. They are
removed later in small steps, so that no tick of the controller waits for them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from fleetctl.common.errors import Conflict
from fleetctl.controllers.model import Resource
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.stores.base import GoneStore, ResourceStore, SleepStore
from fleetctl.stores.sqlite.events import drop_events, rename_events
from fleetctl.stores.sqlite.store_session import Row, StoreSession

# The most rows that a step removes: some milliseconds.
STEP_RUNS_MAX = 500
STEP_METRICS_MAX = 10_000


class SqliteResources:
    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._sql = session.sql

    def get(
        self,
        kind: str,
        name: str,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Resource | None:
        rows = self._session.read("get_resource", (kind, name, namespace))
        if rows:
            return _to_resource(rows[0])
        return None

    def of(self, uid: str) -> Resource | None:
        rows = self._session.read("resource_of", (uid,))
        if rows:
            return _to_resource(rows[0])
        return None

    def living(self, kind: str) -> Sequence[Resource]:
        return [_to_resource(row) for row in self._session.read("living_resources", (kind,))]

    def naming(self, text: str) -> Sequence[Resource]:
        return [_to_resource(row) for row in self._session.read("resources_naming", (text,))]

    def annotations(self) -> Sequence[dict[str, str]]:
        return [json.loads(text) for (text,) in self._session.read("annotations")]

    def list(self) -> Sequence[Resource]:
        return [_to_resource(row) for row in self._session.read("list_resources")]

    def put(self, resource: Resource, *, expected_version: int | None) -> Resource:
        if expected_version is None:
            return self._create(resource)
        return self._replace(resource, expected_version)

    def _create(self, new: Resource) -> Resource:
        state = self._session.writing()
        row = (
            new.uid,
            new.kind,
            new.name,
            new.generation,
            self._session.next_change(),
            new.created_at_s,
            new.deleted_at_s,
            _format_labels(new.labels),
            _format_labels(new.annotations),
            new.status,
            new.namespace,
        )
        try:
            rid = state.execute(self._sql["insert_resource"], row).lastrowid
        except sqlite3.IntegrityError as error:
            raise _name_taken(new) from error
        state.execute(self._sql["insert_spec"], (rid, new.spec))
        make_way(
            self._session,
            new.uid,
            new.kind,
            new.namespace,
            new.name,
        )
        return replace(new, version=1)

    def _replace(self, new: Resource, expected_version: int) -> Resource:
        state = self._session.writing()
        stored = state.execute(self._sql["stored_resource"], (new.uid,)).fetchone()
        if stored is None or stored[1] != expected_version:
            raise Conflict(
                f"{new.key} changed after you read it",
                hint=f"run `fleetctl get {new.key} -o yaml`, edit that, and apply again",
            )
        rid, version, status, created_at_s, deleted_at_s, name = stored
        if deleted_at_s is None:
            deleted_at_s = new.deleted_at_s
        try:
            state.execute(
                self._sql["replace_resource"],
                (
                    new.name, new.generation, version + 1, self._session.next_change(),
                    deleted_at_s, _format_labels(new.labels), _format_labels(new.annotations), rid,
                ),
            )  # fmt: skip
        except sqlite3.IntegrityError as error:
            raise _name_taken(new) from error
        state.execute(self._sql["replace_spec"], (new.spec, rid))
        if name != new.name:
            clear_name(self._session, new.kind, new.namespace, new.name)
        return replace(
            new,
            version=version + 1,
            status=status,
            created_at_s=created_at_s,
            deleted_at_s=deleted_at_s,
        )

    def put_status(
        self,
        uid: str,
        status: str,
        *,
        expected_version: int,
    ) -> int | None:
        state = self._session.writing()
        done = state.execute(self._sql["put_status"], (status, uid, expected_version))
        if done.rowcount == 1:
            return expected_version + 1
        return None

    def delete(self, uid: str) -> None:
        state = self._session.writing()
        found = state.execute(self._sql["rid_of"], (uid,)).fetchone()
        if found is None:
            return
        bury_resource(self._session, uid, found[0])
        self._session.next_change()

    def watch(self, after: int) -> tuple[int, Sequence[Resource]]:
        counter = self._session.changes
        if counter == after:
            return counter, []
        rows = self._session.read("changed_resources", (after,))
        return counter, [_to_resource(row) for row in rows]


def _name_taken(new: Resource) -> Conflict:
    return Conflict(f"{new.key} exists already", hint=f"run `fleetctl get {new.key}` to see it")


def _format_labels(labels: dict[str, str]) -> str:
    if not labels:
        return "{}"
    text = json.dumps(labels, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a path of this machine may be no UTF-8
        return json.dumps(labels)
    return text


def _to_resource(row: Row) -> Resource:
    uid, kind, name, generation, version, spec, status, labels, annotations, *times = row
    texts = {} if labels == "{}" else json.loads(labels)
    fields = {} if annotations == "{}" else json.loads(annotations)
    return Resource(
        uid,
        kind,
        name,
        generation,
        version,
        spec,
        status,
        texts,
        fields,
        *times,
    )


_: type[ResourceStore] = SqliteResources


class SqliteGone:
    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._sql = session.sql

    def forget(
        self,
        *,
        until_s: float,
        bytes_max: int,
        objects_max: int,
    ) -> bool:
        state = self._session.writing()
        oldest = state.execute(self._sql["oldest_gone"]).fetchone()
        if oldest is None:
            return False
        rid, uid, gone_at_s = oldest
        if gone_at_s > until_s:
            objects, size = state.execute(self._sql["sum_gone"]).fetchone()
            if objects <= objects_max and size <= bytes_max:
                return False
        parts = {
            "thin_metrics": STEP_METRICS_MAX,
            "thin_checkpoints": STEP_METRICS_MAX,
            "thin_calls": STEP_RUNS_MAX,
        }
        for query, most in (*parts.items(), ("thin_results", STEP_RUNS_MAX)):
            if state.execute(self._sql[query], (rid, most)).rowcount == most:
                return True
        if state.execute(self._sql["thin_runs"], (rid, STEP_RUNS_MAX)).rowcount == STEP_RUNS_MAX:
            return True
        state.execute(self._sql["forget_gone"], (rid,))
        self._session.event_writes.append(lambda events: drop_events(events, uid))
        return True


def bury_resource(
    session: StoreSession,
    uid: str,
    rid: int,
) -> None:
    """Moves the row from `resources` to `gone`. None of its runs may hold a sandbox any more; a run
    that is still recorded so is ended, as no pass would look after it again.
    """
    state = session.writing()
    sql = session.sql
    now_s = session.now_s()
    state.execute(sql["end_runs"], (now_s, rid))
    state.execute(sql["bury"], (now_s, rid))
    for query in ("drop_spec", "drop_resource"):
        state.execute(sql[query], (rid,))
    kind, namespace, name = state.execute(sql["gone_key"], (rid,)).fetchone()
    living = state.execute(sql["is_named"], (kind, namespace, name)).fetchone() is not None
    state.execute(sql["retitle_gone"], (kind, namespace, name, None if living else rid))
    session.rids.pop(uid, None)


def make_way(
    session: StoreSession,
    uid: str,
    kind: str,
    namespace: str,
    name: str,
) -> None:
    """Frees the name for a new object, and perhaps the uid of a deleted one: that of an adopted
    sandbox, whose files lie under it. The old records stay, under names that are not used.
    """
    state = session.writing()
    sql = session.sql
    clear_name(session, kind, namespace, name)
    known = state.execute(sql["gone_of"], (uid,)).fetchone()
    if known is None:
        return
    (rid,) = known
    past = f"{uid}~{rid}"
    state.execute(sql["rename_gone"], (past, rid))
    state.execute(sql["rename_runs"], (f"~{rid}", rid))
    session.event_writes.append(lambda events: rename_events(events, uid, past))


def clear_name(
    session: StoreSession,
    kind: str,
    namespace: str,
    name: str,
) -> None:
    """Renames deleted objects as a living object has this name: they are shown with their end."""
    session.writing().execute(session.sql["retitle_gone"], (kind, namespace, name, None))


__: type[GoneStore] = SqliteGone


class SqliteSleep:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def put(
        self,
        uid: str,
        *,
        until_s: float | None,
        expected_version: int,
    ) -> bool:
        writing = self._session.writing()
        sql = self._session.sql
        self._session.rids.pop(uid, None)  # a sleeping object is not looked up by its runs
        done = writing.execute(sql["sleep"], (until_s, uid, expected_version))
        return done.rowcount == 1

    def awake(self, now_s: float) -> Sequence[str]:
        return [uid for (uid,) in self._session.read("awake", (now_s,))]

    def next_at_s(self, now_s: float) -> float | None:
        ((at_s,),) = self._session.read("next_wake", (now_s,))
        if at_s is None:
            return None
        return float(at_s)


___: type[SleepStore] = SqliteSleep

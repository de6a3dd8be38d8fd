"""Resources in SQLite: specs and their status. Part of the SQLite store; see stores/base.py."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from fleetctl.common.errors import Conflict
from fleetctl.controllers.model import Resource
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.stores.base import ResourceStore
from fleetctl.stores.sqlite.gone import bury_resource, clear_name, make_way
from fleetctl.stores.sqlite.store_session import Row, StoreSession


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

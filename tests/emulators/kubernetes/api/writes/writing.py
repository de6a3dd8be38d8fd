"""Creating and changing objects, for clients and for the cluster's own controllers alike."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.emulators.kubernetes.api.writes.schemas import Schemas
from tests.emulators.kubernetes.apply.managed import Owner, track_update
from tests.emulators.kubernetes.schema.kinds import Kind, kind_of
from tests.emulators.kubernetes.schema.names import generated, metadata_problems
from tests.emulators.kubernetes.schema.pruning import set_defaults
from tests.emulators.kubernetes.schema.validation import Cause, cause, invalid_value, validate
from tests.emulators.kubernetes.store.errors import (
    ApiError,
    already_exists,
    conflict,
    forbidden,
    invalid,
    modified,
    not_found,
)
from tests.emulators.kubernetes.store.objects import Entry, Store
from tests.emulators.kubernetes.store.resources import Resource, Resources
from tests.emulators.kubernetes.store.times import now_text

Object = dict[str, Any]
NAMESPACES = ("", "namespaces")
OBJECT_BYTES_MAX = 1536 * 1024  # etcd's limit of a request


@dataclass(frozen=True, slots=True)
class Options:
    """How one write is made. manager "": the cluster itself, which leaves no trace of fields."""

    manager: str = ""
    dry_run: bool = False
    version: str = ""
    subresource: str = ""
    applied: bool = False  # its fields have their owners already
    check: Callable[[str, Entry | None], None] = field(default=lambda _what, _entry: None)


QUIET = Options()


class Writer:
    """Every write is whole between two awaits."""

    def __init__(self, store: Store, resources: Resources, schemas: Schemas) -> None:
        self.store, self.resources, self.schemas = store, resources, schemas
        self.admission: list[Callable[[Resource, Object], None]] = []

    def create(self, resource: Resource, body: Object, options: Options = QUIET) -> Entry:
        """`body` becomes the server's. Raises ApiError."""
        metadata = body.setdefault("metadata", {})
        self._namespace_is_there(resource, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = generated(metadata["generateName"])
        kind = kind_of(resource.key, custom=resource.definition is not None)
        version = options.version or resource.version
        node = self.schemas.of(resource, version)
        for name in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
            if name == "resourceVersion" and metadata.get(name):
                raise ApiError(400, "resourceVersion should not be set on objects to be created")
            metadata.pop(name, None)
        metadata["uid"], metadata["creationTimestamp"] = str(uuid.uuid4()), now_text()
        if kind.generation:
            metadata["generation"] = 1
        if self._has_status(resource, version):
            body.pop("status", None)
        self._defaults(kind, body, node, resource)
        if metadata.get("name"):
            kind.prepare(body)
            for admit in self.admission:
                admit(resource, body)
        self._refuse(resource, body, [*self._problems(resource, kind, body, node)])
        name = metadata["name"]
        if self.store.get(resource.key, metadata.get("namespace", ""), name) is not None:
            raise already_exists(resource.plural, resource.group, name)
        return self._saved(resource, None, body, options)

    def update(
        self,
        resource: Resource,
        current: Entry,
        body: Object,
        options: Options = QUIET,
    ) -> Entry:
        """Replace `current`, which is the store's, by `body`. Raises ApiError."""
        old = current.object
        metadata = body.setdefault("metadata", {})
        name = old["metadata"]["name"]
        uid = metadata.get("uid")
        if uid and uid != old["metadata"]["uid"]:
            why = (
                f"Precondition failed: UID in precondition: {uid}, UID in object meta:"
                f" {old['metadata']['uid']}"
            )
            raise conflict(resource.plural, resource.group, name, why)
        version = str(metadata.get("resourceVersion") or "")
        if version and version != str(current.rv):
            raise modified(resource.plural, resource.group, name)
        if not version and resource.definition is not None:
            detail = "must be specified for an update"
            problem = invalid_value("metadata.resourceVersion", 0, detail)
            problem["message"] = f"Invalid value: 0x0: {detail}"
            raise invalid(resource.kind, resource.group, name, [problem])
        kind = kind_of(resource.key, custom=resource.definition is not None)
        served = options.version or resource.version
        node = self.schemas.of(resource, served)
        body = self._confined(resource, old, body, options)
        self._defaults(kind, body, node, resource)
        problems = [*self._problems(resource, kind, body, node, old=old)]
        if options.subresource != "status":
            problems += kind.changes(old, body)
        problems += _finalizer_problems(old, body)
        self._refuse(resource, body, problems)
        if kind.generation and options.subresource != "status" and _desired(old) != _desired(body):
            body["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        return self._saved(resource, current, body, options)

    def change(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        how: Callable[[Object], None],
        options: Options = QUIET,
    ) -> Entry | None:
        """For controllers: change the newest state; None when there is no such object. `how` gets
        an object whose top, metadata and status may be changed; what is below is to be replaced.
        """
        current = self.store.get(resource.key, namespace, name)
        if current is None:
            return None
        old = current.object
        body = {**old, "metadata": dict(old["metadata"])}
        if "status" in old:
            body["status"] = dict(old["status"])
        how(body)
        if body == old:
            return current
        if options.manager:
            node = self.schemas.of(resource, resource.version)
            owner = Owner(options.manager, "Update", resource.api_version(), options.subresource)
            track_update(old, body, owner, node=node, now=now_text())
        if _is_over(body):
            return self.store.remove(resource.key, current)
        return self.store.put(resource.key, body)

    def _namespace_is_there(self, resource: Resource, metadata: Object) -> None:
        if not resource.namespaced:
            metadata.pop("namespace", None)
            return
        namespace = metadata.get("namespace", "")
        found = self.store.get(NAMESPACES, "", namespace)
        if found is None:
            raise not_found("namespaces", "", namespace)
        if found.object["metadata"].get("deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {namespace} because it is being"
                " terminated"
            )
            error = forbidden(resource.plural, resource.group, metadata.get("name", ""), why)
            reason = {"reason": "NamespaceTerminating", "field": "metadata.namespace"}
            said = f"namespace {namespace} is being terminated"
            assert error.details is not None
            error.details["causes"] = [{**reason, "message": said}]
            raise error

    def _has_status(self, resource: Resource, version: str) -> bool:
        return "status" in resource.subresources

    def _defaults(self, kind: Kind, body: Object, node: Object, resource: Resource) -> None:
        if resource.definition is not None:
            for name, one in node.get("properties", {}).items():
                if name == "metadata":
                    continue
                part = {name: body[name]} if name in body else {}
                set_defaults(part, {"properties": {name: one}})
                body.update(part)
        kind.default(body)

    def _problems(
        self,
        resource: Resource,
        kind: Kind,
        body: Object,
        node: Object,
        *,
        old: Object | None = None,
    ) -> list[Cause]:
        found = [*metadata_problems(resource, body["metadata"])] if old is None else []
        if resource.definition is not None:
            found += validate(body, node)
            found += rules_broken(body, node, old)
        else:
            found += kind.problems(body)
        return found

    def _refuse(self, resource: Resource, body: Object, problems: list[Cause]) -> None:
        if problems:
            name = body["metadata"].get("name", "")
            raise invalid(resource.kind, resource.group, name, problems)

    def _confined(self, resource: Resource, old: Object, body: Object, options: Options) -> Object:
        """What a write of that subresource may change, over what is there."""
        kept = {
            it: old["metadata"][it]
            for it in (
                "name",
                "namespace",
                "uid",
                "creationTimestamp",
                "generation",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "generateName",
            )
            if it in old["metadata"]
        }
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            body["metadata"].pop(name, None)
        if options.subresource == "status":
            found = dict(old)
            found.pop("status", None)
            if "status" in body:
                found["status"] = body["status"]
            managed = body["metadata"].get("managedFields")
            found["metadata"] = dict(old["metadata"])
            if managed:
                found["metadata"]["managedFields"] = managed
            return found
        if self._has_status(resource, options.version):
            body.pop("status", None)
            if "status" in old:
                body["status"] = old["status"]
        body["metadata"] = {**body["metadata"], **kept}
        return body

    def _saved(
        self, resource: Resource, current: Entry | None, body: Object, options: Options
    ) -> Entry:
        options.check("write", current)
        old = current.object if current else None
        body["apiVersion"], body["kind"] = resource.api_version(), resource.kind
        if options.manager and not options.applied:
            version = resource.api_version(options.version)
            owner = Owner(options.manager, "Update", version, options.subresource)
            node = self.schemas.of(resource, options.version or resource.version)
            track_update(old, body, owner, node=node, now=now_text())
        if current is not None:
            body["metadata"]["resourceVersion"] = str(current.rv)
            if body == old:
                return current
        if options.dry_run:
            return Entry(body, current.rv if current else 0)
        if current is not None and _is_over(body):
            return self.store.remove(resource.key, replace_entry(current, body))
        entry = self.store.put(resource.key, body)
        if len(entry.raw) > OBJECT_BYTES_MAX:
            self.store.remove(resource.key, entry)
            raise ApiError(500, "etcdserver: request is too large")
        return entry


def replace_entry(current: Entry, body: Object) -> Entry:
    return Entry(body, current.rv)


def rules_broken(body: Object, node: Object, old: Object | None) -> list[Cause]:
    """x-kubernetes-validations, where the schema has some."""
    from tests.emulators.kubernetes.schema.rules import broken

    return [*broken(body, node, old)]


def _desired(stored: Object) -> Object:
    return {k: v for k, v in stored.items() if k not in ("metadata", "status")}


def _is_over(body: Object) -> bool:
    """Deleted, and nothing holds it any more."""
    metadata = body["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if body["kind"] == "Namespace" and body["spec"].get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")


def _finalizer_problems(old: Object, body: Object) -> list[Cause]:
    if not old["metadata"].get("deletionTimestamp"):
        return []
    before = set(old["metadata"].get("finalizers") or ())
    added = [it for it in body["metadata"].get("finalizers") or () if it not in before]
    if not added:
        return []
    shown = ", ".join(f'"{it}"' for it in added)
    detail = (
        "no new finalizers can be added if the object is being deleted, found new finalizers"
        f" []string{{{shown}}}"
    )
    return [cause("FieldValueForbidden", "metadata.finalizers", detail)]


def for_version(options: Options, version: str) -> Options:
    return replace(options, version=version)

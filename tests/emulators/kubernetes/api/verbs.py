"""The verbs on objects: what each does for a call, and how it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.emulators.kubernetes.api.call import Call
from tests.emulators.kubernetes.api.reading import raw_in, selected
from tests.emulators.kubernetes.api.tables import table
from tests.emulators.kubernetes.api.writes.bodies import checked, parsed
from tests.emulators.kubernetes.api.writes.deleting import Deletion, delete, deletion_of
from tests.emulators.kubernetes.api.writes.writing import Options, Writer
from tests.emulators.kubernetes.apply import serverside
from tests.emulators.kubernetes.apply.managed import Owner
from tests.emulators.kubernetes.apply.strategic import json_patch, merge_patch, strategic_patch
from tests.emulators.kubernetes.schema.kinds import kind_of
from tests.emulators.kubernetes.store.errors import ApiError, not_found
from tests.emulators.kubernetes.store.objects import Entry, clone, dumps
from tests.emulators.kubernetes.store.times import now_text

Object = dict[str, Any]
Answer = tuple[int, bytes]
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
JOB_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to"
    " remove them or set propagationPolicy=Orphan to suppress this warning"
)


class Verbs:
    """get, create, update, patch, delete and deletecollection of whatever is stored."""

    def __init__(self, writer: Writer) -> None:
        self._writer, self._store, self._schemas = writer, writer.store, writer.schemas

    def current(self, call: Call) -> Entry:
        """What the call names. Raises ApiError 404."""
        resource = call.found()
        namespace = call.namespace if resource.namespaced else ""
        found = self._store.get(resource.key, namespace, call.name)
        if found is None:
            raise not_found(resource.plural, resource.group, call.name)
        return found

    def get(self, call: Call) -> Answer:
        return 200, self._shown(call, self.current(call))

    def create(self, call: Call) -> Answer:
        resource = call.found()
        body = checked(call, parsed(call), self.schema(call), resource=resource)
        self._place(call, body)
        return 201, self._shown(call, self._writer.create(resource, body, self._options(call)))

    def update(self, call: Call) -> Answer:
        resource = call.found()
        body = checked(call, parsed(call), self.schema(call), resource=resource)
        self._place(call, body)
        try:
            current = self.current(call)
        except ApiError:
            # A lease may be created by who wants to renew it.
            if resource.key != ("coordination.k8s.io", "leases") or call.subresource:
                raise
            return 201, self._shown(call, self._writer.create(resource, body, self._options(call)))
        entry = self._writer.update(resource, current, body, self._options(call))
        return 200, self._shown(call, entry)

    def patch(self, call: Call) -> Answer:
        how = call.content_type
        if how == APPLY or how == "application/apply-patch+cbor":
            return self._apply(call)
        resource, current = call.found(), self.current(call)
        told = parsed(call)
        # Patches see the object in the version that was asked for.
        before = {**current.object, "apiVersion": resource.api_version(call.version)}
        if how == JSON_PATCH:
            after = json_patch(before, told)
        elif how == MERGE:
            after = merge_patch(before, told)
        elif how == STRATEGIC and resource.definition is None:
            after = strategic_patch(before, told, self.schema(call))
        else:
            raise self._unsupported(call)
        body = checked(call, clone(after), self.schema(call), resource=resource)
        self._place(call, body)
        entry = self._writer.update(resource, current, body, self._options(call))
        return 200, self._shown(call, entry)

    def _unsupported(self, call: Call) -> ApiError:
        kinds = [
            JSON_PATCH,
            MERGE,
            *([STRATEGIC] if call.found().definition is None else []),
            APPLY,
        ]
        message = (
            "the body of the request was in an unknown format - accepted media types include: "
        )
        return ApiError(415, message + ", ".join(kinds))

    def _apply(self, call: Call) -> Answer:
        if not call.query.get("fieldManager"):
            raise ApiError(
                422,
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required'
                " for apply patch",
            )
        resource, node = call.found(), self.schema(call)
        config = checked(call, parsed(call), node, resource=resource)
        if config["metadata"].get("managedFields"):
            raise ApiError(400, "metadata.managedFields must be nil")
        self._place(call, config)
        try:
            current = self.current(call)
        except ApiError:
            if call.subresource:
                raise
            current = None  # type: ignore[assignment]
        version = config["metadata"].pop("resourceVersion", "")
        if current is not None and version and version != str(current.rv):
            config["metadata"]["resourceVersion"] = version
            self._writer.update(resource, current, config, self._options(call))
        config = _applied_part(config, call.subresource, "status" in resource.subresources)
        owner = Owner(call.manager, "Apply", resource.api_version(call.version), call.subresource)
        merged = serverside.apply(
            current.object if current else None,
            config,
            owner,
            node=node,
            force=call.flag("force"),
            now=now_text(),
        )
        options = replace(self._options(call), applied=True)
        if current is None:
            entry = self._writer.create(resource, merged, options)
            return 201, self._shown(call, entry)
        merged["metadata"] = {**merged["metadata"], "resourceVersion": str(current.rv)}
        merged = clone(merged)
        kind_of(resource.key, custom=resource.definition is not None).default(merged)
        entry = self._writer.update(resource, current, merged, options)
        return 200, self._shown(call, entry)

    def delete(self, call: Call) -> Answer:
        resource = call.found()
        told = parsed(call) if call.body.strip() else {}
        current, how = self.current(call), deletion_of(told, call.query, resource)
        asked = told.get("propagationPolicy") or call.query.get("propagationPolicy")
        if resource.key == ("batch", "jobs") and not asked and "orphanDependents" not in told:
            call.warnings.append(JOB_WARNING)
        entry, gone = delete(self._writer, resource, current, how)
        if gone and resource.key not in _RETURNED:
            metadata = entry.object["metadata"]
            details = {"name": metadata["name"], "kind": resource.plural, "uid": metadata["uid"]}
            if resource.group:
                details["group"] = resource.group
            return 200, dumps(_success(details))
        return 200, self._shown(call, entry)

    def deletecollection(self, call: Call) -> Answer:
        resource = call.found()
        told = parsed(call) if call.body.strip() else {}
        how, match = deletion_of(told, call.query, resource), selected(call, resource)
        found = [it for it in self._store.shelf(resource.key).ordered() if match(it)]
        for entry in found:
            self._delete_one(call, entry, how)
        metadata = {"resourceVersion": str(self._store.rv)}
        head = {"kind": resource.list_kind, "apiVersion": resource.api_version(call.version)}
        items = b",".join(it.raw for it in found)
        return 200, dumps({**head, "metadata": metadata})[:-1] + b',"items":[' + items + b"]}"

    def _delete_one(self, call: Call, entry: Entry, how: Deletion) -> None:
        delete(self._writer, call.found(), entry, how)

    def schema(self, call: Call) -> Object:
        return self._schemas.of(call.found(), call.version)

    def _options(self, call: Call) -> Options:
        return Options(
            manager=call.manager,
            dry_run=call.dry_run,
            version=call.version,
            subresource=call.subresource,
        )

    def _place(self, call: Call, body: Object) -> None:
        """The namespace and the name of the URL. Raises ApiError 400 when the body has others."""
        metadata, resource = body["metadata"], call.found()
        if resource.namespaced:
            given = metadata.setdefault("namespace", call.namespace) or call.namespace
            metadata["namespace"] = given
            if given != call.namespace:
                raise ApiError(
                    400,
                    "the namespace of the provided object does not match the namespace sent on the"
                    " request",
                )
        if call.name:
            given = metadata.setdefault("name", call.name)
            if given != call.name:
                raise ApiError(
                    400,
                    f"the name of the object ({given}) does not match the name on the URL"
                    f" ({call.name})",
                )

    def _shown(self, call: Call, entry: Entry) -> bytes:
        if table.wanted(call):
            return dumps(table.of_entries(call, [entry], {"resourceVersion": str(entry.rv)}))
        if table.metadata_only(call):
            return dumps(table.metadata_of(entry))
        return raw_in(entry, call.found(), call.version)


# Kinds whose last state is returned also when they are gone.
_RETURNED = {
    ("", it)
    for it in ("pods", "services", "persistentvolumeclaims", "persistentvolumes", "serviceaccounts")
}


def _success(details: Object) -> Object:
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**head, "details": details}


def _applied_part(config: Object, subresource: str, has_status: bool) -> Object:
    """What an apply at that path can own."""
    if subresource == "status":
        names = ("apiVersion", "kind", "metadata", "status")
        found = {k: v for k, v in config.items() if k in names}
        keep = ("name", "namespace")
        found["metadata"] = {k: v for k, v in config["metadata"].items() if k in keep}
        return found
    return {k: v for k, v in config.items() if not (has_status and k == "status")}


Handler = Callable[[Call], Answer]

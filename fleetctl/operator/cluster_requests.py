"""Carries out the changes that users of the operator's server request, as writes of custom
resources: those are what is wanted in a cluster, and an object that was changed in the store alone
would differ from its own.

Called through the operator's socket, for requests that the server marks (`throughCluster`). Checks,
predictions, policies and consent are those of every apply: a dry run in the store comes first, and
its refusal is the reply. Then the service account writes, with the name of the user in an
annotation, and the reply waits until the mirror has taken the resource up or refused it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fleetctl.apply.change import CONFIGURED, CREATED
from fleetctl.apply.consent import NeedsConsent
from fleetctl.apply.ownership import refuse_kept
from fleetctl.apply.request import Reply, Request, author_in, keys_in
from fleetctl.apply.write.commit import edits_in, find_object, is_suspended, manifest_with
from fleetctl.common.errors import Conflict, FleetctlError, NotFound, Refused, UsageError
from fleetctl.controllers.model import Resource
from fleetctl.daemon.client.socket_client import THROUGH_CLUSTER
from fleetctl.daemon.receive import ManifestReceiver
from fleetctl.daemon.verbs import RequestVerbs
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import JSON_PATCH, ApiConnection, Object
from fleetctl.manifest import Manifest
from fleetctl.operator.mirror.applier import NOWHERE, Applier
from fleetctl.operator.mirror.custom_resource import (
    APPROVE,
    REQUESTED_BY,
    digest_of,
    origin_of,
    store_namespace,
)
from fleetctl.operator.mirror.entries import format_collection_path
from fleetctl.operator.mirror.resource_mirror import ResourceMirror
from fleetctl.operator.mirror.statuses import Unaccepted
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, Kind, dump_spec
from fleetctl.specs.values.namespaces import object_key
from fleetctl.stores.base import Store
from fleetctl.tracking.annotations import NOTES
from fleetctl.tracking.kept_by import MADE_FROM

SETTLE_S = 30.0  # for the mirror, which takes a fraction of a second
LOOK_S = 0.02
TRIES = 5  # against others who write the same resource
# Options of an apply that no custom resource can carry, each with what to do instead.
_BESIDE = {
    "applyset": "`kubectl apply --prune` or Argo CD removes what a repository has no more",
    "prune": "`kubectl apply --prune` or Argo CD removes what a repository has no more",
    "rollout": "write `rollout` into the spec",
    "keepFinished": "write `onChange: Keep` into the spec",
    "rerun": "apply it, then `fleetctl rerun`",
    "expected": "apply the manifest itself",
}

Handler = Callable[[Request], Awaitable[Reply]]
Place = tuple[Kind, str, str]  # kind, namespace and name at the API server


@dataclass(frozen=True, slots=True)
class DesiredResource:
    """The parts of a custom resource that a user declares."""

    spec: Mapping[str, Any]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def digest(self) -> str:
        metadata = {"labels": self.labels, "annotations": self.annotations}
        return digest_of({"spec": self.spec, "metadata": metadata})


class ClusterRequests:
    """The handlers of requests on custom resources. watch: the one namespace that the operator
    looks at; empty: all."""

    def __init__(
        self,
        connection: ApiConnection,
        store: Store,
        *,
        receiver: ManifestReceiver,
        verbs: RequestVerbs,
        mirror: ResourceMirror,
        applier: Applier,
        watch: str = "",
    ) -> None:
        self._connection = connection
        self._store = store
        self._receiver = receiver
        self._verbs = verbs
        self._mirror = mirror
        self._applier = applier
        self._watch = watch

    def handlers(self) -> dict[str, Handler]:
        """Returns the handlers by verb; each leaves a request without the mark as it is."""
        verbs, receiver = self._verbs, self._receiver
        ours: dict[str, tuple[Handler, Handler]] = {
            "apply": (self._apply, receiver.apply),
            "set": (self._set, receiver.set),
            "delete": (self._delete, verbs.delete),
            "suspend": (self._suspend, verbs.suspend),
            "resume": (self._resume, verbs.resume),
            "retry": (self._retry, verbs.retry),
        }

        def choose(through: Handler, plain: Handler) -> Handler:
            return lambda request: (through if request.get(THROUGH_CLUSTER) else plain)(request)

        return {verb: choose(*both) for verb, both in ours.items()}

    # -- manifests -----------------------------------------------------------------------------

    async def _apply(self, request: Request) -> Reply:
        for name, hint in _BESIDE.items():
            if request.get(name):
                raise UsageError(f"`{name}` is not for objects of a cluster", hint=hint)
        manifests = await self._receiver.read_manifests(request)
        for manifest in manifests:
            self._refuse_unserved(manifest)
        checked = self._name_providers(request, manifests)
        reply = await self._receiver.apply({**checked, "dryRun": True, "env": {}})
        if request.get("dryRun"):
            return reply
        approved = _read_consent(request, reply)
        outcomes = {str(it["key"]): it["outcome"] for it in _list_results(reply)}
        changed = [it for it in manifests if outcomes.get(it.key) in (CREATED, CONFIGURED)]
        author = author_in(request)
        # All are tried first, so that a refusal of the last one leaves none behind.
        for dry in (True, False):
            for it in changed:
                place = _place_of(it.kind, it.name, it.namespace)
                edit = partial(_merge_foreign, _desire_manifest(it))
                await self._write(place, edit, author=author, approved=approved, dry=dry)
        return {name: it for name, it in reply.items() if name not in ("losses", "hint")}

    def _name_providers(self, request: Request, manifests: Sequence[Manifest]) -> Request:
        """Returns the request with the providers that its work would really get; the same request
        where `local` means this very container, so that findings keep their lines."""
        if not self._applier.renames:
            return request
        texts = []
        for it in manifests:
            desired = _desire_manifest(it)
            document = {
                "apiVersion": API_VERSION,
                "kind": it.kind,
                "metadata": {
                    **_name_of(_place_of(it.kind, it.name, it.namespace)),
                    "labels": desired.labels,
                    "annotations": desired.annotations,
                },
                "spec": self._applier.rename(KINDS[it.kind], desired.spec),
            }
            text = json.dumps(document, ensure_ascii=False)
            texts.append({"path": it.path, "text": text, "dir": NOWHERE})
        return {**request, "documents": texts}

    def _refuse_unserved(self, manifest: Manifest) -> None:
        """Raises Refused for an object that no custom resource can be, or that the mirror would not
        see."""
        kind = KINDS[manifest.kind]
        if self._watch and kind.namespaced and manifest.namespace != self._watch:
            raise Refused(
                f"{manifest.key}: this operator looks at namespace `{self._watch}` alone",
                hint=f"apply it with `-n {self._watch}`",
            )
        if not self._mirror.kinds.serves(kind):
            raise Refused(
                f"{manifest.key}: the cluster does not know the kind {kind.name}",
                hint="`kubectl apply --server-side -f deploy/crds`",
            )
        barrier = self._applier.find_barrier(kind, json.loads(dump_spec(manifest.spec)))
        if barrier is not None:
            raise Refused(f"{manifest.key}: {barrier.message}", hint=barrier.hint)

    async def _set(self, request: Request) -> Reply:
        ((kind, name, namespace),) = keys_in({"keys": [request.get("key")]})
        row = find_object(self._store, kind, name, namespace)
        if origin_of(row) is None:
            return await self._receiver.set(request)
        reply = await self._receiver.set({**request, "dryRun": True})
        approved = _read_consent(request, reply)
        edited = manifest_with(self._store, kind, name, edits_in(request), namespace=namespace)
        patch = {
            "spec": _make_patch(json.loads(row.spec), json.loads(dump_spec(edited.spec))),
            "labels": _make_patch(row.labels, edited.metadata.labels),
            "annotations": _make_patch(
                _list_written(row), _drop_origin(edited.metadata.annotations)
            ),
        }
        await self._change(row, patch, author=author_in(request), approved=approved)
        return {name: it for name, it in reply.items() if name not in ("losses", "hint")}

    # -- verbs ---------------------------------------------------------------------------------

    async def _suspend(self, request: Request) -> Reply:
        return await self._set_suspend(request, wanted=True)

    async def _resume(self, request: Request) -> Reply:
        return await self._set_suspend(request, wanted=False)

    async def _set_suspend(self, request: Request, *, wanted: bool) -> Reply:
        author = author_in(request)

        async def change(row: Resource) -> Reply:
            if is_suspended(row) == wanted:
                return {"key": row.key, "outcome": "unchanged", "message": ""}
            patch = {"spec": {"suspend": True if wanted else None}}
            await self._change(row, patch, author=author)
            return {
                "key": row.key, "outcome": "suspended" if wanted else "resumed", "message": "",
            }  # fmt: skip

        plain = self._verbs.suspend if wanted else self._verbs.resume
        return await self._change_each(request, plain, change)

    async def _delete(self, request: Request) -> Reply:
        if request.get("cascade") == "orphan":
            raise UsageError(
                "`--cascade orphan` is not for objects of a cluster",
                hint="`kubectl delete --cascade=orphan`",
            )
        leaving = keys_in(request)

        async def delete(row: Resource) -> Reply:
            origin = origin_of(row)
            assert origin is not None
            message = self._verbs.describe_waiting((row.kind, row.name, row.namespace), leaving)
            path = _path_of(_place_of(row.kind, row.name, row.namespace))
            body = {"preconditions": {"uid": origin.uid}}
            try:
                await self._connection.request("DELETE", path, body=body)
            except ApiError as error:
                if not error.not_found:
                    raise _explain_error(error, row.key) from None
            await self._settle(lambda: self._is_leaving(row))
            return {"key": row.key, "outcome": "deleted", "message": message, "uid": row.uid}

        return await self._change_each(request, self._verbs.delete, delete)

    def _is_leaving(self, row: Resource) -> bool:
        found = self._store.resources.of(row.uid)
        return found is None or found.deleted_at_s is not None

    async def _retry(self, request: Request) -> Reply:
        """Repeats work, which no field of a resource declares; the annotation alone is written."""
        reply = await self._verbs.retry(request)
        for key in keys_in(request):
            row = find_object(self._store, *key)
            if origin_of(row) is not None:
                await self._change(row, {}, author=author_in(request), settles=False)
        return reply

    async def _change_each(
        self,
        request: Request,
        plain: Handler,
        change: Callable[[Resource], Awaitable[Reply]],
    ) -> Reply:
        """Changes each object of a request: by `change` where it has a custom resource, and by
        `plain` in the store where it has none, such as the objects of a Schedule. With `each`, a
        refused one leaves the others their turn; else all must be there."""
        results: list[Reply] = []
        rows: list[Resource] = []
        for key in keys_in(request):
            try:
                row = find_object(self._store, *key)
                if not request.get("override"):
                    refuse_kept([row])
                rows.append(row)
            except (NotFound, Refused) as error:
                if not request.get("each"):
                    raise
                results.append(_describe_refusal(object_key(*key), error))
        for row in rows:
            if origin_of(row) is None:
                reply = await plain({**request, "keys": [row.key]})
                results += _list_results(reply)
                continue
            try:
                results.append(await change(row))
            except (Refused, NotFound) as error:
                if not request.get("each"):
                    raise
                results.append(_describe_refusal(row.key, error))
        return {"ok": True, "results": results}

    # -- one resource --------------------------------------------------------------------------

    async def _change(
        self,
        row: Resource,
        patch: Mapping[str, Mapping[str, Any]],
        *,
        author: str,
        approved: bool = False,
        settles: bool = True,
    ) -> None:
        """Writes a merge patch of spec, labels and annotations to the resource of an object. Raises
        Refused and Conflict."""

        def edit(found: Object | None) -> DesiredResource:
            if found is None:
                raise NotFound(f"{row.key} has no custom resource any more")
            metadata = found["metadata"]
            return DesiredResource(
                _apply_patch(found.get("spec") or {}, patch.get("spec", {})),
                _apply_patch(metadata.get("labels") or {}, patch.get("labels", {})),
                _apply_patch(metadata.get("annotations") or {}, patch.get("annotations", {})),
            )

        place = _place_of(row.kind, row.name, row.namespace)
        await self._write(place, edit, author=author, approved=approved, settles=settles)

    async def _write(
        self,
        place: Place,
        edit: Callable[[Object | None], DesiredResource],
        *,
        author: str,
        approved: bool,
        dry: bool = False,
        settles: bool = True,
    ) -> None:
        """Writes a resource and waits until the mirror has taken it up. edit: gets the resource as
        it is; None: there is none. Raises Refused and Conflict."""
        kind, namespace, name = place
        key = object_key(kind.name, name, store_namespace(kind, namespace))
        for count in range(1, TRIES + 1):
            found = await self._read(place)
            desired = edit(found)
            digest = desired.digest
            notes = {it: text for it, text in desired.annotations.items() if it != APPROVE}
            if author:
                notes[REQUESTED_BY] = author
            if approved:
                notes[APPROVE] = digest
            if not dry:
                self._applier.note_author(key, digest, author)
            try:
                reply = await self._send(place, found, desired, notes, dry=dry)
                break
            except ApiError as error:
                if count == TRIES or not (error.conflict or error.exists):
                    raise _explain_error(error, key) from None
        if dry or not settles:
            return
        # The server may have put defaults in.
        digest = digest_of(reply)
        self._applier.note_author(key, digest, author)
        refusal = await self._settle(lambda: self._mirror.find_verdict(place, digest))
        if isinstance(refusal, Unaccepted):
            raise Refused(f"{key}: {refusal.message}", hint=refusal.hint)

    async def _read(self, place: Place) -> Object | None:
        try:
            return await self._connection.request("GET", _path_of(place))
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def _send(
        self,
        place: Place,
        found: Object | None,
        desired: DesiredResource,
        notes: Mapping[str, str],
        *,
        dry: bool,
    ) -> Object:
        kind, namespace, _ = place
        query = {"dryRun": "All"} if dry else {}
        if found is None:
            body = {
                "apiVersion": API_VERSION,
                "kind": kind.name,
                "metadata": {
                    **_name_of(place),
                    "labels": dict(desired.labels),
                    "annotations": dict(notes),
                },
                "spec": desired.spec,
            }
            path = format_collection_path(kind, namespace)
            return await self._connection.request("POST", path, query=query, body=body)
        version = found["metadata"]["resourceVersion"]
        patch = [
            # Another version by now is a conflict.
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/metadata/labels", "value": dict(desired.labels)},
            {"op": "add", "path": "/metadata/annotations", "value": dict(notes)},
            {"op": "add", "path": "/spec", "value": desired.spec},
        ]
        return await self._connection.request(
            "PATCH", _path_of(place), query=query, body=patch, content_type=JSON_PATCH
        )

    async def _settle(self, look: Callable[[], Any]) -> Any:
        """Returns what `look` finds once that is something; None after SETTLE_S: the resource is
        written, and is taken up when the operator can."""
        clock = asyncio.get_running_loop()
        ends_s = clock.time() + SETTLE_S
        while clock.time() < ends_s:
            if found := look():
                return found
            await asyncio.sleep(LOOK_S)
        return None


def _list_written(row: Resource) -> dict[str, str]:
    """Returns the annotations of an object that a user wrote."""
    ours = (*NOTES, MADE_FROM)
    return {key: text for key, text in row.annotations.items() if key not in ours}


def _place_of(kind: str, name: str, namespace: str) -> Place:
    found = KINDS[kind]
    return found, namespace if found.namespaced else "", name


def _name_of(place: Place) -> dict[str, str]:
    kind, namespace, name = place
    return {"name": name, **({"namespace": namespace} if kind.namespaced else {})}


def _path_of(place: Place) -> str:
    kind, namespace, name = place
    return f"{format_collection_path(kind, namespace)}/{name}"


def _desire_manifest(manifest: Manifest) -> DesiredResource:
    return DesiredResource(
        json.loads(dump_spec(manifest.spec)),
        dict(manifest.metadata.labels),
        _drop_origin(manifest.metadata.annotations),
    )


def _drop_origin(annotations: Mapping[str, str]) -> dict[str, str]:
    """Returns annotations without that of the stored object, as in a pasted `get -o yaml`."""
    return {key: text for key, text in annotations.items() if key != MADE_FROM}


def _merge_foreign(desired: DesiredResource, found: Object | None) -> DesiredResource:
    """Returns a resource with the labels and annotations that other tools keep on it: theirs have
    a prefix, such as `argocd.argoproj.io/`."""
    if found is None:
        return desired
    metadata = found["metadata"]
    return DesiredResource(
        desired.spec,
        {**_list_foreign(metadata.get("labels") or {}), **desired.labels},
        {**_list_foreign(metadata.get("annotations") or {}), **desired.annotations},
    )


def _list_foreign(written: Mapping[str, str]) -> dict[str, str]:
    ours = API_VERSION.partition("/")[0] + "/"
    return {key: text for key, text in written.items() if "/" in key and not key.startswith(ours)}


def _read_consent(request: Request, reply: Reply) -> bool:
    """Returns whether losses of a dry run are approved. Raises NeedsConsent where they are not."""
    found = reply.get("losses")
    losses = [str(it) for it in found] if isinstance(found, list) else []
    if losses and not request.get("yes"):
        raise NeedsConsent(losses, hint=str(reply.get("hint") or ""))
    return bool(request.get("yes")) or bool(request.get("approved"))


def _list_results(reply: Reply) -> list[Reply]:
    found = reply.get("results")
    return [it for it in found if isinstance(it, dict)] if isinstance(found, list) else []


def _describe_refusal(key: str, error: NotFound | Refused) -> Reply:
    outcome = "refused" if isinstance(error, Refused) else "missing"
    return {"key": key, "outcome": outcome, "message": str(error), "hint": error.hint}


def _explain_error(error: ApiError, key: str) -> FleetctlError:
    """Returns the API server's refusal as one of ours."""
    if error.not_found:
        return NotFound(
            f"{key}: {error}", hint="`kubectl create namespace` makes a namespace that is missing"
        )
    if error.conflict or error.exists:
        return Conflict(f"{key} changes faster than it can be written", hint="send it again")
    return Refused(
        f"{key}: {error}",
        hint="the API server refuses it; whoever runs the cluster knows its rules",
    )


def _apply_patch(value: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a value with a merge patch (RFC 7386): None removes a key."""
    made = dict(value)
    for key, new in patch.items():
        old = made.get(key)
        if new is None:
            made.pop(key, None)
        elif isinstance(new, Mapping):
            made[key] = _apply_patch(old if isinstance(old, Mapping) else {}, new)
        else:
            made[key] = new
    return made


def _make_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the merge patch that makes `after` of `before`."""
    return dict(_list_changes(before, after))


def _list_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in before.keys() - after.keys():
        yield key, None
    for key, new in after.items():
        old = before.get(key)
        if isinstance(new, Mapping) and isinstance(old, Mapping):
            if inner := _make_patch(old, new):
                yield key, inner
        elif key not in before or old != new:
            yield key, new

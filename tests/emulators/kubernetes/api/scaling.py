"""The scale subresource: how many replicas, in one form for all kinds."""

from __future__ import annotations

from typing import Any

from tests.emulators.kubernetes.api.call import Call
from tests.emulators.kubernetes.api.discovery import subresources_of
from tests.emulators.kubernetes.api.verbs import JSON_PATCH, Verbs
from tests.emulators.kubernetes.api.writes.bodies import parsed
from tests.emulators.kubernetes.api.writes.schemas import version_of
from tests.emulators.kubernetes.api.writes.writing import Options, Writer
from tests.emulators.kubernetes.apply.strategic import json_patch, merge_patch
from tests.emulators.kubernetes.store.errors import ApiError, modified, no_such_path
from tests.emulators.kubernetes.store.objects import Entry, clone, dumps
from tests.emulators.kubernetes.store.resources import Resource

Object = dict[str, Any]
BUILTIN = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


class Scaling:
    def __init__(self, writer: Writer, verbs: Verbs) -> None:
        self._writer, self._verbs = writer, verbs

    def serve(self, call: Call) -> tuple[int, bytes]:
        resource = call.found()
        if "scale" not in subresources_of(resource, call.version):
            raise no_such_path()
        current = self._verbs.current(call)
        paths = _paths(resource, call.version)
        scale = _scale(current, paths)
        if call.verb == "get":
            return 200, dumps(scale)
        told = parsed(call)
        if call.verb == "patch":
            told = (json_patch if call.content_type == JSON_PATCH else merge_patch)(scale, told)
        elif call.verb != "update":
            raise ApiError(405, "the server does not allow this method on the requested resource")
        version = (told.get("metadata") or {}).get("resourceVersion")
        if version and version != str(current.rv):
            raise modified(resource.plural, resource.group, call.name)
        body = clone(current.object)
        _put(body, paths["specReplicasPath"], (told.get("spec") or {}).get("replicas", 0))
        options = Options(manager=call.manager, dry_run=call.dry_run, version=call.version)
        entry = self._writer.update(resource, current, body, options)
        return 200, dumps(_scale(entry, paths))


def _paths(resource: Resource, version: str) -> dict[str, str]:
    if resource.definition is None:
        return BUILTIN
    found: dict[str, str] = version_of(resource, version)["subresources"]["scale"]
    return found


def _scale(entry: Entry, paths: dict[str, str]) -> Object:
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = entry.object["metadata"]
    selector = _at(entry.object, paths.get("labelSelectorPath", ".spec.selector.matchLabels"))
    if isinstance(selector, dict):
        selector = ",".join(f"{k}={v}" for k, v in selector.items())
    status: Object = {"replicas": _at(entry.object, paths["statusReplicasPath"]) or 0}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {k: metadata[k] for k in names if k in metadata},
        "spec": {"replicas": _at(entry.object, paths["specReplicasPath"]) or 0},
        "status": {**status, **({"selector": selector} if selector else {})},
    }


def _at(stored: Any, path: str) -> Any:
    for name in path.strip(".").split("."):
        stored = stored.get(name) if isinstance(stored, dict) else None
    return stored


def _put(stored: Object, path: str, value: int) -> None:
    *names, last = path.strip(".").split(".")
    for name in names:
        stored = stored.setdefault(name, {})
    stored[last] = value

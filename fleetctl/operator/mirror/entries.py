"""The mirror's memory of each custom resource between two looks, and the resource's path at the API
server. Called by resource_mirror.py. All this memory can be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.kubernetes.connection import Object
from fleetctl.kubernetes.informer import Key, version_of
from fleetctl.operator.crds.definition import GROUP, VERSION
from fleetctl.operator.mirror.custom_resource import (
    APPROVE,
    CustomResource,
    RefusedApply,
    digest_of,
    parse_custom_resource,
    store_namespace,
)
from fleetctl.operator.mirror.statuses import StatusWrites, Unaccepted
from fleetctl.specs.kinds.registry import Kind
from fleetctl.specs.values.namespaces import object_key

ROOT = f"/apis/{GROUP}/{VERSION}"


def format_collection_path(kind: Kind, namespace: str = "") -> str:
    """Returns the path that lists a kind, in one namespace if given."""
    within = f"/namespaces/{namespace}" if namespace and kind.namespaced else ""
    return f"{ROOT}{within}/{kind.plural}"


@dataclass
class MirrorEntry:
    """The mirror's memory of a custom resource.

    at: namespace and name at the API server. fresh: the server's last reply about the resource,
    until the cache has caught up. replied: its version. since_s: when its status was first seen to
    differ. soon_s: when a write is due that no further change brings forward. settled: the object
    is over, and its last status is written. told: hash of the stored status that was written last.
    """

    kind: Kind
    at: Key
    store_uid: str = ""
    fresh: Object | None = None
    replied: str = ""
    tried: RefusedApply | None = None
    refusal: Unaccepted | None = None
    writes: StatusWrites = field(default_factory=StatusWrites)
    since_s: float | None = None
    soon_s: float | None = None
    settled: bool = False
    told: int = 0
    read: tuple[str, CustomResource] | None = None  # by the version that it was read of
    failures: int = 0
    busy: bool = False
    again: bool = False  # something happened while it was busy
    heard: bool = False  # the server sent an event about it while it was busy

    @property
    def path(self) -> str:
        return f"{format_collection_path(self.kind, self.at[0])}/{self.at[1]}"

    @property
    def namespace(self) -> str:
        """Returns the namespace in the store."""
        return store_namespace(self.kind, self.at[0])

    @property
    def key(self) -> str:
        return object_key(self.kind.name, self.at[1], self.namespace)

    def parse(self, found: Object) -> CustomResource:
        """Returns the custom resource; its digest is computed once for each of its versions."""
        version = version_of(found)
        if self.read is None or self.read[0] != version:
            self.read = version, parse_custom_resource(found)
        return self.read[1]

    @property
    def deleting(self) -> bool:
        """Returns True if the resource was to be deleted when it was read last."""
        return self.read is not None and self.read[1].deleting

    def take_reply(self, found: Object) -> None:
        """Takes the server's reply about the resource."""
        self.fresh = found
        self.replied = version_of(found)

    def knows(self, cached: Object | None) -> bool:
        """Returns True if the cache shows no more than the server's last reply."""
        return cached is not None and version_of(cached) == self.replied

    def is_echo(self, found: Object) -> bool:
        """Returns True for an event that shows no more than the reply to our own last write."""
        return self.fresh is not None and version_of(found) == version_of(self.fresh)

    def newest(self, cached: Object | None) -> Object | None:
        """Returns the newest known state: a reply of the server is newer than a cache that lags."""
        if self.fresh is None or cached is None:
            if self.fresh is None:
                return cached
            return self.fresh
        if _parse_version(cached) >= _parse_version(self.fresh):
            self.fresh = None
            return cached
        return self.fresh


def _parse_version(found: Mapping[str, Any]) -> int:
    """Returns the version as a number. An object's versions rise, as Kubernetes promises; -1 for a
    foreign form.
    """
    text = version_of(dict(found))
    if text.isdecimal():
        return int(text)
    return -1


def drop_unread(found: Object) -> None:
    """Drops the fields that the operator never reads; changes `found`, as soon as it is
    received.
    """
    found["metadata"].pop("managedFields", None)
    annotations = found["metadata"].get("annotations")
    if annotations:
        annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)


# The fields of an object's metadata that decisions read; see custom_resource.py.
_KEPT = (
    *("name", "namespace", "uid", "generation", "resourceVersion"),
    *("finalizers", "deletionTimestamp"),
)


def let_go(found: Object) -> None:
    """Reduces a finished and reported object to its identity and digest: ten thousand whole objects
    are hundreds of megabytes. Changes `found`.
    """
    if is_whole(found):
        found["digest"] = digest_of(found)
        metadata = found["metadata"]
        approved = (metadata.get("annotations") or {}).get(APPROVE)
        found["metadata"] = {key: metadata[key] for key in _KEPT if key in metadata}
        if approved is not None:
            found["metadata"]["annotations"] = {APPROVE: approved}
        for key in [it for it in found if it not in ("metadata", "digest")]:
            del found[key]


def is_whole(found: Object) -> bool:
    """Returns True if the object has its spec and status; False once it was reduced."""
    return "digest" not in found

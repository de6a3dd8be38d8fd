"""What the mirror remembers of each custom resource between two looks, and where it is at the API
server. Called by mirror.py. All of it can be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.kubernetes.connection import Object
from fleetctl.kubernetes.informer import Key, version_of
from fleetctl.operator.crds.definition import GROUP, VERSION
from fleetctl.operator.mirror.decide import Tried
from fleetctl.operator.mirror.statuses import Refusal, Writes
from fleetctl.operator.mirror.wanted import APPROVE, digest_of, store_namespace
from fleetctl.specs.kinds.registry import Kind
from fleetctl.specs.values.namespaces import object_key

ROOT = f"/apis/{GROUP}/{VERSION}"


def collection(kind: Kind, namespace: str = "") -> str:
    """Where a kind is listed; of one namespace, where one is given."""
    within = f"/namespaces/{namespace}" if namespace and kind.namespaced else ""
    return f"{ROOT}{within}/{kind.plural}"


@dataclass
class Entry:
    """at: namespace and name at the API server. fresh: what the server last answered about it,
    until the cache has caught up. since_s: when its status was first seen to differ.
    """

    kind: Kind
    at: Key
    store_uid: str = ""
    fresh: Object | None = None
    tried: Tried | None = None
    refusal: Refusal | None = None
    writes: Writes = field(default_factory=Writes)
    since_s: float | None = None
    failures: int = 0
    busy: bool = False
    again: bool = False  # something happened while it was busy

    @property
    def path(self) -> str:
        return f"{collection(self.kind, self.at[0])}/{self.at[1]}"

    @property
    def namespace(self) -> str:
        """In the store."""
        return store_namespace(self.kind, self.at[0])

    @property
    def key(self) -> str:
        return object_key(self.kind.name, self.at[1], self.namespace)

    def newest(self, cached: Object | None) -> Object | None:
        """What is known of it: an answer of the server is newer than a cache that lags."""
        if self.fresh is None or cached is None:
            return cached if self.fresh is None else self.fresh
        if _number(cached) >= _number(self.fresh):
            self.fresh = None
            return cached
        return self.fresh


def _number(found: Mapping[str, Any]) -> int:
    """Versions of one sort of object rise, as Kubernetes promises; -1 for a foreign form."""
    text = version_of(dict(found))
    return int(text) if text.isdecimal() else -1


def lightened(found: Object) -> None:
    """Let go of what nobody here reads; in place, as soon as it is heard of."""
    found["metadata"].pop("managedFields", None)
    annotations = found["metadata"].get("annotations")
    if annotations:
        annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)


# What decisions read of an object's metadata; see wanted.py.
_KEPT = (
    *("name", "namespace", "uid", "generation", "resourceVersion"),
    *("finalizers", "deletionTimestamp"),
)


def let_go(found: Object) -> None:
    """Of one that is over and told, who it is and its digest are enough: ten thousand of them whole
    are hundreds of megabytes. In place.
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
    """Whether it has its spec and status, or was let go of."""
    return "digest" not in found

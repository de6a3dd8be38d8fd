"""A custom resource as decisions need it, and as the manifest that is applied. Pure.

The origin of a stored object is noted on the object, so that a restart does not apply it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from fleetctl.controllers.model import Resource
from fleetctl.specs.kinds.registry import API_VERSION, Kind
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.tracking.kept_by import MADE_FROM

FINALIZER = "fleetctl.dev/confirmed-gone"
# On a custom resource: the digest of the change that may destroy work, as its condition shows it.
APPROVE = "fleetctl.dev/approve"
# kubectl's own copy of the applied manifest, which is the spec once more.
_NOT_OURS = ("kubectl.kubernetes.io/last-applied-configuration", APPROVE, MADE_FROM)
DIGEST_CHARS = 12

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResourceOrigin:
    """The custom resource, and its state, that a stored object was made from."""

    uid: str
    generation: int
    digest: str

    def text(self) -> str:
        return f"{self.uid} {self.generation} {self.digest}"


@dataclass(frozen=True, slots=True)
class CustomResource:
    """A custom resource. held: our finalizer is on it. approved: the digest that its annotation
    names.
    """

    origin: ResourceOrigin
    deleting: bool = False
    held: bool = False
    approved: str = ""

    @property
    def allows(self) -> bool:
        """Returns True if the user has approved the work that this change may destroy."""
        return self.approved == self.origin.digest


def parse_custom_resource(found: Object) -> CustomResource:
    metadata = found["metadata"]
    annotations = metadata.get("annotations") or {}
    return CustomResource(
        origin=ResourceOrigin(
            str(metadata["uid"]), int(metadata.get("generation") or 0), digest_of(found)
        ),
        deleting=bool(metadata.get("deletionTimestamp")),
        held=FINALIZER in (metadata.get("finalizers") or ()),
        approved=str(annotations.get(APPROVE) or ""),
    )


def digest_of(found: Object) -> str:
    """Returns the digest of everything in a custom resource that an apply reads. Stored on the
    resource (`digest`) once its spec was dropped.
    """
    kept = found.get("digest")
    if kept is not None:
        return str(kept)
    text = canonical_json([found.get("spec") or {}, _read_labels(found), _read_annotations(found)])
    return sha256(text.encode()).hexdigest()[:DIGEST_CHARS]


def origin_of(stored: Resource) -> ResourceOrigin | None:
    """Returns the origin of a stored object; None if it was not made from a custom resource."""
    words = stored.annotations.get(MADE_FROM, "").split()
    if len(words) != 3 or not words[1].isdecimal():
        return None
    return ResourceOrigin(words[0], int(words[1]), words[2])


def store_namespace(kind: Kind, namespace: str) -> str:
    """Returns the namespace in the store; cluster-wide objects are in the default one."""
    if kind.namespaced:
        return namespace
    return DEFAULT_NAMESPACE


def manifest_text(
    kind: Kind,
    found: Object,
    origin: ResourceOrigin,
) -> str:
    """The manifest, JSON, which is YAML."""
    metadata = found["metadata"]
    namespaced = {"namespace": metadata["namespace"]} if kind.namespaced else {}
    document = {
        "apiVersion": API_VERSION,
        "kind": kind.name,
        "metadata": {
            "name": metadata["name"],
            **namespaced,
            "labels": _read_labels(found),
            "annotations": {**_read_annotations(found), MADE_FROM: origin.text()},
        },
        "spec": found.get("spec") or {},
    }
    return json.dumps(document, ensure_ascii=False)


def _read_labels(found: Object) -> dict[str, str]:
    return dict(found["metadata"].get("labels") or {})


def _read_annotations(found: Object) -> dict[str, str]:
    written = found["metadata"].get("annotations") or {}
    return {key: text for key, text in written.items() if key not in _NOT_OURS}

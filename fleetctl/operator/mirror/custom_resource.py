"""A custom resource as decisions need it, and as the manifest that is applied, and the choice of
the next action for it. Pure.

The origin of a stored object is noted on the object, so that a restart does not apply it again.
The API server may report old states (a stale list, a watch that lags or was cut): a report alone
never deletes an object or applies an older state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
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
# On a custom resource: the user of the operator's server who requested its last write. A note for
# people, which gives no right and is no part of the object.
REQUESTED_BY = "fleetctl.dev/requested-by"
# kubectl's own copy of the applied manifest, which is the spec once more.
_NOT_OURS = ("kubectl.kubernetes.io/last-applied-configuration", APPROVE, MADE_FROM, REQUESTED_BY)
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


class MirrorAction(StrEnum):
    NOTHING = "nothing"
    LOOK = "look"  # ask the server for this one object, and decide again
    HOLD = "hold"  # put the finalizer on it: from now on its deletion waits for us
    APPLY = "apply"
    DELETE = "delete"  # the stored object
    WAIT = "wait"  # the engine is at it
    RELEASE = "release"  # no object is left: take the finalizer off


@dataclass(frozen=True, slots=True)
class MirroredObject:
    """A stored object as the mirror sees it. origin: the custom resource that it was made from;
    None if it was made from a manifest.
    """

    origin: ResourceOrigin | None
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class RefusedApply:
    """An apply that was refused: it is tried again when its inputs change, or at again_at_s."""

    origin: ResourceOrigin
    approved: str
    again_at_s: float | None


def choose_action(
    wanted: CustomResource | None,
    stored: MirroredObject | None,
    *,
    looked: bool = False,
    tried: RefusedApply | None = None,
    now_s: float = 0.0,
) -> MirrorAction:
    """Returns the next action for one key.

    wanted: the custom resource in the cache; None if absent. looked: this very object was
    requested, or written, after the doubt, and `wanted` is the reply.
    """
    if wanted is None:
        return _choose_without(stored, looked=looked)
    same = (
        stored is not None and stored.origin is not None and stored.origin.uid == wanted.origin.uid
    )
    if wanted.deleting:
        if same and stored is not None:
            if stored.deleting:
                return MirrorAction.WAIT
            return MirrorAction.DELETE
        if wanted.held:
            return MirrorAction.RELEASE
        return MirrorAction.NOTHING
    if stored is not None and stored.origin is not None and not same:
        # One of the two is older. Only the server knows which, and only by name.
        if stored.deleting:
            return MirrorAction.WAIT
        if looked:
            return MirrorAction.DELETE
        return MirrorAction.LOOK
    if not wanted.held:
        return MirrorAction.HOLD
    if stored is None or stored.origin is None:
        # A stale list may show deleted resources, whose work would begin again.
        step = _choose_retry(wanted, tried, now_s)
        if step is MirrorAction.APPLY and not looked:
            return MirrorAction.LOOK
        return step
    if stored.deleting:
        return MirrorAction.WAIT
    if wanted.origin.generation < stored.origin.generation:
        return MirrorAction.NOTHING  # the cache is older than the applied state
    if wanted.origin.digest == stored.origin.digest:
        return MirrorAction.NOTHING
    return _choose_retry(wanted, tried, now_s)


def _choose_without(stored: MirroredObject | None, *, looked: bool) -> MirrorAction:
    if stored is None or stored.origin is None:
        return MirrorAction.NOTHING
    if stored.deleting:
        return MirrorAction.WAIT
    # A missed event is not a death; that the server does not know its name is.
    return MirrorAction.DELETE if looked else MirrorAction.LOOK


def _choose_retry(
    wanted: CustomResource,
    tried: RefusedApply | None,
    now_s: float,
) -> MirrorAction:
    if tried is None or tried.origin != wanted.origin or tried.approved != wanted.approved:
        return MirrorAction.APPLY
    due = tried.again_at_s is not None and now_s >= tried.again_at_s
    if due:
        return MirrorAction.APPLY
    return MirrorAction.NOTHING

"""Deleting: at once, gracefully, or when the last finalizer is gone."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from tests.emulators.kubernetes.api.writes.writing import Writer
from tests.emulators.kubernetes.store.errors import ApiError, conflict
from tests.emulators.kubernetes.store.objects import Entry
from tests.emulators.kubernetes.store.resources import Resource
from tests.emulators.kubernetes.store.times import text_of

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
POLICIES = ("Background", "Foreground", "Orphan")


@dataclass(frozen=True, slots=True)
class Deletion:
    """grace_s: None is the object's own."""

    policy: str = "Background"
    grace_s: int | None = None
    uid: str = ""
    version: str = ""
    dry_run: bool = False


def deletion_of(told: dict[str, Any], query: Any, resource: Resource) -> Deletion:
    """From a body of DeleteOptions and the query. Raises ApiError."""
    policy = told.get("propagationPolicy") or query.get("propagationPolicy")
    if told.get("orphanDependents") is not None and not policy:
        policy = "Orphan" if told["orphanDependents"] else "Background"
    if policy and policy not in POLICIES:
        shown = ", ".join(f'"{it}"' for it in POLICIES)
        raise ApiError(
            422,
            f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value:'
            f' "{policy}": supported values: {shown}, "nil"',
        )
    if not policy:
        # Kept from before there were policies: Jobs leave their pods behind unless told.
        policy = "Orphan" if resource.key == ("batch", "jobs") else "Background"
    grace = told.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    preconditions = told.get("preconditions") or {}
    return Deletion(
        policy,
        int(grace) if grace is not None else None,
        preconditions.get("uid") or "",
        str(preconditions.get("resourceVersion") or ""),
        told.get("dryRun") == ["All"] or query.get("dryRun") == "All",
    )


def delete(
    writer: Writer, resource: Resource, current: Entry, how: Deletion = Deletion()
) -> tuple[Entry, bool]:
    """(its state after it, whether it is gone). Raises ApiError 409 for a failed precondition."""
    metadata = current.object["metadata"]
    name = metadata["name"]
    for said, wanted, found in (
        ("UID", how.uid, metadata["uid"]),
        ("ResourceVersion", how.version, str(current.rv)),
    ):
        if wanted and wanted != found:
            why = (
                f"Precondition failed: {said} in precondition: {wanted}, {said} in object meta:"
                f" {found}"
            )
            raise conflict(resource.plural, resource.group, name, why)
    if how.dry_run:
        return current, False
    grace = _grace(resource, current, how)
    body = {**current.object, "metadata": dict(metadata)}
    held = [it for it in metadata.get("finalizers") or () if it not in (FOREGROUND, ORPHAN)]
    held += {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(how.policy, [])
    namespace_holds = resource.key == ("", "namespaces")
    if not held and not grace and not namespace_holds:
        return writer.store.remove(resource.key, current), True
    if held:
        body["metadata"]["finalizers"] = held
    else:
        body["metadata"].pop("finalizers", None)
    before = metadata.get("deletionTimestamp")
    if not before or metadata.get("deletionGracePeriodSeconds", 0) > grace:
        body["metadata"]["deletionTimestamp"] = text_of(time.time() + grace)
        body["metadata"]["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata and not before:
            body["metadata"]["generation"] = metadata["generation"] + 1
    if namespace_holds:
        body["status"] = {**body.get("status", {}), "phase": "Terminating"}
    if body == current.object:
        return current, False
    return writer.store.put(resource.key, body), False


def _grace(resource: Resource, current: Entry, how: Deletion) -> int:
    """Seconds that the kubelet has to end it; only pods that run have any."""
    if resource.key != ("", "pods"):
        return 0
    spec, status = current.object["spec"], current.object.get("status", {})
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    if how.grace_s is not None:
        return max(how.grace_s, 0)
    return int(spec.get("terminationGracePeriodSeconds", 30))

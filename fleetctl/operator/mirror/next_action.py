"""Chooses the next action for one custom resource, or for a stored object whose custom resource is
missing. Pure: a table of rules, the first that holds decides.

Called by resource_mirror.py for one key at a time. The API server may report old states (a stale
list, a watch that lags or was cut): a report alone never deletes an object or applies an older
state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fleetctl.operator.mirror.custom_resource import CustomResource, ResourceOrigin


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

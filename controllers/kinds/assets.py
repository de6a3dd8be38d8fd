"""Volume, Function, Secret, Provider: kinds without runs. Called by the engine; pure."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.controllers.plan import (
    Drop,
    EnsureFunction,
    EnsureVolume,
    Phase,
    Plan,
    RemoveFunction,
    RemoveVolume,
)

# Kinds that are true as soon as they are said: nothing is made at a provider.
SAID_KINDS = frozenset({"Secret", "Provider"})


@dataclass(frozen=True, slots=True)
class AssetWish:
    """A volume, a function or a secret as the pass sees it. users: keys of objects that are not
    over and name it.
    """

    uid: str
    kind: str
    name: str
    deleted: bool
    provider: str
    delete_data: bool
    ready: bool  # the provider confirmed that it exists
    removed: bool  # the provider confirmed that its data, or its containers, are gone
    users: tuple[str, ...]
    heir: bool = False  # one of the same name was applied after this one was deleted
    removing: bool = False  # a call that removes it, or its forerunner, is under way
    problem: str = ""  # the provider's words when it could not be made or removed


def reconcile_asset(wish: AssetWish) -> Plan:
    if wish.deleted:
        return _delete(wish)
    if wish.kind in SAID_KINDS or wish.ready:
        return Plan((), Phase.READY, "Ready")
    if wish.removing:
        text = f"the deleted {wish.kind.lower()} of this name is still being removed"
        return Plan((), Phase.PENDING, "Waiting", text, (text,))
    ensure = EnsureFunction if wish.kind == "Function" else EnsureVolume
    make = ensure(wish.name, wish.provider, "it does not exist yet")
    waiting = (wish.problem,) if wish.problem else ()
    return Plan((make,), Phase.PENDING, "Creating", wish.problem, waiting)


def _delete(wish: AssetWish) -> Plan:
    drop = Drop(wish.uid, "deleted")
    keeps_data = wish.kind == "Volume" and not wish.delete_data
    if wish.kind == "Provider" and wish.users:
        # Without it nobody could look at what runs there, nor end it.
        waiting = (f"still holds something of {', '.join(wish.users)}",)
        return Plan((), Phase.DELETING, "InUse", waiting[0], waiting)
    if wish.kind in SAID_KINDS or keeps_data or wish.removed:
        return Plan((drop,), Phase.DELETING, "Deleted")
    if wish.heir and not wish.removing:
        # Its data is what the new volume shows, and its containers are what the new function
        # takes over: removing it now would hit the wrong one.
        passed_on = Drop(wish.uid, f"a new {wish.kind.lower()} of this name has taken its place")
        return Plan((passed_on,), Phase.DELETING, "Deleted")
    if wish.users:
        # It goes after its last user, so that no task loses what it stands on.
        waiting = (f"still used by {', '.join(wish.users)}",)
        return Plan((), Phase.DELETING, "InUse", waiting[0], waiting)
    why = (wish.problem,) if wish.problem else ()
    return Plan((_remove(wish),), Phase.DELETING, "Deleted", wish.problem, why)


def _remove(wish: AssetWish) -> RemoveVolume | RemoveFunction:
    if wish.kind == "Function":
        return RemoveFunction(wish.name, wish.provider, "deleted")
    return RemoveVolume(wish.name, wish.provider, "deletionPolicy is Delete")

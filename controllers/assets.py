"""Volume and Secret: kinds without runs. Called by the engine; pure."""

from __future__ import annotations

from dataclasses import dataclass

from controllers.plan import Drop, EnsureVolume, Phase, Plan, RemoveVolume


@dataclass(frozen=True, slots=True)
class AssetWish:
    """A volume or a secret as the pass sees it. users: keys of objects that are not over and name
    it.
    """

    uid: str
    kind: str
    name: str
    deleted: bool
    provider: str
    delete_data: bool
    ready: bool  # the provider confirmed that it exists
    removed: bool  # the provider confirmed that its data is gone
    users: tuple[str, ...]
    heir: bool = False  # a volume of the same name was applied after this one was deleted
    removing: bool = False  # a call that removes the data, or that of its forerunner, is under way
    problem: str = ""  # the provider's words when it could not be made or removed


def reconcile_asset(wish: AssetWish) -> Plan:
    if wish.deleted:
        return _delete(wish)
    if wish.kind == "Secret" or wish.ready:
        return Plan((), Phase.READY, "Ready")
    if wish.removing:
        text = "the deleted volume of this name is still being removed"
        return Plan((), Phase.PENDING, "Waiting", text, (text,))
    make = EnsureVolume(wish.name, wish.provider, "it does not exist yet")
    waiting = (wish.problem,) if wish.problem else ()
    return Plan((make,), Phase.PENDING, "Creating", wish.problem, waiting)


def _delete(wish: AssetWish) -> Plan:
    drop = Drop(wish.uid, "deleted")
    if wish.kind == "Secret" or not wish.delete_data or wish.removed:
        return Plan((drop,), Phase.DELETING, "Deleted")
    if wish.heir and not wish.removing:
        # Its data is what the new volume shows: removing it now would hit the wrong one.
        return Plan((Drop(wish.uid, "its data went to the new volume"),), Phase.DELETING, "Deleted")
    if wish.users:
        # A volume goes after its last user, so that no task loses its data under its feet.
        waiting = (f"still used by {', '.join(wish.users)}",)
        return Plan((), Phase.DELETING, "InUse", waiting[0], waiting)
    remove = RemoveVolume(wish.name, wish.provider, "deletionPolicy is Delete")
    return Plan((remove,), Phase.DELETING, "Deleted", wish.problem)

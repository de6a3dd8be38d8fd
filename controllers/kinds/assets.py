"""Volume, Function, Endpoint, Secret, Provider: kinds without runs. Called by the engine; pure."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.controllers.planning.plan import (
    Drop,
    EnsureFunction,
    EnsureVolume,
    Phase,
    Plan,
    RemoveFunction,
    RemoveVolume,
)
from fleetctl.specs.values.hints import NO_TEXT, HintedText

# Kinds that are ready as soon as they are stored: no provider has to create anything.
SAID_KINDS = frozenset({"Notifier", "Policy", "Provider", "Secret", "Settings"})


@dataclass(frozen=True, slots=True)
class DesiredAsset:
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
    # reason and sentence about an asset that no provider here can create
    lacking: tuple[str, HintedText] | None = None
    problem: HintedText = NO_TEXT  # the provider's words when it could not be made or removed


def reconcile_asset(desired: DesiredAsset) -> Plan:
    if desired.deleted:
        return _plan_deletion(desired)
    if desired.kind in SAID_KINDS or desired.ready:
        return Plan((), Phase.READY, "Ready")
    if desired.kind == "Endpoint":
        if desired.lacking is None:
            return Plan((), Phase.READY, "Ready")
        reason, lack = desired.lacking
        return Plan(
            (),
            Phase.PENDING,
            reason,
            lack.text,
            (lack.text,),
            hint=lack.hint,
        )
    if desired.removing:
        text = f"the deleted {desired.kind.lower()} of this name is still being removed"
        return Plan(
            (),
            Phase.PENDING,
            "Waiting",
            text,
            (text,),
        )
    ensure = EnsureFunction if desired.kind == "Function" else EnsureVolume
    make = ensure(desired.name, desired.provider, "it does not exist yet")
    problem = desired.problem
    return Plan(
        (make,),
        Phase.PENDING,
        "Creating",
        problem.text,
        (problem.text,) if problem else (),
        hint=problem.hint,
    )


def _plan_deletion(desired: DesiredAsset) -> Plan:
    drop = Drop(desired.uid, "deleted")
    keeps_data = desired.kind == "Volume" and not desired.delete_data
    if desired.kind == "Provider" and desired.users:
        # Without it, runs there could neither be observed nor ended.
        waiting = (f"still holds something of {', '.join(desired.users)}",)
        return Plan(
            (),
            Phase.DELETING,
            "InUse",
            waiting[0],
            waiting,
        )
    if desired.kind == "Endpoint" and not desired.users:
        return Plan((drop,), Phase.DELETING, "Deleted")
    if desired.kind in SAID_KINDS or keeps_data or desired.removed:
        return Plan((drop,), Phase.DELETING, "Deleted")
    if desired.heir and not desired.removing:
        # Its data is what the new volume shows, and its containers are what the new function
        # takes over: removing it now would hit the wrong one.
        passed_on = Drop(
            desired.uid, f"a new {desired.kind.lower()} of this name has taken its place"
        )
        return Plan((passed_on,), Phase.DELETING, "Deleted")
    if desired.users:
        # It is removed after its last user, so that no task loses an asset in use.
        waiting = (f"still used by {', '.join(desired.users)}",)
        return Plan(
            (),
            Phase.DELETING,
            "InUse",
            waiting[0],
            waiting,
        )
    problem = desired.problem
    return Plan(
        (_build_removal(desired),),
        Phase.DELETING,
        "Deleted",
        problem.text,
        (problem.text,) if problem else (),
        hint=problem.hint,
    )


def _build_removal(desired: DesiredAsset) -> RemoveVolume | RemoveFunction:
    if desired.kind == "Function":
        return RemoveFunction(desired.name, desired.provider, "deleted")
    return RemoveVolume(desired.name, desired.provider, "deletionPolicy is Delete")

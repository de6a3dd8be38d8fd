"""Which units of one side count on the other, told by their content alone: as an apply would tell
it, had all of the old side been done. Pure; called by compare.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.kind import KindController, Unit
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.tracking.annotations import pins_of

# A second of hashing on a small machine; of more units the plan does not say which count.
UNITS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class Units:
    """Of one object. kept: wanted on both sides with one content. again: the same units with
    another content, so that what was done of them is outdated. new: on the new side alone. gone:
    on the old side alone. None: nobody can tell, for a side does not know its units yet, or has
    too many.
    """

    kept: int | None = None
    again: int | None = None
    new: int | None = None
    gone: int | None = None


def units_of(before: Resource | None, after: Resource | None) -> Units | None:
    """None of kinds that run nothing."""
    resource = after or before
    if resource is None or resource.kind not in CONTROLLERS:
        return None
    old = {} if before is None else _units(before)
    new = {} if after is None else _units(after)
    if old is None or new is None:
        return Units()
    both = new.keys() & old.keys()
    kept = sum(1 for it in both if new[it] == old[it])
    return Units(kept, len(both) - kept, len(new) - len(both), len(old) - len(both))


def _units(resource: Resource) -> dict[tuple[int, str], str] | None:
    """Content by what tells a unit from others: its parameters, and its number among equals."""
    controller = _controller(resource)
    if controller.total is None or controller.total > UNITS_MAX:
        return None
    found: dict[tuple[int, str], str] = {}
    for index in controller.indexes():
        unit = controller.unit(index)
        if unit is None:
            return None  # a search that works its points out one by one
        found[_place(controller, unit)] = unit.content
    return found


def _controller(resource: Resource) -> KindController:
    spec = parse_spec(resource.kind, resource.spec)
    return CONTROLLERS[resource.kind](spec, {}, pins_of(resource.annotations))


def _place(controller: KindController, unit: Unit) -> tuple[int, str]:
    """Where parameters keep the index that they had, that index says nothing."""
    if controller.keeps_indexes:
        return -1, unit.params_hash
    number = unit.index if controller.repeats else controller.equal_before(unit.index)
    return number, unit.params_hash

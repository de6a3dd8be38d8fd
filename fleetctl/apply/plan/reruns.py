"""Counts a side's units that are done on the other side, by content alone: as an apply would find,
had all of the old side been done. Pure; called by compare.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.kind_controller import KindController, Unit
from fleetctl.specs.kinds.registry import parse_spec
from fleetctl.tracking.annotations import pins_of

# A second of hashing on a small machine; beyond it the plan does not count units.
UNITS_MAX = 50_000


@dataclass(frozen=True, slots=True)
class UnitChanges:
    """An object's units. kept: on both sides with one content. again: the same units with another
    content, so that finished work on them is outdated. new: on the new side alone. gone: on the old
    side alone. None: unknown, because a side does not know its units yet, or has too many.
    """

    kept: int | None = None
    again: int | None = None
    new: int | None = None
    gone: int | None = None


def units_of(before: Resource | None, after: Resource | None) -> UnitChanges | None:
    """Returns the counts, or None for kinds that run no work."""
    resource = after or before
    if resource is None or resource.kind not in CONTROLLERS:
        return None
    old = {} if before is None else _index_contents(before)
    new = {} if after is None else _index_contents(after)
    if old is None or new is None:
        return UnitChanges()
    both = new.keys() & old.keys()
    kept = sum(1 for it in both if new[it] == old[it])
    return UnitChanges(kept, len(both) - kept, len(new) - len(both), len(old) - len(both))


def _index_contents(resource: Resource) -> dict[tuple[int, str], str] | None:
    """Returns contents by the unit's identity: its parameters, and its number among equals."""
    controller = _make_controller(resource)
    if controller.total is None or controller.total > UNITS_MAX:
        return None
    found: dict[tuple[int, str], str] = {}
    for index in controller.indexes():
        unit = controller.unit(index)
        if unit is None:
            return None  # a search that works its points out one by one
        found[_identify_unit(controller, unit)] = unit.content
    return found


def _make_controller(resource: Resource) -> KindController:
    spec = parse_spec(resource.kind, resource.spec)
    return CONTROLLERS[resource.kind](spec, {}, pins_of(resource.annotations))


def _identify_unit(controller: KindController, unit: Unit) -> tuple[int, str]:
    """Returns the unit's identity. Where the index is part of the parameters, it adds nothing."""
    if controller.keeps_indexes:
        return -1, unit.params_hash
    number = unit.index if controller.repeats else controller.equal_before(unit.index)
    return number, unit.params_hash

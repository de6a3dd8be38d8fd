"""Bugs that a tired person could write, planted one at a time: the simulation must catch each of
them.

A plant is a patch that lasts as long as its context. `PLANTS` maps its name to it; its docstring
says what is wrong. Add one for every bug that the simulation or a user finds.
"""

from __future__ import annotations

from tests.simulation.planted import (
    calls,
    chains,
    decisions,
    equals,
    handed,
    money,
    places,
    queues,
    records,
    rows,
    savings,
    sleepers,
    truth,
)
from tests.simulation.planted.plant import Plant

PLANTS: dict[str, Plant] = {
    plant.__name__.replace("_", "-"): plant
    for module in (
        calls,
        chains,
        decisions,
        equals,
        handed,
        money,
        places,
        queues,
        records,
        rows,
        savings,
        sleepers,
        truth,
    )
    for plant in module.PLANTS
}

"""The table of an engine's parts: their order, with its reason. A kind with behavior of its own
names its part in its row of specs/kinds/registry.py; one that is not listed here comes last.
"""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from fleetctl.engine.shared.part import EnginePart, EngineParts, PartWiring
from fleetctl.specs.kinds.registry import KINDS


class PartRow(NamedTuple):
    part: str  # the kind that it carries out, or module:class
    why: str  # it has this position


PART_ORDER = (
    PartRow("fleetctl.engine.money.ledger:RunCharges", "Budgets count its entries"),
    PartRow("Provider", "capacity is counted before money: a full provider spends none"),
    PartRow("Budget", "accounts are counted before the objects that they pay for"),
    PartRow("Function", "asks Budgets whether its containers are paid for"),
    PartRow("Queue", "puts objects into their order, once all that wake others are known"),
    PartRow(
        "fleetctl.engine.observe.provider_health:ProviderHealth",
        "in any position: no other asks it at once",
    ),
    PartRow(
        "fleetctl.engine.decide.suggestions:Suggestions",
        "in any position: no other asks it at once",
    ),
    PartRow(
        "fleetctl.engine.kinds.wandb.wandb_agents:WandbAgents",
        "in any position: no other asks it at once",
    ),
    PartRow("fleetctl.engine.kinds.notices.delivery:NoticeDelivery", "Notifiers wake it"),
    PartRow(
        "fleetctl.engine.execute.retention:Retention", "in any position: no other asks it at once"
    ),
)


def build_parts(wiring: PartWiring) -> EngineParts:
    """Builds all parts in their order, into the parts of the wiring."""
    for path in list_paths():
        module, _, name = path.partition(":")
        sort: type[EnginePart] = getattr(import_module(module), name)
        wiring.parts.add(sort.build(wiring))
    return wiring.parts


def list_paths() -> list[str]:
    """Returns module:class of each part, in their order."""
    first = [KINDS[row.part].part if row.part in KINDS else row.part for row in PART_ORDER]
    of_kinds = [kind.part for kind in KINDS.values() if kind.part]
    return list(dict.fromkeys([*first, *of_kinds]))

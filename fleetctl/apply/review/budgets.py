"""Budgets that the new side declares, held against what all of it may cost. Called by compare.py
and risks.py; pure. What is used of one already, only a store knows: see live.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleetctl.apply.cost.caps import OWN
from fleetctl.apply.cost.estimate import FREE, Cost
from fleetctl.apply.cost.report import Report
from fleetctl.apply.cost.words import figure
from fleetctl.common.text import usd


@dataclass(frozen=True, slots=True)
class Held:
    """A budget and what the work under it costs, from nothing."""

    owner: str
    max_usd: float
    cost: Cost

    @property
    def over(self) -> bool:
        """Whether it may reach the cap; what nothing bounds may."""
        return self.cost.high is None or self.cost.high > self.max_usd

    @property
    def sentence(self) -> str:
        most = "nothing bounds it" if self.cost.high is None else figure(self.cost)
        return f"{self.owner}: a cap of {usd(self.max_usd)}; all work under it: {most}"


def held(found: Report) -> list[Held]:
    """Of Budget objects one each, then of each object that has its own."""
    shared: dict[str, Held] = {}
    own: list[Held] = []
    for it in found.objects:
        for cap in it.work.caps if it.work is not None else ():
            assert it.work is not None
            if cap.owner == OWN:
                own.append(Held(f"the budget of {it.change.key}", cap.max_usd, it.work.now))
                continue
            before = shared.get(cap.owner)
            cost = (before.cost if before is not None else FREE) + it.work.now
            shared[cap.owner] = Held(cap.owner, cap.max_usd, cost)
    return [*(shared[key] for key in sorted(shared)), *own]


def budgets_of(found: Report) -> tuple[str, ...]:
    return tuple(_told(found))


def _told(found: Report) -> Iterator[str]:
    for it in held(found):
        if not it.owner.startswith("the budget of"):
            yield it.sentence

"""The parts of the campaign: the wanted number of trials, and the function that plays a piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """piece: how many one piece comes to. run: plays the piece of a number; how many it came to,
    and a sentence for each finding. module: imported before pieces are forked, so that they share
    the import. beside: pieces at once of a part that waits most of its time,
    and so takes none of the processes of the others; 0 for parts that compute.
    """

    name: str
    what: str
    unit: str
    wanted: int
    piece: int
    run: Callable[[int], tuple[int, list[str]]]
    module: str
    beside: int = 0


def _kill(number: int) -> tuple[int, list[str]]:
    from tests.soak.everything import kill_everything

    return kill_everything(number, kills=KILLS)


def _validate(number: int) -> tuple[int, list[str]]:
    from tests.campaign.manifests import validate_mutated

    return validate_mutated(number, count=MANIFESTS)


def _cut(number: int) -> tuple[int, list[str]]:
    from tests.campaign.power_cuts import cut_power

    return cut_power(number, cuts=CUTS)


def _attack(number: int) -> tuple[int, list[str]]:
    from tests.campaign.hostile import attack

    return attack(number, count=ATTACKS)


def _live(number: int) -> tuple[int, list[str]]:
    from tests.simulation.runner import simulate

    seeds = range(LIVES * number, LIVES * (number + 1))
    outcomes = map(simulate, seeds)
    return LIVES, [f"seed {it.seed}: {text}" for it in outcomes for text in it.broken]


# Trials of one piece. The first manifests of a process cost ten times the others, for imports.
KILLS, MANIFESTS, CUTS, ATTACKS, LIVES = 20, 6_000, 150, 25, 50

PARTS = {
    it.name: it
    for it in (
        Part(
            "kills",
            "`kill -9` of controllers, supervisors, gateways and tasks that work",
            "kills",
            2_000,
            KILLS,
            _kill,
            "tests.soak.everything",
            beside=8,
        ),
        Part(
            "manifests",
            "manifests that were changed by chance, through `validate`",
            "manifests",
            1_000_000,
            MANIFESTS,
            _validate,
            "tests.campaign.manifests",
        ),
        Part(
            "cuts",
            "power cuts of the store, at its syncs and between",
            "power cuts",
            20_000,
            CUTS,
            _cut,
            "tests.campaign.power_cuts",
        ),
        Part(
            "hostile",
            "hostile archives, repositories and backups",
            "attacks",
            500,
            ATTACKS,
            _attack,
            "tests.campaign.hostile",
        ),
        Part(
            "lives",
            "simulated lives of the engine, with crashes and faults",
            "lives",
            100_000,
            LIVES,
            _live,
            "tests.simulation.runner",
        ),
    )
}

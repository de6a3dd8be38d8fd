"""All safety invariants: which run after every change at a provider, and which after every commit.

Numbers such as I4 are those of the project's list of invariants. What must be reached in the end is
in liveness.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.bookings import BOOKING_CHECKS
from tests.simulation.cache_checks import CACHE_CHECKS
from tests.simulation.chains import CHAIN_CHECKS
from tests.simulation.desired_checks import DESIRED_CHECKS
from tests.simulation.early_ends import EARLY_CHECKS
from tests.simulation.givers import GIVER_CHECKS
from tests.simulation.money_checks import BILL_CHECKS, MONEY_CHECKS
from tests.simulation.place_checks import PLACE_COMMIT_CHECKS, PLACE_EFFECT_CHECKS
from tests.simulation.queues import QUEUE_COMMIT_CHECKS, QUEUE_EFFECT_CHECKS
from tests.simulation.record_checks import RECORD_CHECKS
from tests.simulation.rows import ROW_CHECKS
from tests.simulation.savings import SAVING_CHECKS
from tests.simulation.scene import Check, Scene
from tests.simulation.searches import SEARCH_CHECKS
from tests.simulation.wandb import WANDB_CHECKS
from tests.simulation.world_checks import WORLD_CHECKS

COMMIT_CHECKS: tuple[Check, ...] = (
    *RECORD_CHECKS,
    *BOOKING_CHECKS,
    *CACHE_CHECKS,
    *ROW_CHECKS,
    *CHAIN_CHECKS,
    *DESIRED_CHECKS,
    *PLACE_COMMIT_CHECKS,
    *MONEY_CHECKS,
    *EARLY_CHECKS,
    *GIVER_CHECKS,
    *QUEUE_COMMIT_CHECKS,
    *SAVING_CHECKS,
    *SEARCH_CHECKS,
    *WANDB_CHECKS,
)
EFFECT_CHECKS: tuple[Check, ...] = (
    *WORLD_CHECKS,
    *PLACE_EFFECT_CHECKS,
    *BILL_CHECKS,
    *QUEUE_EFFECT_CHECKS,
)

__all__ = ["COMMIT_CHECKS", "EFFECT_CHECKS", "broken"]


def broken(scene: Scene, checks: tuple[Check, ...]) -> Iterator[str]:
    """One text per breach: the invariant's sentence and what broke it."""
    for check in checks:
        for what in check(scene):
            sentence = " ".join((check.__doc__ or "").split())
            yield f"{sentence} -- {what}"

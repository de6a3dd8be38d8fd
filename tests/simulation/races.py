"""Generated scenarios in which the store changes under somebody's hands: a deletion overtakes an
edit, a row is damaged while its work goes on, a volume changes between two uses of one result.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation import objects
from tests.simulation.objects import GONE, Spec, Wanted
from tests.simulation.scenario import Desired, Scenario, apply, later, make, say

VOLUME_CHANGES_S = (10.0, 60.0, 200.0)


def _overtaken(rng: random.Random, name: str, provider: str) -> Scenario:
    """What was opened for editing is deleted, and then the edit is written."""
    wanted = objects.job(rng, provider=provider)
    desired_rows = [apply(0.0, wanted), say(later(rng), "overtake", wanted)]
    return make(name, provider, desired_rows, wanted.changed(GONE))


def _damaged(rng: random.Random, name: str, provider: str) -> Scenario:
    """A row cannot be read any more while the object's long work goes on; at last it is deleted."""
    tasks: list[Spec] = [
        {"n": n, "seconds": objects.ENDLESS_S, "fails": 0} for n in range(rng.randint(1, 4))
    ]
    hurt = objects.job_of(rng, tasks, provider=provider, template={"command": ["work"]})
    desired_rows = [apply(0.0, hurt), say(later(rng), "damage", hurt)]
    play = make(name, provider, desired_rows, hurt.changed(GONE))
    return replace(play, afterwards=(say(0.0, "delete", hurt),))


def _volume_changes(rng: random.Random, name: str, provider: str) -> Scenario:
    """Two objects with equal work on one volume, which may be another by the second's time."""
    tasks = [objects.task(rng, number=n, backoff_limit=0, may_fail=False) for n in range(3)]
    template = {"command": ["work"], "volumes": [{"name": "vol", "mountPath": "/data"}]}
    vol = Wanted("Volume", "vol", {"provider": provider}, objects.READY)
    desired_rows: list[Desired] = [apply(0.0, vol)]
    users, at_s = [], 0.0
    for number, which in enumerate(("one", "two", "three")):
        if number and rng.random() < 0.6:
            policy = ("Delete", "Retain")[number % 2]
            vol = vol.changed(deletionPolicy=policy)
            desired_rows.append(apply(at_s, vol))
        users.append(
            objects.job_of(
                rng,
                tasks,
                provider=provider,
                name=which,
                template=template,
                cache={"policy": "ReuseSucceeded"},
            )
        )
        desired_rows.append(apply(at_s + 0.1, users[-1]))
        at_s += rng.choice(VOLUME_CHANGES_S)
    return make(name, provider, desired_rows, vol, *users)


NAMED: dict[str, Callable[[random.Random, str, str], Scenario]] = {
    "overtaken": _overtaken,
    "damaged": _damaged,
    "volume-changes": _volume_changes,
}

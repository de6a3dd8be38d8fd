"""Scenarios with budgets: caps that hold one object or several, that are raised, that begin anew
with a day; tasks that take less than they may, or cannot be paid at all.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation import gpus, objects, places
from tests.simulation.models import MODELS
from tests.simulation.objects import GONE, READY, Expect, Spec, Wanted
from tests.simulation.scenario import Scenario, apply, later, make, say

TIMEOUT_S = 30.0
GRACE_S = 10.0
WORST_S = TIMEOUT_S + GRACE_S  # of one task
TEMPLATE: Spec = {
    "command": ["work"],
    "timeoutSeconds": TIMEOUT_S,
    "terminationGracePeriodSeconds": GRACE_S,
}
# From the begin of simulated time, at 08:00 UTC, to the midnight after it.
MIDNIGHT_S = 16 * 3600.0

ANY_END = Expect("Pending|Running|Succeeded|Failed", waits_for=frozenset({"BudgetExhausted"}))
PLENTY_USD = 1_000.0


def _job(rng: random.Random, provider: str, name: str = "job", **more: object) -> Wanted:
    count = rng.randint(4, 10)
    tasks: list[Spec] = [
        {"n": n, "seconds": round(rng.uniform(1.0, 28.0), 2), "fails": rng.choice((0, 0, 0, 1))}
        for n in range(count)
    ]
    backoff_limit = 1
    wanted = objects.job_of(
        rng, tasks, provider=provider, name=name, backoff_limit=backoff_limit, template=TEMPLATE
    )
    return wanted.changed(**more)


def _cap(rng: random.Random, provider: str, *, least: float = 1.0, most: float = 5.0) -> float:
    """As much as so many tasks cost at worst."""
    return round(MODELS[provider].usd_per_s * WORST_S * rng.uniform(least, most), 6)


def _budget(max_usd: float, *, period: str = "total", **selector: str) -> Wanted:
    spec: Spec = {"maxCost": max_usd, "period": period, "selector": selector}
    return Wanted("Budget", "team", spec, READY)


def _own(rng: random.Random, name: str, provider: str) -> Scenario:
    """One object with a cap, which is perhaps raised."""
    poor = _job(rng, provider, budget={"maxCost": _cap(rng, provider)})
    if rng.random() < 0.5:
        return make(name, provider, [apply(0.0, poor)], poor.changed(ANY_END))
    rich = poor.changed(budget={"maxCost": PLENTY_USD})
    return make(name, provider, [apply(0.0, poor), apply(later(rng), rich)], rich)


def _cancelled(rng: random.Random, name: str, provider: str) -> Scenario:
    budget = {"maxCost": _cap(rng, provider), "onExceeded": "Cancel"}
    wanted = _job(rng, provider, budget=budget)
    ends = wanted.changed(Expect("Failed|Succeeded"))
    return make(name, provider, [apply(0.0, wanted)], ends)


def _shared(rng: random.Random, name: str, provider: str) -> Scenario:
    """Several objects under one Budget: one is deleted and comes again, one is not selected."""
    team = _budget(_cap(rng, provider, least=1.0, most=8.0), team="a")
    jobs = [replace(_job(rng, provider, it), labels={"team": "a"}) for it in ("one", "two")]
    other = _job(rng, provider, "other", parallelism=1)
    t1 = later(rng)
    desired_rows = [
        apply(0.0, team),
        apply(0.0, jobs[0]),
        apply(rng.choice((0.0, 5.0)), jobs[1]),
        apply(0.0, other),
        say(t1, "delete", jobs[0]),
    ]
    again = rng.random() < 0.5
    if again:
        desired_rows.append(apply(t1 + rng.choice((0.0, 1.0, 60.0)), jobs[0]))
    ends = [jobs[0].changed(ANY_END if again else GONE), jobs[1].changed(ANY_END)]
    if rng.random() < 0.4:
        rich = team.changed(maxCost=PLENTY_USD)
        desired_rows.append(apply(desired_rows[-1].at_s + later(rng), rich))
        ends = [jobs[0] if again else jobs[0].changed(GONE), jobs[1]]
    desired_rows.sort(key=lambda desired: desired.at_s)
    return make(name, provider, desired_rows, team, other, *ends)


def _unpriced(rng: random.Random, name: str, provider: str) -> Scenario:
    """Nobody knows a price, so nothing starts, until the template asks for something else."""
    cap = {"maxCost": _cap(rng, provider, least=3.0)}
    dark = _job(rng, provider, budget=cap, template=TEMPLATE | {"env": {"PRICELESS": "1"}})
    if rng.random() < 0.5:
        stuck = dark.changed(
            Expect("Pending", frozenset(), frozenset(), frozenset({"PriceUnknown"}))
        )
        return make(name, provider, [apply(0.0, dark)], stuck)
    known = dark.changed(template=TEMPLATE, budget={"maxCost": PLENTY_USD})
    return make(name, provider, [apply(0.0, dark), apply(later(rng), known)], known)


def _either(rng: random.Random, name: str, provider: str) -> Scenario:
    """Whichever GPU is free: nobody knows which one it will be, and one costs much more."""
    listed = ["T4", "H100"] if rng.random() < 0.5 else ["H100", "T4"]
    template = TEMPLATE | {"runtime": "function", "resources": {"gpu": listed}}
    cap = _cap(rng, provider, most=6.0) * gpus.FACTORS["H100"]
    poor = _job(rng, provider, budget={"maxCost": cap}, template=template)
    if rng.random() < 0.5:
        return make(name, provider, [apply(0.0, poor)], poor.changed(ANY_END))
    rich = poor.changed(budget={"maxCost": PLENTY_USD})
    return make(name, provider, [apply(0.0, poor), apply(later(rng), rich)], rich)


def _turn_of_day(rng: random.Random, name: str, provider: str) -> Scenario:
    """A daily cap that pays only a part of the work, which goes on after midnight."""
    provider = (
        "strict"  # where creating a sandbox costs next to nothing, so that the end is certain
    )
    tasks: list[Spec] = [{"n": n, "seconds": 25.0, "fails": 0} for n in range(3)]
    job = objects.job_of(rng, tasks, provider=provider, template=TEMPLATE)
    # When two are done, the third does not fit any more that day, and each one fits the next.
    team = _budget(_cap(rng, provider, least=1.9, most=2.1), period="day")
    play = make(name, provider, [apply(0.0, team), apply(1.0, job)], team, job)
    # What faults end costs too: then two are done on the second day, and the third on the next.
    begins_s = MIDNIGHT_S - rng.uniform(700.0, 1_500.0)
    return replace(play, later_s=begins_s, patience_s=24 * 3600.0)


def _places(rng: random.Random, name: str, provider: str) -> Scenario:
    """The best place is so dear that the cap pays for few there, and for more at a cheaper one."""
    other = rng.choice([it for it in MODELS if it != provider])
    dear_usd = MODELS[provider].usd_per_s * rng.choice((3.0, 12.0))
    dear = places.provider(provider, prices={"perHour": dear_usd * 3600.0})
    placed = {"ordered": [{"provider": it} for it in (provider, other)]}
    job = _job(rng, "", budget={"maxCost": _cap(rng, other, most=9.0)})
    job = job.changed(ANY_END, placement=placed)
    return make(name, provider, [apply(0.0, dear), apply(0.1, job)], job, dear)


SCENARIOS: dict[str, Callable[[random.Random, str, str], Scenario]] = {
    "budget-own": _own,
    "budget-cancelled": _cancelled,
    "budget-shared": _shared,
    "budget-unpriced": _unpriced,
    "budget-turn-of-day": _turn_of_day,
    "budget-places": _places,
    "budget-either": _either,
}

"""Generated scenarios over several providers: quotas that come and go, limits and prices that
people change, and work that runs over from one place to the next.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation import objects
from tests.simulation.models import MODELS
from tests.simulation.objects import GONE, READY, Spec, Wanted
from tests.simulation.scenario import Desired, Quota, Scenario, apply, later, make, say


def _several(rng: random.Random, first: str) -> list[str]:
    others = rng.sample([name for name in MODELS if name != first], rng.randint(1, 2))
    return [first, *others]


def _placement(rng: random.Random, names: list[str], form: str = "ordered") -> Spec:
    after_s = rng.choice((0, 5, 30))
    candidates = [{"provider": name} for name in names]
    return {form: candidates, "spillOver": {"afterSeconds": after_s}}


def _job(rng: random.Random, name: str, placement: Spec, **more: object) -> Wanted:
    job = objects.job(rng, provider="", name=name, **more)  # type: ignore[arg-type]
    return job.changed(placement=placement, parallelism=rng.randint(2, 6))


def provider(name: str, **spec: object) -> Wanted:
    return Wanted("Provider", name, dict(spec), READY)


def _quotas(rng: random.Random, names: list[str]) -> tuple[Quota, ...]:
    """Two for each place but the last; they may overlap, and then the smaller holds."""
    found = []
    for name in names[:-1]:
        for _ in range(2):
            from_s = rng.choice((0.0, 5.0, 60.0))
            found.append(
                Quota(name, from_s, from_s + rng.choice((40, 150, 400)), rng.randint(0, 2))
            )
    return tuple(found)


def _spill(rng: random.Random, name: str, first: str) -> Scenario:
    """One job that runs over, and sometimes back."""
    names = _several(rng, first)
    more: Spec = {"sandbox": {"reuse": rng.choice((2, "all"))}} if rng.random() < 0.3 else {}
    job = _job(rng, "job", _placement(rng, names, rng.choice(("ordered", "anyOf"))), **more)
    desired_rows = [apply(0.0, job)]
    quotas = _quotas(rng, names)
    if rng.random() < 0.2:
        desired_rows.append(say(later(rng), "delete", job))
        return make(name, first, desired_rows, job.changed(GONE), quotas=quotas)
    return make(name, first, desired_rows, job, quotas=quotas)


def _placement_changes(rng: random.Random, name: str, first: str) -> Scenario:
    names = _several(rng, first)
    a = _job(rng, "job", _placement(rng, names))
    b = a.changed(placement=_placement(rng, names[::-1]))
    desired_rows = [apply(0.0, a), apply(later(rng), b)]
    if rng.random() < 0.5:
        desired_rows.append(apply(desired_rows[-1].at_s + later(rng), a))
        return make(name, first, desired_rows, a, quotas=_quotas(rng, names))
    return make(name, first, desired_rows, b, quotas=_quotas(rng, names))


def _limits(rng: random.Random, name: str, first: str) -> Scenario:
    """Two jobs at places whose limits are set, changed, lifted and set again."""
    names = _several(rng, first)
    jobs = [_job(rng, it, _placement(rng, names), tasks_max=5) for it in ("one", "two")]
    desired_rows = [apply(rng.choice((0.0, 3.0)), it) for it in jobs]
    ends = list(jobs)
    for place in names[: rng.randint(1, 2)]:
        desired_now, end = _changes(rng, place)
        desired_rows += desired_now
        ends.append(end)
    return make(name, first, desired_rows, *ends, quotas=_quotas(rng, names)[:1])


def _changes(rng: random.Random, place: str) -> tuple[list[Desired], Wanted]:
    a = provider(place, limits={"maxConcurrent": rng.randint(1, 3)})
    b = provider(place, limits={"maxConcurrent": rng.randint(1, 4)})
    desired_rows = [apply(0.0, a), apply(later(rng), b)]
    if rng.random() < 0.4:
        desired_rows.append(say(desired_rows[-1].at_s + later(rng), "delete", b))
        if rng.random() < 0.5:
            desired_rows.append(apply(desired_rows[-1].at_s + rng.choice((0.1, 20.0)), a))
            return desired_rows, a
        return desired_rows, b.changed(GONE)
    return desired_rows, b


def _minutes(rng: random.Random, name: str, first: str) -> Scenario:
    """Few creates a minute."""
    names = _several(rng, first)
    job = _job(rng, "job", _placement(rng, names[: rng.randint(1, 2)]))
    slow = provider(first, limits={"createsPerMinute": rng.randint(1, 4)})
    return make(name, first, [apply(0.0, slow), apply(0.1, job)], job, slow)


def _cheapest(rng: random.Random, name: str, first: str) -> Scenario:
    """Prices of the user's own, and breakers that let few run at once."""
    names = _several(rng, first)
    objects_, desired_rows = [], []
    for place in names:
        price = rng.choice((0.5, 1.0, 2.0))
        most = price * rng.choice((1, 1.5, 3))
        said = provider(place, prices={"perHour": price}, breaker={"maxSpendPerHour": most})
        objects_.append(said)
        desired_rows.append(apply(0.0, said))
    job = _job(rng, "job", _placement(rng, names, "anyOf"))
    return make(name, first, [*desired_rows, apply(0.1, job)], job, *objects_)


SCENARIOS: dict[str, Callable[[random.Random, str, str], Scenario]] = {
    "spill": _spill,
    "placement-changes": _placement_changes,
    "limits": _limits,
    "minutes": _minutes,
    "cheapest": _cheapest,
}

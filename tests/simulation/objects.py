"""Generated specs, each with what must come of it in the end, whatever faults happen on the way.

A task's parameters are its script: `seconds` it works, `fails` times that it fails first, `metrics`
it reports. A number of failures is either within the backoff limit or endless, so the end is
certain.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from tests.simulation.world import FAILS_ALWAYS

Spec = dict[str, object]

ENDLESS_S = 1e6


@dataclass(frozen=True, slots=True)
class Expect:
    """How an object ends. None = not said: the faults may decide."""

    phase: str
    succeeded: frozenset[int] | None = None
    failed: frozenset[int] | None = None
    waits_for: frozenset[str] = frozenset()  # while it is not over, the reason must be one of these


GONE = Expect("Gone")
SUSPENDED = Expect("Suspended")
READY = Expect("Ready")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A spec and its end."""

    kind: str
    name: str
    spec: Spec
    expect: Expect
    labels: dict[str, str] = field(default_factory=dict)

    def changed(self, expect: Expect | None = None, **changes: object) -> Wanted:
        """The same object with other fields in its spec."""
        return replace(self, spec=self.spec | changes, expect=expect or self.expect)


def task(rng: random.Random, *, number: int, backoff_limit: int, may_fail: bool) -> Spec:
    """The parameters of one task. `n` tells it apart from its siblings."""
    fails = 0
    if rng.random() < 0.3:
        fails = rng.randint(0, backoff_limit)
    if may_fail and rng.random() < 0.15:
        fails = FAILS_ALWAYS
    seconds = round(rng.choice((0.2, 2.0, 10.0, 40.0)) * rng.uniform(0.5, 1.5), 2)
    return {"n": number, "seconds": seconds, "fails": fails, "metrics": rng.choice((0, 0, 1, 3))}


def job_of(
    rng: random.Random,
    tasks: list[Spec],
    *,
    provider: str,
    name: str = "job",
    backoff_limit: int = 0,
    **more: object,
) -> Wanted:
    spec: Spec = {
        "parallelism": rng.randint(1, 4),
        "backoffLimitPerIndex": backoff_limit,
        "retry": {"backoff": {"initial": rng.choice((1, 5)), "max": 60}},
        "seed": rng.randint(0, 9),
        "placement": {"provider": provider},
        "tasks": {"items": tasks},
        "template": {"command": ["work"], "timeoutSeconds": 90},
    }
    return Wanted("BatchJob", name, spec | more, end_of(tasks, backoff_limit))


def end_of(tasks: list[Spec], backoff_limit: int) -> Expect:
    failed = frozenset(i for i, it in enumerate(tasks) if float(str(it["fails"])) > backoff_limit)
    succeeded = frozenset(range(len(tasks))) - failed
    return Expect("Failed" if failed else "Succeeded", succeeded, failed)


def job(
    rng: random.Random,
    *,
    provider: str,
    name: str = "job",
    tasks_max: int = 7,
    may_fail: bool = True,
    **more: object,
) -> Wanted:
    backoff_limit = rng.randint(0, 2)
    count = rng.randint(2, tasks_max)
    tasks = [
        task(rng, number=n, backoff_limit=backoff_limit, may_fail=may_fail) for n in range(count)
    ]
    return job_of(rng, tasks, provider=provider, name=name, backoff_limit=backoff_limit, **more)


def grid(rng: random.Random, *, provider: str, name: str = "sweep") -> Wanted:
    lrs = [0.1, 0.2, 0.3][: rng.randint(1, 3)]
    seconds = [1, 12][: rng.randint(1, 2)]
    search: Spec = {
        "method": "grid",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {
            "lr": {"values": lrs},
            "seconds": {"values": seconds},
            "metrics": {"value": 1},
        },
    }
    return sweep_of(rng, search, provider, name, points=len(lrs) * len(seconds))


def random_search(rng: random.Random, *, provider: str, name: str = "sweep") -> Wanted:
    trials = rng.randint(2, 5)
    search: Spec = {
        "method": "random",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"lr": {"min": 0.0, "max": 1.0}, "seconds": {"values": [1, 5, 20]}},
        "run_cap": trials,
    }
    return sweep_of(rng, search, provider, name, points=trials)


def sweep_of(rng: random.Random, search: Spec, provider: str, name: str, *, points: int) -> Wanted:
    spec: Spec = {
        "search": search,
        "parallelism": rng.randint(1, 3),
        "trialsPerWorker": rng.choice((1, 1, 2)),
        "seed": rng.randint(0, 9),
        "placement": {"provider": provider},
        "template": {"command": ["work"]},
    }
    return Wanted("Sweep", name, spec, Expect("Succeeded", frozenset(range(points)), frozenset()))


def training(rng: random.Random, *, provider: str, name: str = "train") -> Wanted:
    restarts = rng.randint(0, 2)
    stages = []
    for number in range(rng.randint(1, 3)):
        fails = rng.randint(0, restarts)
        env = {"seconds": rng.choice(("1", "8", "30")), "fails": str(fails), "metrics": "2"}
        stages.append({"name": f"stage-{number}", "env": env})
    # By what is drawn already: another draw would be another life for every seed.
    nodes = (1, 2, {"min": 1, "max": 3})[len(stages) - 1]
    spec: Spec = {
        "nodes": nodes,
        "maxRestarts": restarts,
        "stages": stages,
        "placement": {"provider": provider},
        "template": {"command": ["train"]},
    }
    expect = Expect("Succeeded", frozenset(range(len(stages))), frozenset())
    return Wanted("TrainingRun", name, spec, expect)


def volume(rng: random.Random, *, provider: str, name: str = "vol") -> Wanted:
    policy = rng.choice(("Retain", "Delete"))
    return Wanted("Volume", name, {"provider": provider, "deletionPolicy": policy}, READY)

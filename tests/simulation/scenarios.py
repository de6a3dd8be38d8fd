"""Generated sequences of specs: which objects a person applies, changes and deletes, and when.

Each scenario is one line in SCENARIOS. The sequences are those that break operators in the field:
the desired state goes A, B, A; an object is deleted while it starts; the same name is applied again
at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation import (
    chains,
    early_ends,
    givers,
    money,
    objects,
    places,
    queues,
    races,
    rows,
    savings,
    searches,
    wandb,
)
from tests.simulation.models import MODELS
from tests.simulation.objects import GONE, SUSPENDED, Expect, Spec, Wanted
from tests.simulation.scenario import Desired, Scenario
from tests.simulation.scenario import apply as _apply
from tests.simulation.scenario import later as _later
from tests.simulation.scenario import make as _make
from tests.simulation.scenario import say as _say
from tests.simulation.world import FAILS_ALWAYS

ALWAYS_LOST = 9  # times; more often than any limit here allows


def draw(seed: int, *, only: str = "") -> Scenario:
    """The scenario of a seed; `only` names one in place of the seed's own choice."""
    rng = random.Random(f"scenario {seed}")
    provider = rng.choice(tuple(MODELS))
    name = rng.choice((*SCENARIOS, *OFTEN))
    return {**SCENARIOS, **NAMED}[only or name](rng, only or name, provider)


def _any_object(rng: random.Random, provider: str) -> Wanted:
    make = rng.choice(
        (objects.job, objects.job, objects.grid, objects.random_search, objects.training)
    )
    return make(rng, provider=provider)


def _single(rng: random.Random, name: str, provider: str) -> Scenario:
    wanted = _any_object(rng, provider)
    return _make(name, provider, [_apply(0.0, wanted)], wanted, orphans=rng.randint(0, 1))


def _parallelism(rng: random.Random, name: str, provider: str) -> Scenario:
    """A -> B -> A in parallelism, zero included."""
    a = objects.job(rng, provider=provider)
    b = a.changed(parallelism=rng.choice((0, 1, 2, 6)))
    t1 = _later(rng)
    return _make(name, provider, [_apply(0.0, a), _apply(t1, b), _apply(t1 + _later(rng), a)], a)


def _task_count(rng: random.Random, name: str, provider: str) -> Scenario:
    """More tasks, fewer tasks, and back."""
    limit = rng.randint(0, 2)
    tasks = [objects.task(rng, number=n, backoff_limit=limit, may_fail=False) for n in range(6)]
    few, more = rng.randint(1, 5), 6
    first, second = rng.choice(((few, more), (more, few)))
    a = objects.job_of(rng, tasks[:first], provider=provider, backoff_limit=limit)
    b = a.changed(objects.end_of(tasks[:second], limit), tasks={"items": tasks[:second]})
    desired_rows = [_apply(0.0, a), _apply(_later(rng), b)]
    if rng.random() < 0.5:
        desired_rows.append(_apply(desired_rows[-1].at_s + _later(rng), a))
        return _make(name, provider, desired_rows, a)
    return _make(name, provider, desired_rows, b)


def _template(rng: random.Random, name: str, provider: str) -> Scenario:
    """A changed template, with both rollouts, perhaps changed back."""
    limit = rng.randint(0, 1)
    tasks = [objects.task(rng, number=n, backoff_limit=limit, may_fail=True) for n in range(5)]
    for each in tasks[:3]:
        # One failure under each template is within the limit, one under both together is not.
        each["fails"] = max(limit, float(str(each["fails"])))
    rollout = rng.choice(("Replace", "FinishRunning"))
    a = objects.job_of(rng, tasks, provider=provider, backoff_limit=limit, rollout=rollout)
    b = a.changed(template={"command": ["work", "better"], "timeoutSeconds": 90})
    if rng.random() < 0.2:
        b = b.changed(onChange="Keep")
    desired_rows = [_apply(0.0, a), _apply(_later(rng), b)]
    if rng.random() < 0.5:
        desired_rows.append(_apply(desired_rows[-1].at_s + _later(rng), a))
    return _make(name, provider, desired_rows, b)


def _suspend(rng: random.Random, name: str, provider: str) -> Scenario:
    wanted = _any_object(rng, provider)
    desired_rows = [_apply(0.0, wanted), _say(_later(rng), "suspend", wanted)]
    if rng.random() < 0.7:
        desired_rows.append(_say(desired_rows[-1].at_s + _later(rng), "resume", wanted))
        return _make(name, provider, desired_rows, wanted)
    # What was over before the suspension stays over.
    return _make(name, provider, desired_rows, wanted.changed(Expect("Suspended|Succeeded|Failed")))


def _suspended_and_applied(rng: random.Random, name: str, provider: str) -> Scenario:
    """Suspended by hand before anything has begun, then its file is applied again."""
    paused = objects.job(rng, provider=provider, parallelism=0)
    again = paused.changed(parallelism=rng.choice((1, 2, 6)))
    desired_rows = [_apply(0.0, paused), _say(_later(rng), "suspend", paused)]
    desired_rows.append(_apply(desired_rows[-1].at_s + _later(rng), again))
    if rng.random() < 0.3:
        desired_rows.append(_say(desired_rows[-1].at_s + _later(rng), "resume", again))
        return _make(name, provider, desired_rows, again)
    return _make(name, provider, desired_rows, again.changed(SUSPENDED))


def _suspended_at_birth(rng: random.Random, name: str, provider: str) -> Scenario:
    wanted = objects.job(rng, provider=provider, suspend=True)
    if rng.random() < 0.5:
        return _make(name, provider, [_apply(0.0, wanted)], wanted.changed(SUSPENDED))
    desired_rows = [_apply(0.0, wanted), _say(_later(rng), "resume", wanted)]
    return _make(name, provider, desired_rows, wanted)


def _delete(rng: random.Random, name: str, provider: str) -> Scenario:
    wanted = _any_object(rng, provider)
    desired_rows = [_apply(0.0, wanted), _say(_later(rng), "delete", wanted)]
    return _make(name, provider, desired_rows, wanted.changed(GONE))


def _reapply(rng: random.Random, name: str, provider: str) -> Scenario:
    """Deleted, and the same name desired again at once, as it was or otherwise."""
    a = objects.job(rng, provider=provider)
    b = a if rng.random() < 0.5 else objects.job(rng, provider=provider)
    t1 = _later(rng)
    desired_rows = [
        _apply(0.0, a),
        _say(t1, "delete", a),
        _apply(t1 + rng.choice((0.0, 0.1, 20.0)), b),
    ]
    return _make(name, provider, desired_rows, b)


def _twice(rng: random.Random, name: str, provider: str) -> Scenario:
    """The same manifest again changes nothing."""
    wanted = _any_object(rng, provider)
    return _make(name, provider, [_apply(0.0, wanted), _apply(_later(rng), wanted)], wanted)


def _reuse(rng: random.Random, name: str, provider: str) -> Scenario:
    sandbox = {"reuse": rng.choice((2, 3, "all"))}
    wanted = objects.job(rng, provider=provider, sandbox=sandbox)
    desired_rows = [_apply(0.0, wanted)]
    if rng.random() < 0.3:
        desired_rows.append(_say(_later(rng), "delete", wanted))
        return _make(name, provider, desired_rows, wanted.changed(GONE))
    return _make(name, provider, desired_rows, wanted)


def _workers(rng: random.Random, name: str, provider: str) -> Scenario:
    """Tasks that share a sandbox until it is old, which none of them is cut by."""
    sandbox = {"reuse": "all", "maxLifetimeSeconds": rng.choice((10.0, 30.0))}
    tasks: list[Spec] = [{"n": n, "seconds": 4.0, "fails": 0} for n in range(12)]
    wanted = objects.job_of(rng, tasks, provider=provider, sandbox=sandbox, parallelism=1)
    return _make(name, provider, [_apply(0.0, wanted)], wanted)


def _grid_grows(rng: random.Random, name: str, provider: str) -> Scenario:
    a = objects.grid(rng, provider=provider)
    search: dict[str, object] = dict(a.spec["search"])  # type: ignore[call-overload]
    parameters: dict[str, Spec] = dict(search["parameters"])  # type: ignore[call-overload]
    values = [*parameters["lr"]["values"], 0.9]  # type: ignore[misc]
    parameters["lr"] = {"values": values}
    points = len(values) * len(parameters["seconds"]["values"])  # type: ignore[arg-type]
    b = a.changed(
        Expect("Succeeded", frozenset(range(points)), frozenset()),
        search=search | {"parameters": parameters},
    )
    return _make(name, provider, [_apply(0.0, a), _apply(_later(rng), b)], b)


def _volumes(rng: random.Random, name: str, provider: str) -> Scenario:
    vol = objects.volume(rng, provider=provider)
    template = {"command": ["work"], "volumes": [{"name": "vol", "mountPath": "/data"}]}
    user = objects.job(rng, provider=provider, tasks_max=4, template=template)
    desired_rows = [_apply(0.0, vol), _apply(0.0, user)]
    if rng.random() < 0.5:
        t1 = _later(rng)
        desired_rows += [_say(t1, "delete", user), _say(t1, "delete", vol)]
        return _make(name, provider, desired_rows, vol.changed(GONE), user.changed(GONE))
    return _make(name, provider, desired_rows, vol, user)


def _refused(rng: random.Random, name: str, provider: str) -> Scenario:
    """A template that the provider refuses, then one that it takes."""
    good = objects.job(rng, provider=provider, tasks_max=4)
    bad = good.changed(
        Expect("Failed", frozenset()), template={"command": ["work"], "env": {"REFUSE": "1"}}
    )
    if rng.random() < 0.4:
        return _make(name, provider, [_apply(0.0, bad)], bad)
    return _make(name, provider, [_apply(0.0, bad), _apply(_later(rng), good)], good)


def _deadline(rng: random.Random, name: str, provider: str) -> Scenario:
    tasks: list[Spec] = [
        {"n": n, "seconds": objects.ENDLESS_S, "fails": 0} for n in range(rng.randint(1, 4))
    ]
    wanted = objects.job_of(
        rng,
        tasks,
        provider=provider,
        activeDeadlineSeconds=rng.choice((5, 45)),
        template={"command": ["work"]},
    )
    return _make(
        name,
        provider,
        [_apply(0.0, wanted)],
        wanted.changed(Expect("Failed", frozenset(), frozenset())),
    )


def _timeouts(rng: random.Random, name: str, provider: str) -> Scenario:
    tasks: list[Spec] = [{"n": n, "seconds": 1.0, "fails": 0} for n in range(3)]
    tasks[rng.randint(0, 2)]["seconds"] = objects.ENDLESS_S
    late = frozenset(i for i, it in enumerate(tasks) if it["seconds"] == objects.ENDLESS_S)
    template = {"command": ["work"], "timeoutSeconds": 8}
    wanted = objects.job_of(
        rng, tasks, provider=provider, backoff_limit=rng.randint(0, 1), template=template
    )
    return _make(
        name,
        provider,
        [_apply(0.0, wanted)],
        wanted.changed(Expect("Failed", frozenset(range(3)) - late, late)),
    )


def _ttl(rng: random.Random, name: str, provider: str) -> Scenario:
    wanted = objects.job(
        rng, provider=provider, tasks_max=4, ttlSecondsAfterFinished=rng.choice((0, 30))
    )
    return _make(name, provider, [_apply(0.0, wanted)], wanted)


def _gives_up(rng: random.Random, name: str, provider: str) -> Scenario:
    """The whole ends before all of its tasks did."""
    tasks: list[Spec] = [
        {"n": n, "seconds": 3.0 + n, "fails": FAILS_ALWAYS if n < 2 else 0} for n in range(6)
    ]
    limits: tuple[Spec, ...] = (
        {"maxFailedIndexes": 0},
        {"backoffLimit": 1},
        {"maxFailedIndexes": 1},
        {"maxInfraRetries": 1},
    )
    limit = rng.choice(limits)
    if "maxInfraRetries" in limit:
        tasks[-1]["lost"] = ALWAYS_LOST
    wanted = objects.job_of(rng, tasks, provider=provider)
    wanted = wanted.changed(Expect("Failed"), **limit)
    return _make(name, provider, [_apply(0.0, wanted)], wanted)


def _bulkhead(rng: random.Random, name: str, provider: str) -> Scenario:
    """One object cannot be read, one provider is down for long; the others go on."""
    others = [it for it in MODELS if it != provider]
    broken = rng.choice(others)
    good = objects.job(rng, provider=provider, name="good", tasks_max=4)
    stuck = objects.job(rng, provider=broken, name="stuck", tasks_max=3)
    desired_rows = [
        Desired(0.0, "poison", "BatchJob", "poison"),
        _apply(0.0, stuck),
        _apply(1.0, good),
    ]
    poison = Wanted("BatchJob", "poison", {}, GONE)
    play = _make(name, provider, desired_rows, good, stuck, poison, outage=broken)
    return replace(play, afterwards=(_say(0.0, "delete", poison),))


def _two_objects(rng: random.Random, name: str, provider: str) -> Scenario:
    one = objects.job(rng, provider=provider, name="one", tasks_max=4)
    two = objects.grid(rng, provider=rng.choice(tuple(MODELS)), name="two")
    desired_rows = [_apply(0.0, one), _apply(0.5, two), _say(_later(rng), "delete", one)]
    return _make(name, provider, desired_rows, one.changed(GONE), two, orphans=1)


def _crowd(rng: random.Random, name: str, provider: str) -> Scenario:
    """More objects than their provider has room for."""
    names = ("one", "two", "three")
    jobs = [
        objects.job(rng, provider=provider, name=it, tasks_max=4, parallelism=3) for it in names
    ]
    desired_rows = [_apply(number * rng.choice((0.0, 3.0)), it) for number, it in enumerate(jobs)]
    return _make(name, provider, sorted(desired_rows, key=lambda desired: desired.at_s), *jobs)


def _equal(rng: random.Random, name: str, provider: str) -> Scenario:
    """The same tasks in another object and after a deletion; one policy may be Never, one template
    other, and some of the work fails.
    """
    limit = rng.randint(0, 1)
    tasks = [objects.task(rng, number=n, backoff_limit=limit, may_fail=True) for n in range(4)]
    changes: tuple[Spec, ...] = (
        {},
        {"cache": {"policy": "Own"}},
        {"cache": {"policy": "Never"}},
        {"cache": {"policy": "ReuseSucceeded"}},
        {"cache": {"policy": "ReuseSucceeded"}, "template": {"command": ["work", "better"]}},
    )
    desired_rows, ends, at_s = [], [], 0.0
    for which in ("one", "two", "three"):
        chosen = rng.sample(tasks, rng.randint(1, len(tasks)))
        made = objects.job_of(rng, chosen, provider=provider, name=which, backoff_limit=limit)
        made = replace(made, spec=made.spec | rng.choice(changes))
        desired_rows.append(_apply(at_s, made))
        at_s += _later(rng)
        if which != "three" and rng.random() < 0.4:
            desired_rows.append(_say(at_s, "delete", made))
            made = made.changed(GONE)
        ends.append(made)
    return _make(name, provider, desired_rows, *ends)


def _retry(rng: random.Random, name: str, provider: str) -> Scenario:
    """All that has run is wanted again, in the middle or at the end, perhaps twice."""
    a = objects.job(rng, provider=provider)
    t1 = _later(rng)
    desired_rows = [_apply(0.0, a), _say(t1, "retry", a)]
    if rng.random() < 0.4:
        desired_rows.append(_say(t1 + _later(rng), "retry", a))
    return _make(name, provider, desired_rows, a)


def _again(rng: random.Random, name: str, provider: str) -> Scenario:
    """An object is deleted and applied again and again, in the middle of its work and after it,
    beside another with some of its tasks: whatever has succeeded is taken over.
    """
    limit = rng.randint(0, 1)
    tasks = [objects.task(rng, number=n, backoff_limit=limit, may_fail=True) for n in range(5)]
    sandbox: Spec = {"reuse": rng.choice((1, 1, 3))}
    a = objects.job_of(rng, tasks, provider=provider, backoff_limit=limit, sandbox=sandbox)
    chosen = rng.sample(tasks, rng.randint(1, 3))
    beside = objects.job_of(rng, chosen, provider=provider, name="beside", backoff_limit=limit)
    desired_rows, at_s = [_apply(0.0, a), _apply(rng.choice((0.0, 5.0, 40.0)), beside)], 0.0
    for _ in range(rng.randint(1, 3)):
        gone_s = at_s + _later(rng)
        at_s = gone_s + rng.choice((0.0, 0.1, 1.0, 20.0))
        desired_rows += [_say(gone_s, "delete", a), _apply(at_s, a)]
    return _make(name, provider, desired_rows, a, beside)


def _namespaces(rng: random.Random, name: str, provider: str) -> Scenario:
    """A job and its volume of equal names in two namespaces, and one pair is deleted: nothing of
    the other goes with it.
    """
    template = {"command": ["work"], "volumes": [{"name": "vol", "mountPath": "/data"}]}
    ours = [
        objects.volume(rng, provider=provider),
        objects.job(rng, provider=provider, tasks_max=4, template=template),
    ]
    theirs = [replace(it, name=f"team.{it.name}") for it in ours]
    stays, goes = (ours, theirs) if rng.random() < 0.5 else (theirs, ours)
    t1 = _later(rng)
    desired_rows = [_apply(0.0, it) for it in (*ours, *theirs)]
    desired_rows += [_say(t1, "delete", it) for it in reversed(goes)]
    return _make(name, provider, desired_rows, *stays, *(it.changed(GONE) for it in goes))


# The richest in states, so drawn more often than the others.
OFTEN = ("template", "template", "reuse", "reuse", "reuse")

SCENARIOS: dict[str, Callable[[random.Random, str, str], Scenario]] = {
    "single": _single,
    "parallelism": _parallelism,
    "task-count": _task_count,
    "template": _template,
    "suspend": _suspend,
    "suspended-at-birth": _suspended_at_birth,
    "delete": _delete,
    "reapply": _reapply,
    "twice": _twice,
    "reuse": _reuse,
    "grid-grows": _grid_grows,
    "volumes": _volumes,
    "refused": _refused,
    "deadline": _deadline,
    "timeouts": _timeouts,
    "ttl": _ttl,
    "gives-up": _gives_up,
    "bulkhead": _bulkhead,
    "two-objects": _two_objects,
    "crowd": _crowd,
    "equal": _equal,
    **places.SCENARIOS,
    **money.SCENARIOS,
}

# Played by name alone: one more among the others would deal all seeds anew.
NAMED: dict[str, Callable[[random.Random, str, str], Scenario]] = {
    "again": _again,
    "retry": _retry,
    "namespaces": _namespaces,
    "suspended-and-applied": _suspended_and_applied,
    "workers": _workers,
    "checkpoints": savings.trainings,
    **races.NAMED,
    **rows.NAMED,
    **early_ends.NAMED,
    **chains.NAMED,
    **givers.NAMED,
    **queues.NAMED,
    **searches.NAMED,
    **wandb.NAMED,
}

"""Rows of a job are inserted, removed, moved and repeated, reruns and undone edits among them: what
stays in the file keeps its work, whatever crashes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache

from fleetctl.controllers.model import CACHED, LIVE_STATES, Resource, Run, RunState
from fleetctl.specs.values.hashing import canonical_json
from fleetctl.tracking.annotations import RERUN
from tests.simulation import objects
from tests.simulation.desired_checks import read_desired
from tests.simulation.objects import Expect, Spec
from tests.simulation.scenario import Scenario, apply, later, make, say
from tests.simulation.scene import Scene
from tests.simulation.snapshot import parsed, spec, status

EDITS = ("insert", "remove", "move", "repeat", "replace")
UNHURRIED_S = 400.0  # after this all that was asked for is done, as a rule


def _rows(rng: random.Random, name: str, provider: str) -> Scenario:
    rows = [objects.task(rng, number=n, backoff_limit=0, may_fail=False) for n in range(5)]
    policy = rng.choice(("Own", "Own", "Never", "ReuseSucceeded"))
    start = [rows[0], *rng.choices(rows, k=rng.randint(1, 4))]
    made = objects.job_of(rng, start, provider=provider, cache={"policy": policy})
    made = made.changed(Expect("Succeeded"))
    versions, desired_rows, at_s = [made], [apply(0.0, made)], 0.0
    for verb in _story(rng):
        at_s += UNHURRIED_S if len(desired_rows) > 1 and rng.random() < 0.5 else later(rng)
        if verb == "rerun":
            desired_rows.append(say(at_s, "rerun", made))
            continue
        if verb == "undo":
            made = versions[-2] if len(versions) > 1 else made
        elif verb == "program":
            made = made.changed(template={"command": ["work", "better"], "timeoutSeconds": 90})
        else:
            made = made.changed(tasks={"items": _edited(rng, verb, _items(made.spec), rows)})
        versions.append(made)
        desired_rows.append(apply(at_s, made))
    return make(name, provider, desired_rows, made)


def _items(document: Spec) -> list[Spec]:
    tasks = document["tasks"]
    assert isinstance(tasks, dict)
    return list(tasks["items"])


def _story(rng: random.Random) -> list[str]:
    """What a person does, one after the other."""
    if rng.random() < 0.3:
        return ["rerun", "replace", "undo", rng.choice(EDITS)]
    return rng.choices((*EDITS, *EDITS, "undo", "rerun", "program"), k=rng.randint(2, 4))


def _edited(rng: random.Random, verb: str, items: list[Spec], rows: list[Spec]) -> list[Spec]:
    at = rng.randrange(len(items))
    match verb:
        case "insert":
            items.insert(at, rng.choice(rows))
        case "replace":
            items[at] = rng.choice(rows)
        case "remove" if len(items) > 1:
            del items[at]
        case "move":
            items.insert(rng.randrange(len(items)), items.pop(at))
        case _:
            items.append(items[at])
    return items


NAMED: dict[str, Callable[[random.Random, str, str], Scenario]] = {"rows": _rows}


# -- what must hold --------------------------------------------------------------------------------


def done_work_is_not_done_again(scene: Scene) -> Iterator[str]:
    """I26: of equal rows no more attempts begin than there are rows without a success that counts.
    With a cache, any success counts that the object has had since it was asked to run all again,
    except of work that an edit had replaced before; without one, those that are the newest of their
    index.
    """
    scene.late |= set(_list_late(scene))
    for uid, resource in scene.now.resources.items():
        before = scene.before.resources.get(uid)
        asked = resource.annotations.get(RERUN, "")
        if asked and (before is None or before.annotations.get(RERUN, "") != asked):
            scene.aside[uid] = {run.name for run in scene.now.runs_of(uid)}
        fresh = [
            run
            for run in scene.now.runs_of(uid)
            if run.state is RunState.STARTING and run.name not in scene.before.runs
        ]
        wanted = _wanted(resource)
        for run in fresh if wanted else ():
            same = [it for it in scene.now.runs_of(uid) if _content(it) == _content(run)]
            live = sum(it.state in LIVE_STATES for it in same)
            done = _done(scene, resource, [it for it in same if not it.put_aside])
            rows = wanted[run.params]
            if live + done > rows:
                told = f"{done} are done, {live} live, {rows} wanted"
                yield f"I26: `{run.name}` of {resource.key} does again what is done: {told}"


def _list_late(scene: Scene) -> Iterator[str]:
    """Yields runs that have just succeeded, and whose work is not the desired one any more."""
    for name, run in scene.now.runs.items():
        former, resource = scene.before.runs.get(name), scene.now.resources.get(run.uid)
        ended = former is not None and former.state in LIVE_STATES
        if resource is None or not ended or run.state is not RunState.SUCCEEDED:
            continue
        _, template = read_desired(resource) or ({}, "")
        if resource.kind == "BatchJob" and template and template != run.template_hash:
            yield name


def the_rows_of_the_file_count(scene: Scene) -> Iterator[str]:
    """I27: a job that has succeeded has one success for each row of its file."""
    for resource in scene.now.resources.values():
        seen, wanted = status(resource), _wanted(resource)
        current = seen.get("observedGeneration") == resource.generation
        if not wanted or seen.get("phase") != "Succeeded" or not current:
            continue
        if scene.before.resources.get(resource.uid) is resource:
            continue
        newest = {run.index: run for run in _by_attempt(scene.now.runs_of(resource.uid))}
        done = Counter(run.params for run in newest.values() if run.state is RunState.SUCCEEDED)
        if lacking := wanted - done:
            yield f"I27: {resource.key} has succeeded without {dict(lacking)}"


ROW_CHECKS = (done_work_is_not_done_again, the_rows_of_the_file_count)


def _wanted(resource: Resource) -> Counter[str]:
    """How many rows have which parameters; nothing of what may end before all are done, or has
    parameters that its file does not name.
    """
    return _wanted_by(resource.spec) if resource.kind == "BatchJob" else Counter()


@lru_cache(maxsize=1024)
def _wanted_by(text: str) -> Counter[str]:
    document = parsed(text)
    tasks = document.get("tasks")
    items = tasks.get("items") if isinstance(tasks, dict) else None
    spares = document.get("successPolicy") or document.get("onChange") == "Keep"
    elsewhere = document.get("rollout") == "FinishRunning" or document.get("paramsFrom")
    if not isinstance(items, list) or spares or elsewhere:
        return Counter()
    return Counter(canonical_json(it) for it in items)


def _content(run: Run) -> tuple[str, str]:
    return run.params, run.content


def _done(scene: Scene, resource: Resource, same: list[Run]) -> int:
    """How many successes of equal work count. A result that came back counts once."""
    newest = {run.index: run.name for run in _by_attempt(scene.now.runs_of(resource.uid))}
    done = [run for run in same if run.state is RunState.SUCCEEDED]
    held = sum(newest[run.index] == run.name for run in done)
    document = spec(resource)
    policy = (document.get("cache") or {}).get("policy", "Own")
    sandbox = document.get("sandbox") or {}
    if policy == "Never" or document["template"].get("volumes") or sandbox.get("reuse", 1) != 1:
        return held
    aside = scene.aside.get(resource.uid, set()) | scene.late
    return max(held, sum(run.reason != CACHED and run.name not in aside for run in done))


def _by_attempt(runs: list[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.index, run.attempt))

"""What must hold after every commit of units that took the result of equal work over.

Each has the invariant as its docstring and yields what broke it. What is equal is told here by the
orders that really came to providers, not by any key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleetctl.controllers.model import CACHED, Run, RunState
from tests.simulation.scene import Scene
from tests.simulation.snapshot import parsed, spec


def reused_truthfully(scene: Scene) -> Iterator[str]:
    """I2c: a cached unit has the result of equal work whose success is durable no later than it,
    and which was for others to use.
    """
    # A success and what takes it over may come in one commit: a crash leaves both or neither.
    _remember(scene)
    known = scene.successes
    for run in scene.changed():
        if run.reason != CACHED:
            continue
        if run.uid in scene.never:
            yield f"`{run.name}` is cached and its policy is Never"
        source = next((name for name in known if run.message.endswith(f"run {name}")), None)
        result = scene.now.results[run.name]
        if source is not None and not _may_take(scene, source, run):
            yield f"`{run.name}` is cached, and `{source}` is another object's"
        if source is None:
            yield f"`{run.name}` is cached, and what it names had not succeeded: {run.message}"
        elif not _equal(scene, source, run):
            yield f"`{run.name}` is cached, and `{source}` was no equal work"
        elif known[source] != result:
            yield f"`{run.name}` has the result {result}; equal work had {known[source]}"


CACHE_CHECKS = (reused_truthfully,)


def _may_take(scene: Scene, source: str, run: Run) -> bool:
    policy = spec(scene.now.resources[run.uid]).get("cache", {}).get("policy")
    return policy == "ReuseSucceeded" or scene.world.works[source].order.uid == run.uid


def _remember(scene: Scene) -> None:
    for uid, resource in scene.now.resources.items():
        if spec(resource).get("cache", {}).get("policy") == "Never":
            scene.never.add(uid)
    for run in scene.changed():
        if run.state is RunState.SUCCEEDED and run.reason != CACHED:
            scene.successes[run.name] = scene.now.results[run.name]
            scene.mounts[run.name] = _mounted(scene, run)


def _mounted(scene: Scene, run: Run) -> frozenset[str]:
    """The volumes of a run's object as they are now: another one of that name is other data."""
    mounts = spec(scene.now.resources[run.uid]).get("template", {}).get("volumes", ())
    rows = (scene.now.find("Volume", mount["name"]) for mount in mounts)
    return frozenset(f"{it.uid}.{it.generation}" for it in rows if it is not None)


def _equal(scene: Scene, name: str, run: Run) -> bool:
    """Returns whether the work of run `name` is what `run` would have been."""
    done = scene.world.works[name].order
    desired = spec(scene.now.resources[run.uid])
    if done.uid in scene.never or dict(done.params) != parsed(run.params):
        return False
    template: Mapping[str, Any] = desired.get("template", {})
    mine = (list(template.get("command", ())), template.get("env", {}))
    if scene.mounts[name] != _mounted(scene, run):
        return False
    same_index = bool(done.params) or done.index == run.index
    return same_index and mine == (list(done.template.command or ()), dict(done.template.env))

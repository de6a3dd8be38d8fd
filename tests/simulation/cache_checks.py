"""What must hold after every commit of units that took the result of equal work over.

Each has the invariant as its docstring and yields what broke it. What is equal is told here by the
orders that really came to providers, not by any key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controllers.model import CACHED, Run, RunState
from tests.simulation.scene import Scene
from tests.simulation.snapshot import parsed, spec


def reused_truthfully(scene: Scene) -> Iterator[str]:
    """I2c: a cached unit has the result of equal work whose success was durable before, and which
    was for others to use.
    """
    known = dict(scene.successes)
    _remember(scene)
    for run in scene.changed():
        if run.reason != CACHED:
            continue
        if run.uid in scene.never:
            yield f"`{run.name}` is cached and its policy is Never"
        sources = [name for name in known if _equal(scene, name, run)]
        if not sources:
            yield f"`{run.name}` is cached, and no equal work had succeeded"
        elif all(known[name] != scene.now.results[run.name] for name in sources):
            result = scene.now.results[run.name]
            yield f"`{run.name}` has the result {result}; equal work had {known[sources[0]]}"


CACHE_CHECKS = (reused_truthfully,)


def _remember(scene: Scene) -> None:
    for uid, resource in scene.now.resources.items():
        if spec(resource).get("cache", {}).get("policy") == "Never":
            scene.never.add(uid)
    for run in scene.changed():
        if run.state is RunState.SUCCEEDED and run.reason != CACHED:
            scene.successes[run.name] = scene.now.results[run.name]


def _equal(scene: Scene, name: str, run: Run) -> bool:
    """Whether the work of run `name` is what `run` would have been."""
    done = scene.world.works[name].order
    wish = spec(scene.now.resources[run.uid])
    if done.uid in scene.never or dict(done.params) != parsed(run.params):
        return False
    template: Mapping[str, Any] = wish.get("template", {})
    mine = (list(template.get("command", ())), template.get("env", {}))
    same_index = bool(done.params) or done.index == run.index
    return same_index and mine == (list(done.template.command or ()), dict(done.template.env))

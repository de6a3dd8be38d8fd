"""W&B as a model: a sweep whose agents are handed its points, answers that get lost, and what must
hold of the runs that it has handed out.

It outlives every crash of the controller, as the world does. What its runs do, the world knows.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.common.errors import NotFound, Refused, Unavailable
from fleetctl.engine.execute.secrets import ResolvedSecrets
from fleetctl.wandb.calls import GraphqlCall
from tests.simulation import objects
from tests.simulation.faults import Life
from tests.simulation.objects import GONE, Spec
from tests.simulation.scenario import Scenario, apply, later, make, say
from tests.simulation.scene import Check, Scene
from tests.simulation.snapshot import spec, status
from tests.simulation.world import World

LOST, AWAY = 0.1, 0.1  # chances of an answer while faults last
SECONDS = (2, 12)


@dataclass(slots=True)
class Agent:
    """runs: all that it was handed, in order."""

    runs: list[str] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Sweep:
    name: str
    config: str
    description: str
    points: list[dict[str, Any]]
    state: str = "PENDING"
    handed: dict[str, dict[str, Any]] = field(default_factory=dict)  # run -> parameters
    agents: dict[str, Agent] = field(default_factory=dict)


class Service:
    """One account with one project."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self.sweeps: dict[str, Sweep] = {}
        self._odd = False  # the last look found no sweep, though there was one

    def connect(self, life: Life) -> Callable[[str, str], GraphqlCall]:
        """For one incarnation of the controller, with whom its calls die."""

        async def ask(operation: str, _query: str, variables: Mapping[str, Any]) -> Any:
            await asyncio.sleep(self._rng.uniform(0.01, 0.5))
            life.point("effect", f"before {operation}")
            if self._world.chance(AWAY):
                raise Unavailable("W&B does not answer", reason="Unreachable")
            answer = getattr(self, f"_{operation}")(variables)
            life.point("effect", f"after {operation}")
            if self._world.chance(LOST):
                raise Unavailable("W&B did not answer in time", reason="Unreachable")
            await asyncio.sleep(self._rng.uniform(0.01, 0.5))
            return answer

        return lambda _base_url, _key: ask

    # -- operations --------------------------------------------------------------------------------

    def _UpsertSweep(self, it: Mapping[str, Any]) -> Any:  # noqa: N802 - W&B's own names
        if "id" in it:
            sweep = self.sweeps[it["id"].removeprefix("key-")]
            if it["state"] == "PAUSED" and sweep.state != "RUNNING":
                raise Refused(f"Cannot pause {sweep.state} sweep.")
            sweep.state = it["state"]
            return {"upsertSweep": {"sweep": {"name": sweep.name}}}
        name = f"sweep{len(self.sweeps)}"
        points = [{"n": n, "seconds": self._rng.choice(SECONDS)} for n in range(5)]
        self.sweeps[name] = Sweep(name, it["config"], it["description"], points)
        home = {"name": it["projectName"], "entity": {"name": "acme"}}
        return {"upsertSweep": {"sweep": {"id": f"key-{name}", "name": name, "project": home}}}

    def _GetSweep(self, it: Mapping[str, Any]) -> Any:  # noqa: N802
        sweep = self.sweeps.get(it["name"])
        self._odd = not self._odd and self._world.chance(LOST)
        if self._odd:
            sweep = None
        node = None if sweep is None else self._node(sweep)
        return {"project": {"name": it["project"], "entityName": "acme", "sweep": node}}

    def _GetSweeps(self, it: Mapping[str, Any]) -> Any:  # noqa: N802
        edges = [{"node": self._node(sweep)} for sweep in self.sweeps.values()]
        page = {"edges": edges, "pageInfo": {"hasNextPage": False}}
        return {"project": {"name": it["project"], "entityName": "acme", "sweeps": page}}

    def _CreateAgent(self, it: Mapping[str, Any]) -> Any:  # noqa: N802
        sweep = self.sweeps[it["sweep"]]
        agent = f"{sweep.name}-agent{len(sweep.agents)}"
        sweep.agents[agent] = Agent()
        return {"createAgent": {"agent": {"id": agent}}}

    def _GetAgentRuns(self, it: Mapping[str, Any]) -> Any:  # noqa: N802
        sweep = self.sweeps[it["sweep"]]
        edges = [{"node": self._run(sweep, run)} for run in sweep.agents[it["agentID"]].runs]
        runs = {"edges": edges, "pageInfo": {"hasNextPage": False}}
        return {"project": {"sweep": {"agent": {"runs": runs}}}}

    def _Heartbeat(self, it: Mapping[str, Any]) -> Any:  # noqa: N802
        sweep = self.sweeps[it["id"].partition("-")[0]]
        agent = sweep.agents.get(it["id"])
        if agent is None:
            raise NotFound("could not find agent during agentHeartbeat")
        agent.reported = set(json.loads(it["runState"]))
        commands = json.dumps(self._commands(sweep, agent))
        return {"agentHeartbeat": {"agent": {"id": it["id"]}, "commands": commands}}

    def _commands(self, sweep: Sweep, agent: Agent) -> list[dict[str, Any]]:
        if agent.reported or sweep.state == "PAUSED":
            return []
        if sweep.state == "FINISHED" or len(sweep.handed) == len(sweep.points):
            if not any(it.reported for it in sweep.agents.values()):
                sweep.state = "FINISHED"
            return [{"type": "exit"}]
        point = sweep.points[len(sweep.handed)]
        run = f"{sweep.name}run{len(sweep.handed)}"
        sweep.handed[run], sweep.state = point, "RUNNING"
        agent.runs.append(run)
        arguments = {name: {"value": value} for name, value in point.items()}
        return [{"type": "run", "run_id": run, "args": arguments}]

    # -- what there is -----------------------------------------------------------------------------

    def _node(self, sweep: Sweep) -> dict[str, Any]:
        return {
            "id": f"key-{sweep.name}",
            "name": sweep.name,
            "state": sweep.state,
            "config": sweep.config,
            "description": sweep.description,
            "runCount": len(sweep.handed),
            "runCountExpected": len(sweep.points),
            "bestLoss": None,
        }

    def _run(self, sweep: Sweep, run: str) -> dict[str, Any]:
        begun = any(
            work.order.wandb is not None and work.order.wandb.run_id == run
            for work in self._world.works.values()
        )
        config = {name: {"value": value} for name, value in sweep.handed[run].items()}
        state = "running" if begun else "pending"
        return {"name": run, "state": state, "config": json.dumps(config)}

    def handed(self) -> dict[str, dict[str, Any]]:
        return {run: point for it in self.sweeps.values() for run, point in it.handed.items()}


def found_key(_names: tuple[str, ...], _namespace: str) -> ResolvedSecrets:
    return ResolvedSecrets({"WANDB_API_KEY": "key"})


# -- scenarios ---------------------------------------------------------------------------------


def _wandb(rng: random.Random, name: str, provider: str) -> Scenario:
    """A sweep at W&B, perhaps suspended and resumed, perhaps deleted on the way."""
    search: Spec = {
        "method": "grid",
        "metric": {"name": "loss"},
        "parameters": {"n": {"values": [0, 1, 2, 3, 4]}, "seconds": {"value": 1}},
    }
    made = objects.sweep_of(rng, search, provider, "there", points=5).changed(
        backend="wandb",
        wandb={"project": "digits"},
        template={"command": ["work"], "secrets": ["wandb"]},
    )
    desired_rows, draw = [apply(0.0, made)], rng.random()
    if draw < 0.3:
        desired_rows.append(say(later(rng), "suspend", made))
        desired_rows.append(say(desired_rows[-1].at_s + later(rng), "resume", made))
    elif draw < 0.5:
        desired_rows.append(say(later(rng), "delete", made))
        return make(name, provider, desired_rows, made.changed(GONE))
    return make(name, provider, desired_rows, made)


NAMED: dict[str, Callable[[random.Random, str, str], Scenario]] = {"wandb": _wandb}


def each_run_that_is_handed_out_is_one_trial(scene: Scene) -> Iterator[str]:
    """I35: a run that W&B has handed out is the trial of one index, with its parameters, and no
    trial of such a sweep is of another run.
    """
    handed, indexes = scene.handed(), dict[tuple[str, str], int]()
    for run in scene.now.runs.values():
        resource = scene.now.resources.get(run.uid)
        if resource is None or spec(resource).get("backend") != "wandb":
            continue
        known = indexes.setdefault((run.uid, run.wandb), run.index)
        if known != run.index:
            yield f"run {run.wandb} is trial {known} and trial {run.index}"
        if json.loads(run.params) != handed.get(run.wandb):
            yield f"`{run.name}` has {run.params} of run {run.wandb!r}: {handed.get(run.wandb)}"


def no_run_at_wandb_is_lost(scene: Scene) -> Iterator[str]:
    """I36: of a sweep that has succeeded every run that W&B handed out is a trial."""
    for resource in scene.now.resources.values():
        if spec(resource).get("backend") != "wandb" or status(resource).get("phase") != "Succeeded":
            continue
        made = {run.wandb for run in scene.now.runs_of(resource.uid)}
        if lost := sorted(scene.handed().keys() - made):
            yield f"{resource.key} is over without {', '.join(lost)}"


WANDB_CHECKS: tuple[Check, ...] = (
    each_run_that_is_handed_out_is_one_trial,
    no_run_at_wandb_is_lost,
)

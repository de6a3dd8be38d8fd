"""Which commands an agent gets for its heartbeat.

The service's own rules are not public. These are what its client and its documentation say: an
agent that reports no run gets the next one; a paused sweep gives none; a stopped one lets runs end,
a cancelled one stops them; with nothing left, an agent is sent away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .agents import Agent
from .runs import Run
from .state import World
from .sweeps import Sweep

Command = dict[str, Any]


def commands(world: World, agent: Agent, sweep: Sweep, states: Mapping[str, Any]) -> list[Command]:
    """states: run -> whether it runs, of those that the agent has."""
    now_s = world.clock()
    agent.heartbeats += 1
    agent.heartbeat_s = now_s
    agent.reported = {run for run, runs in states.items() if runs}
    agent.named |= agent.reported
    agent.handed = ""
    world.crash_silent()
    if sweep.state == "CANCELED":
        for run in world.runs_of(sweep):
            run.stopping = run.stopping or run.live
        if world.settings.cancels_by_exit:
            return _dismissed(agent)
    if agent.reported and world.settings.exits_the_busy:
        return _dismissed(agent)
    if agent.reported:
        return [
            {"type": "stop", "run_id": run}
            for run in sorted(agent.reported)
            if (found := world.run(sweep.entity, sweep.project, run)) and found.stopping
        ]
    if sweep.state in ("FINISHED", "CANCELED"):
        return _dismissed(agent)
    return [] if sweep.state == "PAUSED" else _work(world, agent, sweep, now_s)


def _work(world: World, agent: Agent, sweep: Sweep, now_s: float) -> list[Command]:
    kind, run = "run", _unheard(world, agent, sweep)
    if run is None and sweep.waiting:
        kind, run = "resume", world.run(sweep.entity, sweep.project, sweep.waiting.pop(0))
    if run is None and sweep.exhausted:
        if not any(one.live and _held(world, one) for one in world.runs_of(sweep)):
            sweep.turn("FINISHED", now_s)
        return _dismissed(agent)
    if run is None:
        run = world.new_run(sweep, sweep.next_point())
    sweep.turn("RUNNING", now_s)
    agent.runs.append(run.name)
    agent.handed = run.name
    run.handed_to.append(agent.id)
    arguments = {name: {"value": value} for name, value in run.params.items()}
    program = sweep.config.get("program")
    return [{"type": kind, "run_id": run.name, "program": program, "args": arguments}]


def _unheard(world: World, agent: Agent, sweep: Sweep) -> Run | None:
    """The last run that it was handed, if nothing shows that the answer arrived."""
    if not world.settings.hands_again or not agent.runs or agent.runs[-1] in agent.named:
        return None
    run = world.run(sweep.entity, sweep.project, agent.runs[-1])
    return run if run is not None and not run.begun else None


def _held(world: World, run: Run) -> bool:
    return any(agent.holds(run.name) for agent in world.agents.values())


def _dismissed(agent: Agent) -> list[Command]:
    agent.dismissed = True
    return [{"type": "exit"}]

"""The world: everything that there is in it, and the ground truth that tests ask for."""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from ..errors import Refused
from ..faults import Faults
from .agents import Agent
from .naming import short_name
from .runs import Run
from .settings import Settings
from .sweeps import Sweep

NEWEST = 5_000  # requests that are kept whole


class World:
    """clock: seconds since the epoch."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.settings = Settings()
        self.faults = Faults()
        self.url = ""
        self.projects: set[tuple[str, str]] = set()
        self.sweeps: dict[tuple[str, str, str], Sweep] = {}  # by entity, project and name
        self.runs: dict[tuple[str, str, str], Run] = {}
        self.agents: dict[str, Agent] = {}  # by id
        self.requests: Counter[str] = Counter()
        self.newest: deque[dict[str, Any]] = deque(maxlen=NEWEST)
        self._randomness = random.Random()

    def fresh_name(self) -> str:
        return short_name(self._randomness)

    def sweep(self, entity: str, project: str, name: str) -> Sweep | None:
        """By its short name or its internal id."""
        found = self.sweeps.get((entity, project, name))
        return found or next((one for one in self.sweeps.values() if one.id == name), None)

    def run(self, entity: str, project: str, name: str) -> Run | None:
        return self.runs.get((entity, project, name))

    def run_by_id(self, run_id: str) -> Run | None:
        return next((one for one in self.runs.values() if one.id == run_id), None)

    def runs_of(self, sweep: Sweep) -> list[Run]:
        """Oldest first."""
        return [self.runs[sweep.entity, sweep.project, name] for name in sweep.runs]

    def new_sweep(self, entity: str, project: str, text: str, **options: Any) -> Sweep:
        """Raises Refused."""
        name = self.fresh_name()
        sweep = Sweep(name, entity, project, text, self.clock(), **options)
        self.projects.add((entity, project))
        self.sweeps[entity, project, name] = sweep
        return sweep

    def new_run(self, sweep: Sweep, point: dict[str, Any]) -> Run:
        """One that an agent is handed; its program has not begun."""
        name = self.fresh_name()
        now_s = self.clock()
        run = Run(name, sweep.entity, sweep.project, now_s, sweep.name, "pending", point)
        run.config = {key: {"value": value} for key, value in point.items()}
        self.runs[run.entity, run.project, name] = run
        sweep.runs.append(name)
        return run

    def ensure_run(self, entity: str, project: str, name: str, sweep: str) -> tuple[Run, bool]:
        """And whether it is new."""
        found = self.run(entity, project, name)
        if found is not None:
            return found, False
        run = Run(name, entity, project, self.clock())
        self.projects.add((entity, project))
        self.runs[entity, project, name] = run
        of = self.sweep(entity, project, sweep) if sweep else None
        if of is not None:
            run.sweep = of.name
            of.runs.append(name)
        return run, True

    def new_agent(self, sweep: Sweep, host: str) -> Agent:
        name = self.fresh_name()
        agent = Agent(name, host, sweep.entity, sweep.project, sweep.name, self.clock())
        self.agents[agent.id] = agent
        return agent

    def crash_silent(self) -> None:
        now_s = self.clock()
        for run in self.runs.values():
            if run.live and now_s - run.heard_of_s > self.settings.crashes_after_s:
                run.state = "crashed"

    def delete_sweep(self, name: str) -> None:
        """With its runs, as somebody does in the dashboard. Its agents get a 404 from now on."""
        sweep = self.known_sweep(name)
        del self.sweeps[sweep.entity, sweep.project, sweep.name]
        for run in sweep.runs:
            del self.runs[sweep.entity, sweep.project, run]

    def known_sweep(self, name: str) -> Sweep:
        """By name alone, for tests."""
        found = next((one for one in self.sweeps.values() if one.name == name), None)
        if found is None:
            raise Refused(404, f"there is no sweep `{name}`")
        return found

    def known_run(self, name: str) -> Run:
        found = next((one for one in self.runs.values() if one.name == name), None)
        if found is None:
            raise Refused(404, f"there is no run `{name}`")
        return found

    def truth(self) -> dict[str, Any]:
        """JSON: sweeps, runs and agents in the order of their making, requests by operation."""
        self.crash_silent()
        return {
            "sweeps": [_sweep(one) for one in self.sweeps.values()],
            "runs": [_run(one) for one in self.runs.values()],
            "agents": [_agent(one) for one in self.agents.values()],
            "requests": dict(self.requests),
            "faults": self.faults.described(),
        }


def _sweep(one: Sweep) -> dict[str, Any]:
    return {
        "name": one.name,
        "id": one.id,
        "entity": one.entity,
        "project": one.project,
        "state": one.state,
        "states": one.states,
        "text": one.text,
        "config": one.config,
        "display_name": one.display_name,
        "handed": one.handed,
        "expected": one.expected,
        "runs": one.runs,
    }


def _run(one: Run) -> dict[str, Any]:
    return {
        "name": one.name,
        "id": one.id,
        "entity": one.entity,
        "project": one.project,
        "sweep": one.sweep,
        "state": one.state,
        "params": one.params,
        "config": {key: _plain(value) for key, value in one.config.items() if key != "_wandb"},
        "history": one.rows,
        "summary": one.summary,
        "output": one.streams["output.log"],
        "handed_to": one.handed_to,
        "begun": one.begun,
        "exit_codes": one.exit_codes,
        "stopping": one.stopping,
        "uploads": one.uploads,
        "details": one.details,
    }


def _plain(value: Any) -> Any:
    return value["value"] if isinstance(value, dict) and "value" in value else value


def _agent(one: Agent) -> dict[str, Any]:
    return {
        "id": one.id,
        "host": one.host,
        "sweep": one.sweep,
        "runs": one.runs,
        "reported": sorted(one.reported),
        "heartbeats": one.heartbeats,
        "dismissed": one.dismissed,
    }

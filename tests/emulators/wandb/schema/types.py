"""Sweeps, runs and agents as nodes of GraphQL."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import Refused
from ..graphql.execution import Arguments, Node
from ..world.agents import Agent
from ..world.naming import global_id, iso
from ..world.runs import Run
from ..world.state import World
from ..world.sweeps import Sweep

PAGE_SIZE = 50
PAGE_MAX = 1000


def sweep_node(world: World, sweep: Sweep) -> Node:
    agents = [one for one in world.agents.values() if one.sweep == sweep.name]
    fields: dict[str, Any] = {
        "id": sweep.id,
        "name": sweep.name,
        "displayName": sweep.display_name or None,
        "method": sweep.config["method"],
        "state": sweep.state,
        "description": sweep.description,
        "config": sweep.text,
        "createdAt": iso(sweep.created_s),
        "updatedAt": iso(sweep.updated_s),
        "heartbeatAt": iso(max((one.heartbeat_s for one in agents), default=sweep.created_s)),
        "earlyStopJobRunning": False,
        "bestLoss": best_loss(world, sweep),
        "controller": sweep.controller,
        "controllerRunName": None,
        "scheduler": sweep.scheduler,
        "runCount": len(sweep.runs),
        "runCountExpected": sweep.expected,
        "project": lambda _: project_name_node(sweep.entity, sweep.project),
        "runs": lambda arguments: page(
            "Run", world.runs_of(sweep), lambda one: run_node(world, one), arguments
        ),
        "agent": lambda arguments: _agent(world, agents, arguments.get("agentName")),
        "agents": lambda arguments: page(
            "Agent", agents, lambda one: agent_node(world, one), arguments
        ),
    }
    return Node("Sweep", fields)


def best_loss(world: World, sweep: Sweep) -> float | None:
    """The best value that any run's summary has, by the metric's goal."""
    metric = sweep.config.get("metric") or {}
    found = [one.value(metric.get("name", "")) for one in world.runs_of(sweep)]
    values = [value for value in found if value is not None]
    if not values:
        return None
    return max(values) if metric.get("goal") == "maximize" else min(values)


def project_name_node(entity: str, project: str) -> Node:
    """A project as the answers to mutations have it."""
    owner = Node("Entity", {"id": global_id("Entity", entity), "name": entity})
    fields = {"id": global_id("Project", project, entity), "name": project, "entity": owner}
    return Node("Project", fields)


def agent_node(world: World, agent: Agent) -> Node:
    runs = [world.run(agent.entity, agent.project, name) for name in dict.fromkeys(agent.runs)]
    there = [one for one in runs if one is not None]
    fields: dict[str, Any] = {
        "id": agent.id,
        "name": agent.name,
        "host": agent.host,
        "state": "EXITED" if agent.dismissed else "RUNNING",
        "totalRuns": len(agent.runs),
        "createdAt": iso(agent.created_s),
        "heartbeatAt": iso(agent.heartbeat_s or agent.created_s),
        "runs": lambda arguments: page("Run", there, lambda one: run_node(world, one), arguments),
    }
    return Node("Agent", fields)


def _agent(world: World, agents: Sequence[Agent], name: str | None) -> Node | None:
    found = next((one for one in agents if name in (one.name, one.id)), None)
    return agent_node(world, found) if found is not None else None


def run_node(world: World, run: Run) -> Node:
    details = run.details
    fields: dict[str, Any] = {
        "id": run.id,
        "name": run.name,
        "displayName": details.get("displayName") or run.name,
        "description": details.get("description"),
        "notes": details.get("notes"),
        "tags": details.get("tags") or [],
        "group": details.get("groupName"),
        "jobType": details.get("jobType"),
        "commit": details.get("commit"),
        "host": details.get("host"),
        "readOnly": False,
        "state": run.state,
        "exitcode": run.exit_codes[-1] if run.exit_codes else None,
        "config": json.dumps(run.config),
        "summaryMetrics": json.dumps(run.summary),
        "systemMetrics": "{}",
        "sweepName": run.sweep or None,
        "createdAt": iso(run.created_s),
        "heartbeatAt": iso(run.heard_of_s),
        "projectId": "1",
        "project": lambda _: project_name_node(run.entity, run.project),
        "user": Node("User", {"name": run.entity, "username": run.entity}),
        "historyLineCount": len(run.streams["wandb-history.jsonl"]),
        "eventsLineCount": len(run.streams["wandb-events.jsonl"]),
        "logLineCount": len(run.streams["output.log"]),
        "historyTail": json.dumps(run.streams["wandb-history.jsonl"][-1:]),
        "eventsTail": json.dumps(run.streams["wandb-events.jsonl"][-1:]),
        "historyKeys": {"lastStep": len(run.streams["wandb-history.jsonl"]) - 1, "keys": {}},
        "wandbConfig": lambda _: json.dumps({"t": 1}),
        "history": lambda _: run.streams["wandb-history.jsonl"],
        "sampledHistory": lambda arguments: [_sampled(run, it) for it in arguments["specs"]],
        "shouldStop": run.stopping,
        "stopped": run.stopping,
        "failed": run.state in ("failed", "crashed"),
        "running": run.live,
        "sweep": lambda _: _sweep_of(world, run),
    }
    return Node("Run", fields)


def _sweep_of(world: World, run: Run) -> Node | None:
    sweep = world.sweep(run.entity, run.project, run.sweep) if run.sweep else None
    return sweep_node(world, sweep) if sweep is not None else None


def _sampled(run: Run, specification: str) -> list[dict[str, Any]]:
    """The rows that have every wanted key."""
    wanted = json.loads(specification).get("keys") or []
    return [row for row in run.rows if all(key in row for key in wanted)]


def page(
    kind: str, items: Sequence[Any], node: Callable[[Any], Node], arguments: Arguments
) -> Node:
    """A connection: `first` items after the cursor `after`."""
    cursor = arguments.get("after")
    begin = int(base64.b64decode(cursor)) if cursor else 0
    first = arguments.get("first")
    size = PAGE_SIZE if first is None else int(first)
    if not 0 <= size <= PAGE_MAX:
        raise Refused(400, f"first must be between 0 and {PAGE_MAX}")
    end = min(begin + size, len(items))
    edges = [
        Node(f"{kind}Edge", {"node": node(items[index]), "cursor": _cursor(index + 1)})
        for index in range(begin, end)
    ]
    information = {
        "endCursor": _cursor(end) if edges else None,
        "hasNextPage": end < len(items),
        "hasPreviousPage": begin > 0,
        "startCursor": _cursor(begin + 1) if edges else None,
    }
    fields = {"edges": edges, "pageInfo": Node("PageInfo", information), "totalCount": len(items)}
    return Node(f"{kind}Connection", fields)


def _cursor(index: int) -> str:
    return base64.b64encode(str(index).encode()).decode()

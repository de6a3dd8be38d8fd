"""The calls of a sweep at W&B: create, find, read, move; be an agent, and ask for work.

What an answer lacks is said as UnknownAnswer: one odd answer of the service decides nothing. Called
by fleetctl/engine/kinds/wandb.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.wandb.client import Ask

RUNS_PAGE, SWEEPS_PAGE = 100, 50
PAGES_MAX = 20

_SWEEP = "id name state config description runCount runCountExpected bestLoss"
_OLDER = "id name state config bestLoss"  # what servers of before know too
CREATE = """mutation UpsertSweep($config: String, $description: String, $entityName: String,
    $projectName: String) {
  upsertSweep(input: {config: $config, description: $description, entityName: $entityName,
      projectName: $projectName}) {
    sweep { id name project { name entity { name } } }
    configValidationWarnings
  }
}"""
MOVE = """mutation UpsertSweep($id: ID, $state: String) {
  upsertSweep(input: {id: $id, state: $state}) { sweep { name } }
}"""
READ, READ_OLDER = (
    f"""query GetSweep($name: String!, $project: String, $entity: String) {{
  project(name: $project, entityName: $entity) {{
    name entityName sweep(sweepName: $name) {{ {fields} }}
  }}
}}"""
    for fields in (_SWEEP, _OLDER)
)
LIST = f"""query GetSweeps($project: String!, $entity: String, $cursor: String, $perPage: Int) {{
  project(name: $project, entityName: $entity) {{
    name entityName
    sweeps(after: $cursor, first: $perPage) {{
      edges {{ node {{ {_SWEEP} }} }} pageInfo {{ endCursor hasNextPage }}
    }}
  }}
}}"""
AGENT = """mutation CreateAgent($host: String!, $projectName: String, $entityName: String,
    $sweep: String!) {
  createAgent(input: {host: $host, projectName: $projectName, entityName: $entityName,
      sweep: $sweep}) {
    agent { id }
  }
}"""
BEAT = """mutation Heartbeat($id: ID!, $metrics: JSONString, $runState: JSONString) {
  agentHeartbeat(input: {id: $id, metrics: $metrics, runState: $runState}) {
    agent { id } commands
  }
}"""
RUNS = """query GetAgentRuns($agentID: String!, $sweep: String!, $entity: String,
    $project: String, $after: String, $first: Int) {
  project(name: $project, entityName: $entity) {
    sweep(sweepName: $sweep) {
      agent(agentName: $agentID) {
        runs(after: $after, first: $first) {
          edges { node { name state config } } pageInfo { endCursor hasNextPage }
        }
      }
    }
  }
}"""


@dataclass(frozen=True, slots=True)
class Found:
    """A sweep as W&B has it. name: what people call its id; key: the one that changes of its state
    name. best: the best value of its metric.
    """

    name: str
    key: str
    entity: str
    project: str
    state: str = ""
    config: str = ""  # YAML
    run_count: int | None = None
    expected: int | None = None
    best: float | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """type: run, resume, stop, exit, or what a later W&B says."""

    type: str
    run: str = ""
    params: Mapping[str, Any] | None = None


async def create(
    ask: Ask, config: Mapping[str, Any], *, entity: str, project: str, description: str
) -> tuple[Found, list[str]]:
    """(the sweep, what W&B warns of). entity, project: "" leaves them to W&B."""
    variables = {
        "config": config_text(config),
        "description": description,
        "entityName": entity or None,
        "projectName": project or None,
    }
    answer = _map((await ask("UpsertSweep", CREATE, variables)).get("upsertSweep"))
    sweep = _map(answer.get("sweep"))
    home = _map(sweep.get("project"))
    owner = _map(home.get("entity"))
    found = Found(
        _text(sweep, "name"), _text(sweep, "id"), _text(owner, "name"), _text(home, "name")
    )
    return found, [str(it) for it in answer.get("configValidationWarnings") or ()]


async def find(ask: Ask, tag: str, *, entity: str, project: str) -> Found | None:
    """The sweep of a project in whose description `tag` stands."""
    after: str | None = None
    for _ in range(PAGES_MAX):
        variables = {
            "project": project,
            "entity": entity or None,
            "cursor": after,
            "perPage": SWEEPS_PAGE,
        }
        home = (await ask("GetSweeps", LIST, variables)).get("project")
        if home is None:
            return None
        nodes, after = _page(_map(_map(home).get("sweeps")))
        for node in nodes:
            if tag in str(node.get("description") or ""):
                return _found(node, _map(home))
        if after is None:
            return None
    return None


async def read(ask: Ask, name: str, *, entity: str, project: str) -> Found | None:
    """None: W&B says that there is no such sweep."""
    variables = {"name": name, "project": project or None, "entity": entity or None}
    try:
        answer = await ask("GetSweep", READ, variables)
    except Refused:
        answer = await ask("GetSweep", READ_OLDER, variables)
    if "project" not in answer:
        raise _odd("project")
    home = answer["project"]
    node = None if home is None else _map(home).get("sweep")
    return None if node is None else _found(_map(node), _map(home))


async def move(ask: Ask, key: str, state: str) -> None:
    await ask("UpsertSweep", MOVE, {"id": key, "state": state})


async def become_agent(ask: Ask, name: str, *, entity: str, project: str, host: str) -> str:
    variables = {"host": host, "projectName": project, "entityName": entity, "sweep": name}
    answer = _map((await ask("CreateAgent", AGENT, variables)).get("createAgent"))
    return _text(_map(answer.get("agent")), "id")


async def beat(ask: Ask, agent: str, runs: Mapping[str, bool]) -> list[Command]:
    """What the agent is to do. runs: those that it has. An agent without one asks for one."""
    variables = {"id": agent, "metrics": "{}", "runState": json.dumps(dict(runs))}
    answer = _map((await ask("Heartbeat", BEAT, variables)).get("agentHeartbeat"))
    commands = answer.get("commands") or "[]"
    try:
        found = json.loads(commands) if isinstance(commands, str) else commands
    except ValueError:
        raise _odd("commands") from None
    return [_command(it) for it in found if isinstance(it, dict)]


async def runs_of(
    ask: Ask, agent: str, name: str, *, entity: str, project: str
) -> list[tuple[str, str, Mapping[str, Any]]]:
    """(id, state, parameters) of each run that an agent was handed; name: of the sweep."""
    runs: list[tuple[str, str, Mapping[str, Any]]] = []
    after: str | None = None
    for _ in range(PAGES_MAX):
        variables = {
            "agentID": agent,
            "sweep": name,
            "entity": entity,
            "project": project,
            "after": after,
            "first": RUNS_PAGE,
        }
        home = _map((await ask("GetAgentRuns", RUNS, variables)).get("project"))
        own = _map(home.get("sweep")).get("agent")
        if own is None:
            return runs
        nodes, after = _page(_map(_map(own).get("runs")))
        for node in nodes:
            config = json.loads(node.get("config") or "{}")
            runs.append((_text(node, "name"), str(node.get("state") or ""), _values(config)))
        if after is None:
            return runs
    return runs


def config_text(config: Mapping[str, Any]) -> str:
    """As W&B's own command line writes it: floats as YAML 1.1 reads them, and texts that begin with
    0 in quotes.
    """
    return yaml.dump(dict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    def represent_scalar(self, tag: str, value: str, style: str | None = None) -> yaml.ScalarNode:
        if tag == "tag:yaml.org,2002:str" and value.startswith("0"):
            style = "'"
        return super().represent_scalar(tag, value, style)


def config_of(text: str) -> dict[str, Any]:
    """The configuration that W&B has; empty where it is none that can be read."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return json.loads(json.dumps(found, default=str)) if isinstance(found, dict) else {}


def _command(reply: Mapping[str, Any]) -> Command:
    arguments = reply.get("args")
    params = _values(arguments) if isinstance(arguments, dict) else None
    return Command(str(reply.get("type") or ""), str(reply.get("run_id") or ""), params)


def _values(config: Mapping[str, Any]) -> dict[str, Any]:
    """`{"lr": {"value": 0.1}}` as parameters; wandb's own keys begin with `_`."""
    return {
        name: it["value"]
        for name, it in config.items()
        if isinstance(it, dict) and "value" in it and not name.startswith("_")
    }


def _found(node: Mapping[str, Any], home: Mapping[str, Any]) -> Found:
    return Found(
        _text(node, "name"),
        _text(node, "id"),
        str(home.get("entityName") or ""),
        str(home.get("name") or ""),
        _text(node, "state").upper(),
        str(node.get("config") or ""),
        _number(node.get("runCount")),
        _number(node.get("runCountExpected")),
        node.get("bestLoss") if isinstance(node.get("bestLoss"), int | float) else None,
    )


def _page(connection: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], str | None]:
    """The nodes of a page, and the cursor of the next page, or None behind the last one."""
    about = _map(connection.get("pageInfo"))
    after = about.get("endCursor") if about.get("hasNextPage") else None
    nodes = [_map(_map(edge).get("node")) for edge in connection.get("edges") or ()]
    return nodes, after


def _map(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _odd("an object")
    return value


def _text(node: Mapping[str, Any], name: str) -> str:
    value = node.get(name)
    if not isinstance(value, str) or not value:
        raise _odd(name)
    return value


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _odd(lacking: str) -> Unavailable:
    return Unavailable(f"W&B's answer lacks {lacking}", reason="UnknownAnswer")

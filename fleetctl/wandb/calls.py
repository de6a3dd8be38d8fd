"""Defines the calls of a sweep at W&B: create, find, read, move; act as an agent, and request runs;
each is a request to its service of GraphQL.

A field missing in a reply raises Unavailable, reason UnknownAnswer: one odd reply of the service
proves little. The engine receives a `WandbConnect`, and does not know how calls are made; http.py
makes them, and is loaded with the first one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import yaml

from fleetctl.common.errors import Refused, Unavailable

RUNS_PAGE = 100
SWEEPS_PAGE = 50
PAGES_MAX = 20

_SWEEP = "id name state config description runCount runCountExpected bestLoss"
_OLDER = "id name state config bestLoss"  # fields that older servers know too
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

BASE_URL = "https://api.wandb.ai"
CALLS_MAX = 4  # at once; each has a thread of its own


@dataclass(frozen=True, slots=True)
class WandbSweep:
    """A sweep as W&B has it. name: the id that users see; key: the one that changes of its state
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
class AgentCommand:
    """type: run, resume, stop, exit, or one of a later W&B."""

    type: str
    run: str = ""
    params: Mapping[str, Any] | None = None


async def create_sweep(
    ask: GraphqlCall,
    config: Mapping[str, Any],
    *,
    entity: str,
    project: str,
    description: str,
) -> tuple[WandbSweep, list[str]]:
    """Makes a sweep; returns (the sweep, W&B's warnings). entity, project: "" leaves them to
    W&B.
    """
    variables = {
        "config": config_text(config),
        "description": description,
        "entityName": entity or None,
        "projectName": project or None,
    }
    answer = _require_map((await ask("UpsertSweep", CREATE, variables)).get("upsertSweep"))
    sweep = _require_map(answer.get("sweep"))
    home = _require_map(sweep.get("project"))
    owner = _require_map(home.get("entity"))
    found = WandbSweep(
        _require_text(sweep, "name"),
        _require_text(sweep, "id"),
        _require_text(owner, "name"),
        _require_text(home, "name"),
    )
    return found, [str(it) for it in answer.get("configValidationWarnings") or ()]


async def find_sweep(
    ask: GraphqlCall,
    tag: str,
    *,
    entity: str,
    project: str,
) -> WandbSweep | None:
    """Returns the sweep of a project whose description contains `tag`."""
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
        nodes, after = _parse_page(_require_map(_require_map(home).get("sweeps")))
        for node in nodes:
            if tag in str(node.get("description") or ""):
                return _parse_sweep(node, _require_map(home))
        if after is None:
            return None
    return None


async def read_sweep(
    ask: GraphqlCall,
    name: str,
    *,
    entity: str,
    project: str,
) -> WandbSweep | None:
    """Returns None where W&B reports that the sweep does not exist."""
    variables = {"name": name, "project": project or None, "entity": entity or None}
    try:
        answer = await ask("GetSweep", READ, variables)
    except Refused:
        answer = await ask("GetSweep", READ_OLDER, variables)
    if "project" not in answer:
        raise _odd_answer("project")
    home = answer["project"]
    node = None if home is None else _require_map(home).get("sweep")
    return None if node is None else _parse_sweep(_require_map(node), _require_map(home))


async def set_sweep_state(
    ask: GraphqlCall,
    key: str,
    state: str,
) -> None:
    await ask("UpsertSweep", MOVE, {"id": key, "state": state})


async def become_agent(
    ask: GraphqlCall,
    name: str,
    *,
    entity: str,
    project: str,
    host: str,
) -> str:
    variables = {"host": host, "projectName": project, "entityName": entity, "sweep": name}
    answer = _require_map((await ask("CreateAgent", AGENT, variables)).get("createAgent"))
    return _require_text(_require_map(answer.get("agent")), "id")


async def send_heartbeat(
    ask: GraphqlCall,
    agent: str,
    runs: Mapping[str, bool],
) -> list[AgentCommand]:
    """Sends a heartbeat and returns the agent's commands. runs: its runs. An agent without a run
    requests one.
    """
    variables = {"id": agent, "metrics": "{}", "runState": json.dumps(dict(runs))}
    answer = _require_map((await ask("Heartbeat", BEAT, variables)).get("agentHeartbeat"))
    commands = answer.get("commands") or "[]"
    try:
        found = json.loads(commands) if isinstance(commands, str) else commands
    except ValueError:
        raise _odd_answer("commands") from None
    return [_parse_command(it) for it in found if isinstance(it, dict)]


async def runs_of(
    ask: GraphqlCall,
    agent: str,
    name: str,
    *,
    entity: str,
    project: str,
) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Returns (id, state, parameters) of each run that an agent was handed; name: of the sweep."""
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
        home = _require_map((await ask("GetAgentRuns", RUNS, variables)).get("project"))
        own = _require_map(home.get("sweep")).get("agent")
        if own is None:
            return runs
        nodes, after = _parse_page(_require_map(_require_map(own).get("runs")))
        for node in nodes:
            config = json.loads(node.get("config") or "{}")
            runs.append(
                (_require_text(node, "name"), str(node.get("state") or ""), _config_values(config))
            )
        if after is None:
            return runs
    return runs


def config_text(config: Mapping[str, Any]) -> str:
    """Returns the configuration as W&B's own command line writes it: floats as YAML 1.1 reads them,
    and texts that begin with 0 in quotes.
    """
    return yaml.dump(
        dict(config),
        Dumper=_ConfigDumper,
        sort_keys=False,
        allow_unicode=True,
    )


class _ConfigDumper(yaml.SafeDumper):
    def represent_scalar(
        self,
        tag: str,
        value: str,
        style: str | None = None,
    ) -> yaml.ScalarNode:
        if tag == "tag:yaml.org,2002:str" and value.startswith("0"):
            style = "'"
        return super().represent_scalar(tag, value, style)


def config_of(text: str) -> dict[str, Any]:
    """Returns W&B's configuration; empty if it is unreadable."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return json.loads(json.dumps(found, default=str)) if isinstance(found, dict) else {}


def _parse_command(reply: Mapping[str, Any]) -> AgentCommand:
    arguments = reply.get("args")
    params = _config_values(arguments) if isinstance(arguments, dict) else None
    return AgentCommand(str(reply.get("type") or ""), str(reply.get("run_id") or ""), params)


def _config_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `{"lr": {"value": 0.1}}` as parameters; wandb's own keys begin with `_`."""
    return {
        name: it["value"]
        for name, it in config.items()
        if isinstance(it, dict) and "value" in it and not name.startswith("_")
    }


def _parse_sweep(node: Mapping[str, Any], home: Mapping[str, Any]) -> WandbSweep:
    return WandbSweep(
        _require_text(node, "name"),
        _require_text(node, "id"),
        str(home.get("entityName") or ""),
        str(home.get("name") or ""),
        _require_text(node, "state").upper(),
        str(node.get("config") or ""),
        _as_number(node.get("runCount")),
        _as_number(node.get("runCountExpected")),
        node.get("bestLoss") if isinstance(node.get("bestLoss"), int | float) else None,
    )


def _parse_page(connection: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], str | None]:
    """Returns the nodes of a page, and the cursor of the next page, or None behind the last one."""
    about = _require_map(connection.get("pageInfo"))
    after = about.get("endCursor") if about.get("hasNextPage") else None
    nodes = [_require_map(_require_map(edge).get("node")) for edge in connection.get("edges") or ()]
    return nodes, after


def _require_map(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _odd_answer("an object")
    return value


def _require_text(node: Mapping[str, Any], name: str) -> str:
    value = node.get(name)
    if not isinstance(value, str) or not value:
        raise _odd_answer(name)
    return value


def _as_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _odd_answer(lacking: str) -> Unavailable:
    return Unavailable(f"W&B's answer lacks {lacking}", reason="UnknownAnswer")


class GraphqlCall(Protocol):
    """One GraphQL operation; returns `data`.

    Raises Unavailable while the service does not reply or does not take the key, NotFound for its
    404, and Refused for a request that it will never take.
    """

    async def __call__(
        self,
        operation: str,
        query: str,
        variables: Mapping[str, Any],
    ) -> Mapping[str, Any]: ...


class WandbConnect(Protocol):
    """base_url: "" = W&B's own."""

    def __call__(self, base_url: str, key: str) -> GraphqlCall: ...


def make_connector() -> WandbConnect:
    """Returns a connection over HTTP; few calls at once, to all servers together."""
    few = asyncio.Semaphore(CALLS_MAX)

    def connect(base_url: str, key: str) -> GraphqlCall:
        from fleetctl.wandb.http import WandbClient

        return WandbClient(few, base_url or BASE_URL, key)

    return connect


def app_url(base_url: str) -> str:
    """Returns the web address of a server's data: api.wandb.ai is shown at wandb.ai."""
    if base_url in ("", BASE_URL):
        return "https://wandb.ai"
    return base_url.replace("https://api.", "https://app.", 1)

"""A client of W&B's protocol without wandb: it asks by GraphQL, and does what an agent does."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any

from tests.emulators.wandb.running import WandbEmulator

CREATE_AGENT = """mutation CreateAgent($host: String!, $project: String, $entity: String,
    $sweep: String!) {
  createAgent(input: {host: $host, projectName: $project, entityName: $entity, sweep: $sweep}) {
    agent { id }
  }
}"""
HEARTBEAT = """mutation Heartbeat($id: ID!, $runState: JSONString) {
  agentHeartbeat(input: {id: $id, runState: $runState}) { agent { id } commands }
}"""
GET_SWEEP = """query GetSweep($name: String!, $project: String, $entity: String) {
  project(name: $project, entityName: $entity) { sweep(sweepName: $name) { ...Fragment } }
}
fragment Fragment on Sweep { id name state bestLoss runCount runCountExpected }"""
UPSERT_SWEEP = """mutation UpsertSweep($id: ID, $state: String, $config: String, $entity: String,
    $launchScheduler: JSONString) {
  upsertSweep(input: {id: $id, state: $state, config: $config, entityName: $entity,
      projectName: "digits", launchScheduler: $launchScheduler}) {
    sweep { name state }
    configValidationWarnings
  }
}"""
RUNS = """query Runs($filters: JSONString, $cursor: String) {
  project(name: "digits", entityName: "acme") {
    runs(filters: $filters, after: $cursor, first: 3) {
      edges { node { name state summaryMetrics } }
      pageInfo { endCursor hasNextPage }
    }
  }
}"""


class Refusal(Exception):
    def __init__(self, status: int, headers: Any, body: str) -> None:
        super().__init__(status, body)
        self.status, self.headers, self.body = status, headers, body

    @property
    def message(self) -> str:
        return str(json.loads(self.body)["errors"][0]["message"])


class Client:
    def __init__(self, emulator: WandbEmulator, key: str = "") -> None:
        self._url, self._key = f"{emulator.url}/graphql", key or emulator.api_key

    def ask(self, document: str, **variables: Any) -> Any:
        """The data. Raises Refusal."""
        key = base64.b64encode(f"api:{self._key}".encode()).decode()
        request = urllib.request.Request(
            self._url,
            data=json.dumps({"query": document, "variables": variables}).encode(),
            headers={"Authorization": f"Basic {key}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise Refusal(error.code, error.headers, error.read().decode()) from error

    def sweep(self, name: str) -> Any:
        return self.ask(GET_SWEEP, name=name, project="digits", entity="acme")["project"]["sweep"]

    def move(self, name: str, state: str) -> None:
        self.ask(UPSERT_SWEEP, id=self.sweep(name)["id"], state=state, entity="acme")


class Worker:
    """An agent that does what it is told, one command at a time."""

    def __init__(self, client: Client, sweep: str) -> None:
        self._client = client
        created = client.ask(
            CREATE_AGENT, host="here", project="digits", entity="acme", sweep=sweep
        )
        self.id = created["createAgent"]["agent"]["id"]

    def ask(self, *running: str) -> list[dict[str, Any]]:
        states = json.dumps(dict.fromkeys(running, True))
        answer = self._client.ask(HEARTBEAT, id=self.id, runState=states)
        commands = json.loads(answer["agentHeartbeat"]["commands"])
        assert isinstance(commands, list)
        return commands

    def run(self) -> str:
        """The run that it is handed now."""
        (command,) = self.ask()
        assert command["type"] == "run"
        return str(command["run_id"])

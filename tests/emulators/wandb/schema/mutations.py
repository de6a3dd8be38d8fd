"""What may be changed: runs, sweeps and agents. Each returns what it changed, as a node."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from ..errors import Refused
from ..graphql.execution import Arguments, Mutation, Node
from ..world import handing
from ..world.state import World
from ..world.sweeps import Sweep
from .access import Caller
from .types import run_node, sweep_node

# Those with an exclamation mark must be given.
BUCKET_INPUTS = (
    "id name groupName modelName entityName description displayName notes config commit host debug "
    "jobProgram jobRepo jobType state sweep tags summaryMetrics"
)
FILES_INPUTS = "entityName projectName! runName! files!"
SWEEP_INPUTS = (
    "id config description entityName projectName controller scheduler launchScheduler state "
    "templateVariableValues priorRunsFilters displayName"
)


def mutations(world: World, caller: Caller) -> dict[str, Mutation]:
    changes = _Changes(world, caller)
    unknown = world.settings.unknown_inputs
    known: dict[str, tuple[str, Callable[[Arguments], Node]]] = {
        "upsertBucket": (BUCKET_INPUTS, changes.upsert_bucket),
        "createRunFiles": (FILES_INPUTS, changes.create_run_files),
        "markRunFilesUploaded": (FILES_INPUTS, changes.uploaded),
        "stopRun": ("id!", changes.stop_run),
        "upsertSweep": (SWEEP_INPUTS, changes.upsert_sweep),
        "createAgent": ("host! projectName entityName sweep!", changes.create_agent),
        "agentHeartbeat": ("id! metrics runState", changes.heartbeat),
    }
    return {name: _mutation(inputs, run, unknown) for name, (inputs, run) in known.items()}


def _mutation(inputs: str, run: Callable[[Arguments], Node], unknown: Collection[str]) -> Mutation:
    words = inputs.split()
    needed = frozenset(word[:-1] for word in words if word.endswith("!"))
    known = frozenset(word.removesuffix("!") for word in words)
    return Mutation(known.difference(unknown), needed, run)


class _Changes:
    def __init__(self, world: World, caller: Caller) -> None:
        self._world, self._caller = world, caller

    def upsert_bucket(self, given: Arguments) -> Node:
        world = self._world
        found, new = world.run_by_id(given.get("id", "")), False
        if found is not None:
            self._caller.to_change(found.entity, "upsertBucket")
        else:
            entity = self._caller.to_change(given.get("entityName"), "upsertBucket")
            project = given.get("modelName") or "uncategorized"
            name = given.get("name") or world.fresh_name()
            found, new = world.ensure_run(entity, project, name, given.get("sweep", ""))
        if "jobProgram" in given or "host" in given:  # told once, by each process that begins it
            found.begin(world.clock())
        if "config" in given:
            found.config |= json.loads(given["config"])
        if "summaryMetrics" in given:
            found.summary = json.loads(given["summaryMetrics"])
        kept = set(given) - {"id", "name", "config", "summaryMetrics", "modelName", "entityName"}
        found.details |= {key: given[key] for key in kept}
        return Node("UpsertBucketPayload", {"bucket": run_node(world, found), "inserted": new})

    def create_run_files(self, given: Arguments) -> Node:
        entity = self._caller.to_change(given.get("entityName"), "createRunFiles")
        run = self._world.run(entity, given["projectName"], given["runName"])
        if run is None:
            raise Refused(404, "run not found during createRunFiles")
        below = f"{self._world.url}/storage/{entity}/{run.project}/{run.name}"
        files = [
            Node("File", {"name": name, "uploadUrl": f"{below}/{name}"}) for name in given["files"]
        ]
        fields: dict[str, Any] = {"runID": run.id, "uploadHeaders": [], "files": files}
        return Node("CreateRunFilesPayload", fields)

    def uploaded(self, given: Arguments) -> Node:
        self._caller.to_change(given.get("entityName"), "markRunFilesUploaded")
        return Node("MarkRunFilesUploadedPayload", {"success": True})

    def stop_run(self, given: Arguments) -> Node:
        run = self._world.run_by_id(given["id"])
        if run is None:
            raise Refused(404, "run not found during stopRun")
        self._caller.to_change(run.entity, "stopRun")
        run.stopping = run.stopping or run.live
        return Node("StopRunPayload", {"success": True})

    def upsert_sweep(self, given: Arguments) -> Node:
        world = self._world
        entity = self._caller.to_change(given.get("entityName"), "upsertSweep")
        if "id" in given:
            sweep = self._changed(given)
        else:
            if "config" not in given:
                raise Refused(400, "sweep config is required")
            sweep = world.new_sweep(
                entity,
                given.get("projectName") or "uncategorized",
                given["config"],
                display_name=given.get("displayName", ""),
                description=given.get("description"),
                controller=given.get("controller"),
                scheduler=given.get("scheduler"),
            )
        fields: dict[str, Any] = {
            "sweep": sweep_node(world, sweep),
            "configValidationWarnings": list(world.settings.warnings),
        }
        return Node("UpsertSweepPayload", fields)

    def _changed(self, given: Arguments) -> Sweep:
        sweep = next((one for one in self._world.sweeps.values() if one.id == given["id"]), None)
        if sweep is None:
            raise Refused(404, "sweep not found during upsertSweep")
        self._caller.to_change(sweep.entity, "upsertSweep")
        if "config" in given:
            if sweep.state != "PENDING":
                raise Refused(400, "sweep config can only be changed while it is pending")
            sweep.configure(given["config"])
        sweep.display_name = given.get("displayName", sweep.display_name)
        if "state" in given:
            sweep.move(given["state"], self._world.clock())
        return sweep

    def create_agent(self, given: Arguments) -> Node:
        entity = self._caller.to_change(given.get("entityName"), "createAgent")
        project, name = given.get("projectName") or "", given["sweep"]
        sweep = self._caller.owned(self._world.sweep(entity, project, name))
        if sweep is None:
            path = f"{entity}/{project}/{name}"
            raise Refused(404, f"could not find sweep {path} during createAgent")
        agent = self._world.new_agent(sweep, given["host"])
        return Node("CreateAgentPayload", {"agent": Node("Agent", {"id": agent.id})})

    def heartbeat(self, given: Arguments) -> Node:
        agent = self._world.agents.get(given["id"])
        sweep = None
        if agent is not None:
            sweep = self._world.sweep(agent.entity, agent.project, agent.sweep)
        if agent is None or sweep is None:
            raise Refused(404, "could not find agent during agentHeartbeat")
        self._caller.to_change(agent.entity, "agentHeartbeat")
        states = json.loads(given.get("runState", "{}"))
        commands = handing.commands(self._world, agent, sweep, states)
        fields = {"agent": Node("Agent", {"id": agent.id}), "commands": json.dumps(commands)}
        return Node("AgentHeartbeatPayload", fields)

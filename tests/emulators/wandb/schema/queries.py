"""What may be read: the viewer, the server's abilities, projects with their sweeps and runs."""

from __future__ import annotations

from typing import Any

from ..errors import Refused
from ..graphql.execution import Arguments, Node
from ..world.naming import global_id
from ..world.state import World
from . import filters
from .access import Caller
from .types import page, project_name_node, run_node, sweep_node


def root(world: World, caller: Caller) -> Node:
    fields: dict[str, Any] = {
        "viewer": lambda _: _viewer(caller),
        "serverInfo": lambda _: _server(world),
        "entity": lambda arguments: _entity(caller, arguments),
        "organization": lambda _: None,
        "project": lambda arguments: _project(world, caller, arguments),
        "model": lambda arguments: _project(world, caller, arguments),
    }
    fields["__type"] = lambda arguments: _type(arguments, fields)
    return Node("Query", fields)


def _viewer(caller: Caller) -> Node | None:
    if not caller.entities:
        return None
    name = caller.entities[0]
    teams = [Node("EntityEdge", {"node": Node("Entity", {"name": one})}) for one in caller.entities]
    nobody = Node("ApiKeyConnection", {"edges": []})
    fields: dict[str, Any] = {
        "id": global_id("User", name),
        "name": name,
        "username": name,
        "email": f"{name}@example.com",
        "entity": name,
        "admin": False,
        "flags": "{}",
        "deletedAt": None,
        "apiKeys": nobody,
        "teams": Node("EntityConnection", {"edges": teams}),
    }
    return Node("User", fields)


def _server(world: World) -> Node:
    features = [
        Node("ServerFeature", {"name": name, "isEnabled": True}) for name in world.settings.features
    ]
    local = {
        "outOfDate": False,
        "latestVersionString": "0.0.0",
        "versionOnThisInstanceString": "0.0.0",
    }
    versions: dict[str, Any] = {"min_cli_version": "0.0.0", "max_cli_version": "99.0.0"}
    fields: dict[str, Any] = {
        "features": features,
        "cliVersionInfo": versions,
        "latestLocalVersionInfo": Node("LocalVersionInfo", local),
        "exposesExplicitOwnership": False,
    }
    return Node("ServerInfo", fields)


def _entity(caller: Caller, arguments: Arguments) -> Node | None:
    name = caller.sees(arguments.get("name"))
    if name is None:
        return None
    organization = Node("Organization", {"coreWeaveOrganizationId": None, "name": name})
    fields = {"id": global_id("Entity", name), "name": name, "organization": organization}
    return Node("Entity", fields)


def _project(world: World, caller: Caller, arguments: Arguments) -> Node | None:
    name = arguments.get("name")
    if not name:
        raise Refused(400, "name required for project query")
    entity = caller.sees(arguments.get("entityName"))
    if entity is None or (entity, name) not in world.projects:
        return None
    sweeps = [one for one in world.sweeps.values() if (one.entity, one.project) == (entity, name)]

    def runs(arguments: Arguments) -> Node:
        found = filters.chosen(
            world, entity, name, arguments.get("filters"), arguments.get("order")
        )
        return page("Run", found, lambda one: run_node(world, one), arguments)

    def run(arguments: Arguments) -> Node | None:
        found = world.run(entity, name, arguments["name"])
        return run_node(world, found) if found is not None else None

    def sweep(arguments: Arguments) -> Node | None:
        found = caller.owned(world.sweep(entity, name, arguments["sweepName"]))
        return sweep_node(world, found) if found is not None else None

    fields: dict[str, Any] = {
        **project_name_node(entity, name).fields,
        "entityName": entity,
        "createdAt": None,
        "isBenchmark": False,
        "internalId": "1",
        "readOnly": False,
        "runCount": lambda arguments: len(
            filters.chosen(world, entity, name, arguments.get("filters"), None)
        ),
        "runs": runs,
        "run": run,
        "bucket": run,
        "sweep": sweep,
        "sweeps": lambda arguments: page(
            "Sweep", sweeps, lambda one: sweep_node(world, one), arguments
        ),
        "totalSweeps": len(sweeps),
    }
    return Node("Project", fields)


def _type(arguments: Arguments, queries: dict[str, Any]) -> Node | None:
    """What older clients look at before they use a field: the names that they look for."""
    known = {
        "Query": sorted(queries),
        "ServerInfo": ["cliVersionInfo", "features", "latestLocalVersionInfo"],
        "Project": ["internalId"],
        "Run": ["projectId"],
    }
    name = arguments["name"]
    fields = [Node("__Field", {"name": one, "args": []}) for one in known.get(name, ())]
    if not fields:
        return None
    return Node("__Type", {"name": name, "fields": fields, "inputFields": []})

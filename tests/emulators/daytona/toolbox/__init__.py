"""What answers behind a sandbox's toolbox proxy URL: `/toolbox/{sandbox_id}/...`."""

from __future__ import annotations

from aiohttp import web

from ..state import Sandbox, World
from . import (
    computer,
    files,
    git_routes,
    git_state,
    interpreter,
    processes,
    searching,
    session_routes,
    system,
    terminal_routes,
    transfers,
)
from .calls import handled, toolbox_of

PREFIX = "/toolbox/{sandbox}"
PARTS = (
    processes,
    session_routes,
    terminal_routes,
    interpreter,
    files,
    searching,
    transfers,
    git_routes,
    git_state,
    computer,
    system,
)


def routes(world: World) -> list[web.RouteDef]:
    """Every path begins with `/toolbox/{sandbox}`.

    The server's middleware has checked the key and that the sandbox is started: it is
    `request[SANDBOX]`, and its `box` is there. Paths below `/files/download` and
    `/files/upload-v2` also come in without a key, signed with `sandbox.signing_key`: checking that
    is the route's own.
    """
    return [
        web.route(method, PREFIX + path, handled(world, function))
        for part in PARTS
        for method, path, function in part.ROUTES
    ]


async def started(world: World, sandbox: Sandbox) -> None:
    """Called when a sandbox's box runs: at each start, before anyone may call its toolbox."""
    toolbox_of(sandbox)


async def stopping(world: World, sandbox: Sandbox) -> None:
    """Called before its box is killed. `sandbox.toolbox` is emptied afterwards.

    Nothing to do: the toolbox watches its box, and lets go of what it held when the box has died,
    whatever killed it."""

"""Every route of the emulator, part by part."""

from __future__ import annotations

from aiohttp import web

from . import (
    builds,
    changes,
    objects,
    organization,
    previews,
    sandboxes,
    secrets,
    snapshots,
    toolbox,
    volumes,
    warm_pools,
)
from .state import World

PARTS = (
    sandboxes,
    changes,
    previews,
    builds,
    snapshots,
    volumes,
    secrets,
    warm_pools,
    organization,
    objects,
    toolbox,
)


def everything(world: World) -> list[web.RouteDef]:
    return [route for part in PARTS for route in part.routes(world)]

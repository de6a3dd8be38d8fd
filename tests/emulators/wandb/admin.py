"""What tests order and ask, over HTTP on a port of its own; nothing here counts as a request.

GET /admin/state, /admin/log; POST /admin/<verb> with the keyword arguments as JSON. In-process
tests call the same verbs.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aiohttp import web

from .errors import Refused

if TYPE_CHECKING:
    from .server import Server


class Verbs:
    """What can be done to the world."""

    def __init__(self, server: Server) -> None:
        self.server, self.world = server, server.world

    async def fault(self, operation: str = "*", **options: Any) -> None:
        """See faults.Fault."""
        self.world.faults.add(operation, **options)

    async def clear_faults(self) -> None:
        """Requests that hang go on."""
        self.world.faults.clear()

    async def release(self) -> None:
        """Requests that hang by a fault's delay go on; the faults stay."""
        self.world.faults.release()

    async def settings(self, **changes: Any) -> dict[str, Any]:
        """See world.settings.Settings. Returns them all."""
        self.world.settings.change(changes)
        return asdict(self.world.settings)

    async def go_away(self) -> None:
        """Every connection is cut, and new ones are refused."""
        await self.server.go_away()

    async def come_back(self) -> None:
        await self.server.come_back()

    async def create_sweep(
        self, config: str, *, entity: str = "acme", project: str = "digits"
    ) -> str:
        """As somebody does on the web page. config: YAML. Returns its name."""
        return self.world.new_sweep(entity, project, config).name

    async def move_sweep(self, sweep: str, state: str) -> None:
        """RUNNING, PAUSED, FINISHED or CANCELED, by the rules, as on the web page."""
        self.world.known_sweep(sweep).move(state, self.world.clock())

    async def delete_sweep(self, sweep: str) -> None:
        self.world.delete_sweep(sweep)

    async def stop_run(self, run: str) -> None:
        """As hyperband decides, or somebody who presses the button."""
        self.world.known_run(run).stopping = True

    async def crash_run(self, run: str) -> None:
        """It was not heard of for some minutes."""
        self.world.known_run(run).state = "crashed"

    async def finish_run(self, run: str, exit_code: int = 0, **summary: Any) -> None:
        """As its program does; for tests that have none."""
        found = self.world.known_run(run)
        found.begin(self.world.clock())
        found.summary |= summary
        found.end(exit_code)

    async def requeue_run(self, run: str) -> None:
        """It was preempted: the next agent that asks is told to resume it."""
        found = self.world.known_run(run)
        found.state = "preempted"
        self.world.known_sweep(found.sweep).waiting.append(found.name)


def routes(verbs: Verbs) -> list[web.RouteDef]:
    async def state(_request: web.Request) -> web.Response:
        return web.json_response(verbs.world.truth())

    async def log(_request: web.Request) -> web.Response:
        return web.json_response(list(verbs.world.newest))

    async def act(request: web.Request) -> web.Response:
        name = request.match_info["verb"]
        verb = getattr(verbs, name, None) if not name.startswith("_") else None
        if not callable(verb):
            return web.Response(status=404, text=f"there is no verb `{name}`")
        try:
            answer = await verb(**await request.json())
        except (TypeError, ValueError) as error:
            return web.Response(status=400, text=str(error))
        except Refused as error:
            return web.Response(status=error.status, text=error.message)
        return web.json_response(answer)

    return [
        web.get("/admin/state", state),
        web.get("/admin/log", log),
        web.post("/admin/{verb}", act),
    ]

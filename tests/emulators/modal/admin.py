"""The HTTP interface by which a test in another process asks for the truth and breaks things.

GET /admin/state, /admin/log; POST /admin/<verb> with the keyword arguments as JSON.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aiohttp import web
from grpclib import GRPCError

from . import ids

if TYPE_CHECKING:
    from .server import Emulator

Verb = Callable[..., Awaitable[Any]]


class Verbs:
    """What can be done to the world; the same calls in-process and over HTTP."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator, self.world = emulator, emulator.world
        self._kept: set[asyncio.Task[None]] = set()

    async def fault(self, rpc: str, status: str = "", **options: Any) -> None:
        """See faults.Fault."""
        self.world.faults.add(rpc, status, **options)

    async def clear_faults(self) -> None:
        """The latencies with them."""
        self.world.faults.clear()

    async def release(self) -> None:
        """Calls that hang by a fault's delay go on."""
        self.world.faults.release()

    async def latency(self, seconds: float, rpc: str = "") -> None:
        """For every call, or for one by its name."""
        if rpc:
            self.world.faults.latency_of_s[rpc] = seconds
        else:
            self.world.faults.latency_s = seconds

    async def settings(self, **changes: Any) -> dict[str, Any]:
        """See state.Settings. Returns them all."""
        settings = self.world.settings
        for name, value in changes.items():
            if name not in asdict(settings):
                raise ValueError(f"there is no setting `{name}`")
            if name == "gpu_capacity":
                settings.gpu_capacity.clear()
                settings.gpu_capacity.update(value)
            else:
                setattr(settings, name, value)
        self.world.gpus.changed()
        return asdict(settings)

    async def forget_images(self) -> None:
        """As when somebody deletes them all, or they were not used for long."""
        self.world.images.by_id.clear()
        self.world.images.by_key.clear()

    async def preempt(self, sandbox_id: str, status: str = "INTERNAL_FAILURE") -> None:
        await self.world.sandboxes.preempt(self.world.sandboxes.get(sandbox_id), status)

    async def kill_sandbox(self, sandbox_id: str) -> None:
        """As the kernel does where a container has no memory left: its entrypoint is killed, with
        all that it runs. What the service says of that is a guess.
        """
        await self.world.sandboxes.kill(self.world.sandboxes.get(sandbox_id))

    async def preempt_container(
        self, task_id: str, notice_s: float = 0.0, *, alone: bool = False
    ) -> None:
        """Of a function. Modal sends SIGINT some time before, 30 s as it says. alone: the others of
        its cluster go on.
        """
        await self.world.functions.preempt(task_id, notice_s=notice_s, alone=alone)

    async def expire_call(self, call_id: str) -> None:
        """The outputs of a call of a function are gone, as a week later."""
        self.world.functions.expire(call_id)

    async def end_sandbox(self, sandbox_id: str) -> None:
        """As when somebody ends it in the dashboard."""
        await self.world.sandboxes.terminate(self.world.sandboxes.get(sandbox_id))

    async def router_access(self, sandbox_id: str) -> dict[str, str]:
        """For tests that speak the router's protocol themselves."""
        sandbox = self.world.sandboxes.get(sandbox_id)
        return {"url": self.world.router_url, "jwt": ids.jwt(sandbox.task_id)}

    async def lose(self, endpoint: str = "router", refuse_s: float = 0.0) -> None:
        """Cut the connections of `router` or `control`; refuse new ones for that long. Answers at
        once.
        """
        task = asyncio.create_task(self.emulator.lose(endpoint, refuse_s))
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
        await asyncio.sleep(0)

    async def clear_log(self) -> None:
        self.world.log.clear()
        self.world.router_log.clear()

    async def watch(self, text: str) -> dict[str, int]:
        """From now on note which fields of which requests carry this text; those noted so far."""
        logs = (self.world.log, self.world.router_log)
        noted = {name: count for log in logs for name, count in log.carriers.items()}
        for log in logs:
            log.watched = text
            log.carriers.clear()
        return noted

    async def secret(self, name: str, values: dict[str, str]) -> None:
        """A named secret, as if made in the dashboard."""
        from .state import Secret

        made = Secret("st-" + name, name, "", values)
        self.world.secrets[made.secret_id] = made


def routes(emulator: Emulator) -> list[web.RouteDef]:
    verbs = Verbs(emulator)

    async def state(_request: web.Request) -> web.Response:
        return web.json_response(emulator.world.truth())

    async def log(_request: web.Request) -> web.Response:
        entries = [*emulator.world.log.entries, *emulator.world.router_log.entries]
        lines = sorted(entries, key=lambda entry: entry["at_s"])
        return web.Response(text="".join(json.dumps(entry) + "\n" for entry in lines))

    async def act(request: web.Request) -> web.Response:
        verb: Verb | None = getattr(verbs, request.match_info["verb"], None)
        if verb is None or request.match_info["verb"].startswith("_"):
            return web.Response(status=404, text="no such verb")
        try:
            answer = await verb(**await request.json())
        except (TypeError, ValueError, AssertionError) as error:
            return web.Response(status=400, text=str(error))
        except GRPCError as error:
            return web.Response(status=404, text=str(error.message))
        return web.json_response(answer)

    return [
        web.get("/admin/state", state),
        web.get("/admin/log", log),
        web.post("/admin/{verb}", act),
    ]

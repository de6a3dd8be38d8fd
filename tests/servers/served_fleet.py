"""A store whose Functions serve models on an emulated Modal, and whose gateway and prompts are of
this process.
"""

from __future__ import annotations

import asyncio
import socket
import textwrap
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from fleetctl.engine.engine import EngineServices
from fleetctl.gateway.gateway_client import GatewayProcess
from fleetctl.gateway.serving import serve_gateway
from fleetctl.providers.endpoint.endpoint_provider import EndpointProvider
from tests.contracts.provider_worlds import eventually
from tests.emulators.modal.running import ModalEmulator
from tests.servers import modal_fleet
from tests.servers.fleets import Play, telling

# A model server as small as may be: it upcases the last message.
SERVER = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.reply({"data": [{"id": "tiny"}]})

    def do_POST(self):
        WAITS()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][-1]["content"].upper() + SUFFIX
        self.reply({
            "choices": [{"index": 0, "finish_reason": "stop",
                         "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        })

    def reply(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass

ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
"""


def free_port() -> int:
    """One whose neighbour, where the guard listens, is free too."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            try:
                other.bind(("127.0.0.1", one.getsockname()[1] + 1))
            except OSError:
                continue
            return int(one.getsockname()[1])


def function(
    port: int, code: str = SERVER, *, suffix: str = "", waits: str = "pass", **fields: Any
) -> dict[str, Any]:
    """waits: Python that each call runs before it is answered."""
    head = f"PORT = {port}\nSUFFIX = {suffix!r}\n"
    head += "def WAITS():\n" + textwrap.indent(waits, "    ") + "\n"
    return {
        "provider": "modal",
        "port": port,
        "command": ["python", "-c", head + code],
        "ready": {"http": "/health"},
        "resources": {"gpu": "L4:1"},
        "scaledownSeconds": 3,
        "startupTimeoutSeconds": 60,
        **fields,
    }


ENDPOINT = {"servers": [{"function": "tiny", "slots": 8}], "models": {"chat": "tiny"}}


class Fleet(modal_fleet.Fleet):
    def __init__(self, home: Path, emulator: ModalEmulator, **options: Any) -> None:
        self._life = AsyncExitStack()
        super().__init__(home, emulator, **options)
        self.prompts = EndpointProvider(home, store_id=self.store.store_id, notify=self.told)
        self.engine._admit("endpoint", self.prompts)

    def parts(self) -> dict[str, Any]:
        directory = self._home / "gateway"
        directory.mkdir(mode=0o700, exist_ok=True)
        return {"outside": EngineServices(gateway=GatewayProcess(directory))}

    async def serve(self) -> None:
        """The gateway lives until the end of the test, whatever becomes of the controller."""
        directory = self._home / "gateway"
        self.gateway = await self._life.enter_async_context(
            serve_gateway(directory, asyncio.Event())
        )

    async def restart(self) -> None:
        await super().close()
        await self.prompts.close()
        self._open()
        self.prompts = EndpointProvider(self._home, store_id=self.store.store_id, notify=self.told)
        self.engine._admit("endpoint", self.prompts)

    async def close(self) -> None:
        await super().close()
        await self.prompts.close()
        await self._life.aclose()

    def ask(self, *texts: str, name: str = "job") -> None:
        """A job of prompts."""
        prompt = {"endpoint": "small", "model": "chat", "text": "${text}"}
        self.apply_kind(
            "BatchJob",
            name,
            {
                "tasks": {"items": [{"text": it} for it in texts]},
                "template": {"prompt": prompt},
            },
        )

    # -- the truth --------------------------------------------------------------------------------

    def of_kind(self, kind: str, name: str) -> dict[str, Any]:
        before, self.kind = self.kind, kind
        try:
            return self.status(name)
        finally:
            self.kind = before

    async def says(self, kind: str, name: str, **wanted: str) -> dict[str, Any]:
        """Its status, once it holds these texts."""

        async def has_them() -> bool:
            assert not self._running.done()
            status = self.of_kind(kind, name)
            return all(text in str(status.get(key)) for key, text in wanted.items())

        try:
            await eventually(has_them, f"{name} said {wanted}")
        except AssertionError as error:
            raise AssertionError(f"{error}; its status: {self.of_kind(kind, name)}") from None
        return self.of_kind(kind, name)

    async def waits_for(self, name: str, reason: str) -> str:
        """The message of a job, once its reason begins so."""

        async def says_it() -> bool:
            return str(self.status(name).get("reason")).startswith(reason)

        try:
            await eventually(says_it, f"{name} said {reason}")
        except AssertionError as error:
            raise AssertionError(f"{error}; its status: {self.status(name)}") from None
        return str(self.status(name)["message"])

    def servers(self) -> list[dict[str, Any]]:
        """Web functions of this store, the requests of each with them; oldest first."""
        functions = self.emulator.state()["functions"]["functions"]
        return [it for it in functions if it["app_id"] in self._apps()]

    def containers(self, *, live: bool = False) -> list[dict[str, Any]]:
        mine = {it["function_id"] for it in self.servers()}
        found = self.emulator.state()["functions"]["containers"]
        return [it for it in found if it["function_id"] in mine and (it["live"] or not live)]

    def _apps(self) -> set[str]:
        return {it["app_id"] for it in self.emulator.state()["apps"] if it["name"] in self._names()}

    def _names(self) -> set[str]:
        prefix = self.provider._functions._deployments._prefix()  # type: ignore[attr-defined]
        every = self.emulator.state()["apps"]
        return {it["name"] for it in every if it["name"].startswith(prefix)}

    async def scaled_to_zero(self) -> None:
        async def is_empty() -> bool:
            return not self.containers(live=True)

        await eventually(is_empty, "no container was left")


def serving_on(home: Path, emulator: ModalEmulator) -> Play:
    return telling(partial(Fleet, home, emulator))

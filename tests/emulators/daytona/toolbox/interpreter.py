"""The calls of the code interpreter: contexts, and code that runs in one over a WebSocket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import WSMsgType, web

from ..state import new_id
from .calls import Call, Route
from .contexts import DEFAULT, LANGUAGE, TIMEOUT_S, Context, Message, TimedOut
from .errors import ToolboxError, bad_request, reply

CLOSE_TIMED_OUT = 4008  # the SDK makes its timeout error of it
CLOSE_POLICY = 1008
CLOSE_INTERNAL = 1011


async def create_context(call: Call) -> web.Response:
    body = await call.body()
    language = body.text("language", LANGUAGE)
    if language != LANGUAGE:
        raise bad_request(f"unsupported language: {language} (only '{LANGUAGE}' is supported)")
    cwd = call.toolbox.path(body.text("cwd", call.toolbox.cwd))
    if not call.toolbox.host(cwd).is_dir():
        raise bad_request(f"working directory does not exist: {cwd}")
    context = Context(new_id(), cwd)
    call.toolbox.contexts[context.id] = context
    return reply(context.body())


async def list_contexts(call: Call) -> web.Response:
    mine = [one.body() for one in call.toolbox.contexts.values() if one.id != DEFAULT]
    return reply({"contexts": mine})


async def delete_context(call: Call) -> web.Response:
    context_id = call.variable("context")
    if context_id == DEFAULT:
        raise bad_request("cannot delete the default context")
    context = call.toolbox.contexts.pop(context_id, None)
    if context is None:
        raise ToolboxError(404, "context not found")
    context.close()
    return reply({"message": "Context deleted successfully"})


async def execute(call: Call) -> web.StreamResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(call.request)
    first = await socket.receive()
    if first.type is not WSMsgType.TEXT:
        await socket.close(code=CLOSE_POLICY, message=b"expected a request")
        return socket
    running = asyncio.ensure_future(_run(call, socket, first.data))
    left = asyncio.ensure_future(_until_left(socket))
    await asyncio.wait((running, left), return_when=asyncio.FIRST_COMPLETED)
    # A client that left does not end its code: the next call in the context waits for it.
    await asyncio.gather(running, return_exceptions=True)
    left.cancel()
    return socket


async def _run(call: Call, socket: web.WebSocketResponse, text: str) -> None:
    try:
        request: dict[str, Any] = json.loads(text)
        context = _context(call, str(request.get("contextId") or DEFAULT))
    except (ValueError, ToolboxError) as error:
        await socket.close(code=CLOSE_POLICY, message=str(error).encode()[:120])
        return

    async def send(message: Message) -> None:
        if not socket.closed:
            await socket.send_str(json.dumps(message))

    timeout = request.get("timeout")
    timeout_s = TIMEOUT_S if timeout is None else float(timeout)
    desired = {"code": request.get("code") or "", "envs": request.get("envs") or {}}
    try:
        await context.run(call.toolbox, desired, timeout_s, send)
    except TimedOut:
        await socket.close(code=CLOSE_TIMED_OUT, message=b"execution timed out")
    except ToolboxError as error:
        await socket.close(code=CLOSE_INTERNAL, message=str(error).encode()[:120])
    else:
        await send({"type": "control", "text": "completed"})
        await socket.close(code=1000)


def _context(call: Call, context_id: str) -> Context:
    contexts = call.toolbox.contexts
    if context_id == DEFAULT and DEFAULT not in contexts:
        contexts[DEFAULT] = Context(DEFAULT, call.toolbox.cwd)
    if context_id not in contexts:
        raise ToolboxError(404, "context not found")
    return contexts[context_id]


async def _until_left(socket: web.WebSocketResponse) -> None:
    async for _message in socket:
        continue


ROUTES: list[Route] = [
    ("GET", "/process/interpreter/execute", execute),
    ("POST", "/process/interpreter/context", create_context),
    ("GET", "/process/interpreter/context", list_contexts),
    ("DELETE", "/process/interpreter/context/{context}", delete_context),
]

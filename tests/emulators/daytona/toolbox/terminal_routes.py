"""The calls about pseudo-terminals."""

from __future__ import annotations

import asyncio
import base64
import json

from aiohttp import WSMsgType, web

from .bodies import Body
from .calls import Call, Route
from .errors import ToolboxError, bad_request, reply
from .terminals import TERM, End, Terminal, size_of

# Asked for by a client that wants a control message before the closing frame.
EXIT_CONTROL = "X-Daytona-Pty-Exit-Control"
_ENVS = "X-Daytona-Pty-Envs~"


async def create(call: Call) -> web.Response:
    terminal = _made(call, await call.body())
    if not terminal.lazy:
        await _started(call, terminal)
    return reply({"sessionId": terminal.id}, status=201)


async def create_and_connect(call: Call) -> web.StreamResponse:
    query = call.request.query
    sizes = {side: _number(query[side]) for side in ("cols", "rows") if side in query}
    terminal = _made(call, Body.of({**query, **sizes, "envs": _envs_of(call.request)}))
    await _started(call, terminal)
    return await _serve(call, terminal)


async def connect(call: Call) -> web.StreamResponse:
    terminal = _terminal(call)
    await terminal.start(call.toolbox)
    return await _serve(call, terminal)


async def list_all(call: Call) -> web.Response:
    return reply({"sessions": [one.body() for one in call.toolbox.terminals.values()]})


async def get(call: Call) -> web.Response:
    return reply(_terminal(call).body())


async def delete(call: Call) -> web.Response:
    terminal = _terminal(call)
    del call.toolbox.terminals[terminal.id]
    terminal.close()
    return reply({})


async def resize(call: Call) -> web.Response:
    terminal, body = _terminal(call), await call.body("PtyResizeRequest", "cols", "rows")
    terminal.resize(cols=size_of(body.number("cols")), rows=size_of(body.number("rows")))
    return reply(terminal.body())


def _made(call: Call, body: Body) -> Terminal:
    terminal_id = body.text("id")
    if not terminal_id:
        raise bad_request("PTY session ID is required")
    if terminal_id in call.toolbox.terminals:
        raise ToolboxError(409, f"PTY session with ID '{terminal_id}' already exists")
    terminal = Terminal(
        id=terminal_id,
        cwd=call.toolbox.path(body.text("cwd", call.toolbox.cwd)),
        envs={"TERM": TERM, **body.mapping("envs")},
        cols=size_of(body.number("cols", 80)),
        rows=size_of(body.number("rows", 24)),
        lazy=body.flag("lazyStart"),
    )
    call.toolbox.terminals[terminal_id] = terminal
    return terminal


async def _started(call: Call, terminal: Terminal) -> None:
    try:
        await terminal.start(call.toolbox)
    except ToolboxError:
        del call.toolbox.terminals[terminal.id]
        raise


async def _serve(call: Call, terminal: Terminal) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=(EXIT_CONTROL,))
    await socket.prepare(call.request)
    queue = terminal.connect()
    control = EXIT_CONTROL in call.request.headers.get("Sec-WebSocket-Protocol", "")
    try:
        await socket.send_str(json.dumps({"type": "control", "status": "connected"}))
        sending = asyncio.ensure_future(_send(socket, queue, control=control))
        receiving = asyncio.ensure_future(_receive(socket, terminal))
        await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
        if terminal.end is None:
            sending.cancel()  # else the closing frame is on its way, and woke the receiver
        # Errors are of a connection that went, or of its box that did: there is nobody to tell.
        await asyncio.gather(sending, return_exceptions=True)
        receiving.cancel()
    finally:
        terminal.clients.discard(queue)
    return socket


async def _send(
    socket: web.WebSocketResponse, queue: asyncio.Queue[bytes | End], *, control: bool
) -> None:
    while isinstance(data := await queue.get(), bytes):
        await socket.send_bytes(data)
    if control:
        message = {"type": "control", "status": "exited", **data.body()}
        await socket.send_str(json.dumps(message))
    await socket.close(code=1000, message=json.dumps(data.body()).encode())


async def _receive(socket: web.WebSocketResponse, terminal: Terminal) -> None:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            await terminal.write(message.data.encode())
        elif message.type is WSMsgType.BINARY:
            await terminal.write(message.data)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise bad_request(f"not a number: {text}") from error


def _envs_of(request: web.Request) -> dict[str, str]:
    offered = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
    for token in (one.strip() for one in offered):
        if token.startswith(_ENVS):
            packed = token.removeprefix(_ENVS)
            try:
                return dict(json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))))
            except ValueError as error:
                raise bad_request("invalid PTY environment") from error
    return {}


def _terminal(call: Call) -> Terminal:
    found = call.toolbox.terminals.get(call.variable("terminal"))
    if found is None:
        raise ToolboxError(404, "PTY session not found", code="PROCESS_NOT_FOUND")
    return found


_ONE = "/process/pty/{terminal}"
ROUTES: list[Route] = [
    ("GET", "/process/pty/create-connect", create_and_connect),
    ("POST", "/process/pty", create),
    ("GET", "/process/pty", list_all),
    ("GET", _ONE, get),
    ("DELETE", _ONE, delete),
    ("GET", _ONE + "/connect", connect),
    ("POST", _ONE + "/resize", resize),
]

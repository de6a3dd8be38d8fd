"""The calls about sessions, their commands and their logs."""

from __future__ import annotations

import asyncio
import re

from aiohttp import WSMsgType, web

from .calls import Call, Route
from .errors import ToolboxError, bad_request, reply
from .logs import READ_BYTES, STDOUT, Log
from .pipes import write_all
from .sessions import Command, Session, opened

ENTRYPOINT = "entrypoint"
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


async def create(call: Call) -> web.Response:
    body = await call.body("CreateSessionRequest", "sessionId")
    session_id, sessions = body.text("sessionId"), call.toolbox.sessions
    if not _SAFE_ID.fullmatch(session_id):
        raise bad_request(f"invalid session id: {session_id}")
    opening = call.toolbox.opening
    if session_id in sessions or session_id in opening or session_id == ENTRYPOINT:
        raise ToolboxError(409, "session already exists")
    opening.add(session_id)
    try:
        sessions[session_id] = await opened(call.toolbox, session_id)
    finally:
        opening.discard(session_id)
    return web.Response(status=201)


async def list_all(call: Call) -> web.Response:
    return reply([one.body() for one in call.toolbox.sessions.values()])


async def get(call: Call) -> web.Response:
    return reply(_session(call).body())


async def delete(call: Call) -> web.Response:
    session = _session(call)
    del call.toolbox.sessions[session.id]
    session.close()
    return web.Response(status=204)


async def execute(call: Call) -> web.Response:
    session = _session(call)
    body = await call.body("SessionExecuteRequest", "command")
    by_itself = body.flag("runAsync") or body.flag("async")
    echo = not body.flag("suppressInputEcho")
    command = await session.begin(body.text("command"), by_itself=by_itself, echo=echo)
    if by_itself:
        return reply({"cmdId": command.id}, status=202)
    await command.ended.wait()
    if command.exit_code is None:
        raise ToolboxError(410, "session ended before the command completed", code="SESSION_ENDED")
    texts = command.log.texts()
    return reply({"cmdId": command.id, "exitCode": command.exit_code, **texts})


async def get_command(call: Call) -> web.Response:
    return reply(_command(call).body())


async def send_input(call: Call) -> web.Response:
    session, command = _session(call), _command(call)
    body = await call.body("SessionSendInputRequest", "data")
    if command.exit_code is not None:
        text = f"command has already completed with exit code {command.exit_code}"
        raise ToolboxError(410, text, code="COMMAND_ALREADY_COMPLETED")
    if session.over:
        raise ToolboxError(410, "session process has exited", code="SESSION_ENDED")
    if command.input < 0:
        raise bad_request("command does not accept input")
    data = body.text("data").encode()
    if not data.endswith(b"\n"):
        data += b"\n"
    if command.echo:
        command.log.append(STDOUT + data)
    await write_all(command.input, data)
    return web.Response(status=204)


async def get_logs(call: Call) -> web.StreamResponse:
    return await _answer(call, _command(call).log)


async def get_entrypoint(call: Call) -> web.Response:
    words = call.sandbox.image.entrypoint or ("sleep", "infinity")
    command = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    commands = [{"id": "entrypoint_command", "command": command}]
    return reply({"sessionId": ENTRYPOINT, "commands": commands})


async def get_entrypoint_logs(call: Call) -> web.StreamResponse:
    log = call.sandbox.toolbox.get("entrypoint_log")
    if not isinstance(log, Log):
        log = Log(call.toolbox.box.directory / "session-logs" / "entrypoint.log")
        call.sandbox.toolbox["entrypoint_log"] = log
    return await _answer(call, log)


async def _answer(call: Call, log: Log) -> web.StreamResponse:
    follow = call.request.query.get("follow") == "true"
    if call.request.headers.get("Upgrade", "").lower() == "websocket":
        return await _stream(call, log, follow=follow)
    if follow:
        return await _chunked(call, log)
    return reply(log.texts())


async def _stream(call: Call, log: Log, *, follow: bool) -> web.WebSocketResponse:
    """Binary frames with the markers in them; closed with 1000 when the command has ended."""
    socket = web.WebSocketResponse(heartbeat=None)
    await socket.prepare(call.request)
    left = asyncio.ensure_future(_until_left(socket))
    sent, file = 0, log.reading()
    try:
        while not left.done():
            while data := file.read(READ_BYTES):
                await socket.send_bytes(data)
                sent += len(data)
            if log.over or not follow:
                await socket.close(code=1000)
                break
            if log.size == sent:
                await _either(log, left)
    except ConnectionError:
        return socket  # the client went, or its box did: there is nobody to tell
    finally:
        left.cancel()
        file.close()
    return socket


async def _chunked(call: Call, log: Log) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    await response.prepare(call.request)
    sent = 0
    with log.reading() as file:
        while True:
            while data := file.read(READ_BYTES):
                await response.write(data)
                sent += len(data)
            if log.over:
                break
            if log.size == sent:
                await log.grown()
    await response.write_eof()
    return response


async def _until_left(socket: web.WebSocketResponse) -> None:
    """Pings are answered while this reads; it ends when the client closes."""
    async for message in socket:
        if message.type is WSMsgType.ERROR:
            return


async def _either(log: Log, left: asyncio.Future[None]) -> None:
    grown = asyncio.ensure_future(log.grown())
    await asyncio.wait((grown, left), return_when=asyncio.FIRST_COMPLETED)
    grown.cancel()


def _session(call: Call) -> Session:
    found = call.toolbox.sessions.get(call.variable("session"))
    if found is None:
        raise ToolboxError(404, "session not found", code="PROCESS_NOT_FOUND")
    return found


def _command(call: Call) -> Command:
    found = _session(call).commands.get(call.variable("command"))
    if found is None:
        raise ToolboxError(404, "command not found", code="PROCESS_NOT_FOUND")
    return found


_ONE = "/process/session/{session}"
ROUTES: list[Route] = [
    ("GET", "/process/session/entrypoint", get_entrypoint),
    ("GET", "/process/session/entrypoint/logs", get_entrypoint_logs),
    ("POST", "/process/session", create),
    ("GET", "/process/session", list_all),
    ("GET", _ONE, get),
    ("DELETE", _ONE, delete),
    ("POST", _ONE + "/exec", execute),
    ("GET", _ONE + "/command/{command}", get_command),
    ("POST", _ONE + "/command/{command}/input", send_input),
    ("GET", _ONE + "/command/{command}/logs", get_logs),
]

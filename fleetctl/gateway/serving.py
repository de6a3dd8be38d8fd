"""The gateway's two listeners and its files, from their opening to their end."""

import asyncio
import contextlib
import os
import resource
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import ClientSession, DummyCookieJar, web

from fleetctl.common.event_loop import cancel_tasks
from fleetctl.common.telemetry import CLOSE_S, SpanExport, read_settings
from fleetctl.gateway.answer_log import (
    BATCH_BYTES_MAX,
    KEPT_BATCH_S,
    TOKENS,
    USD,
    AnswerCache,
    AnswerLog,
)
from fleetctl.gateway.asking.call_attempt import AttemptConnector
from fleetctl.gateway.batching.batcher import Batcher
from fleetctl.gateway.call_ledger import CallLedger
from fleetctl.gateway.call_spans import CallSpans
from fleetctl.gateway.control_api import control_app
from fleetctl.gateway.data.entrance import Entrance
from fleetctl.gateway.data.task_api import data_app
from fleetctl.gateway.gateway_client import KEY, LEDGER, PORT, SOCKET
from fleetctl.gateway.gateway_state import GatewayState

HOST = "127.0.0.1"
BACKLOG = 128
CONNECTIONS_MIN = 64
FILES_MAX = 128


@contextlib.asynccontextmanager
async def serve_gateway(directory: Path, ended: asyncio.Event) -> AsyncIterator[GatewayState]:
    """Serves until the end of the block. One process at a time may serve a directory; the owner of
    the directory ensures that.
    """
    ledger = CallLedger(directory / LEDGER)
    kept = AnswerLog(directory / "kept.db")
    connector = AttemptConnector(limit=0)
    client = ClientSession(
        connector=connector,
        cookie_jar=DummyCookieJar(),
        trust_env=False,
    )
    cache = AnswerCache(directory / "cache.db")
    path = directory / "answers.db"
    answers = AnswerLog(path, kept_s=KEPT_BATCH_S, bytes_max=BATCH_BYTES_MAX)
    spans = _make_spans()
    state = GatewayState(
        _load_key(directory),
        ledger,
        cache,
        kept,
        answers,
        client,
        ended,
        spans,
    )
    batcher = Batcher(state)
    data = _make_runner(data_app(state, batcher))
    control = _make_runner(control_app(state))
    try:
        batcher.resume()
        async with _bind_port(data, directory):
            await _bind_control(control, directory)
            yield state
    finally:
        await data.cleanup()
        await control.cleanup()
        await batcher.close()
        await cancel_tasks(state.tasks)
        await client.close()
        ledger.close()
        kept.close()
        answers.close()
        if spans is not None:
            await asyncio.to_thread(spans.close, CLOSE_S)


def _make_spans() -> CallSpans | None:
    settings = read_settings(os.environ)
    if not settings.traces:
        return None
    export = SpanExport(os.environ, settings=settings, instance=f"gateway-{os.getpid()}")
    return CallSpans(export, os.environ, usage=TOKENS, cost=USD)


def _make_runner(app: web.Application) -> web.AppRunner:
    # Cancellation: a client that leaves ends its request at the server behind too.
    return web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=1.0,
    )


@contextlib.asynccontextmanager
async def _bind_port(runner: web.AppRunner, directory: Path) -> AsyncIterator[None]:
    """The port of last time when it is free, so that the addresses of living tasks stay true."""
    await runner.setup()
    assert runner.server is not None
    file = directory / PORT
    loop = asyncio.get_running_loop()
    before = file.read_text().strip() if file.exists() else ""
    entrance = Entrance(runner.server, _connections_max())
    try:
        port = int(before) if before.isdecimal() else 0
        listener = await loop.create_server(entrance, HOST, port, backlog=BACKLOG)
    except OSError:
        listener = await loop.create_server(entrance, HOST, 0, backlog=BACKLOG)
    draft = directory / "port.new"
    draft.write_text(f"{listener.sockets[0].getsockname()[1]}\n")
    draft.replace(file)
    try:
        yield
    finally:
        listener.close()


def _connections_max() -> int:
    """Returns the limit of connections. As many again are left for servers, and some for files."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(CONNECTIONS_MIN, (soft - FILES_MAX) // 2)


async def _bind_control(runner: web.AppRunner, directory: Path) -> None:
    await runner.setup()
    socket = directory / SOCKET
    socket.unlink(missing_ok=True)
    await web.UnixSite(runner, str(socket)).start()


def _load_key(directory: Path) -> bytes:
    """Loads the key of 32 bytes, which the first process makes."""
    with contextlib.suppress(FileExistsError):
        fd = os.open(directory / KEY, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.write(fd, secrets.token_bytes(32))
        os.close(fd)
    return (directory / KEY).read_bytes()

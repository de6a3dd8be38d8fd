"""The gateway's two listeners and its files, from their opening to their end."""

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import ClientSession, DummyCookieJar, web

from fleetctl.common.tasks import cancel
from fleetctl.gateway.asking.attempt import Connector
from fleetctl.gateway.batching.batcher import Batcher
from fleetctl.gateway.control.control import control_app
from fleetctl.gateway.data.data import data_app
from fleetctl.gateway.keeping.cache import Cache
from fleetctl.gateway.keeping.kept import BATCH_BYTES_MAX, KEPT_BATCH_S, Kept
from fleetctl.gateway.keeping.ledger import Ledger
from fleetctl.gateway.reach.gateway import KEY, LEDGER, PORT, SOCKET
from fleetctl.gateway.state import State


@contextlib.asynccontextmanager
async def serving(directory: Path, ended: asyncio.Event) -> AsyncIterator[State]:
    """Until the end of the block. One at a time may serve a directory; its owner sees to that."""
    ledger, kept = Ledger(directory / LEDGER), Kept(directory / "kept.db")
    connector = Connector(limit=0)
    client = ClientSession(connector=connector, cookie_jar=DummyCookieJar(), trust_env=False)
    cache = Cache(directory / "cache.db")
    path = directory / "answers.db"
    answers = Kept(path, kept_s=KEPT_BATCH_S, bytes_max=BATCH_BYTES_MAX)
    state = State(_key(directory), ledger, cache, kept, answers, client, ended)
    batcher = Batcher(state)
    data, control = _runner(data_app(state, batcher)), _runner(control_app(state))
    try:
        batcher.resume()
        await _bind(data, directory)
        await _bind_control(control, directory)
        yield state
    finally:
        await data.cleanup()
        await control.cleanup()
        await batcher.close()
        await cancel(state.tasks)
        await client.close()
        ledger.close()
        kept.close()
        answers.close()


def _runner(app: web.Application) -> web.AppRunner:
    # Cancellation: a client that leaves ends its request at the server behind too.
    return web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)


async def _bind(runner: web.AppRunner, directory: Path) -> None:
    """The port of last time when it is free, so that the addresses of living tasks stay true."""
    await runner.setup()
    file = directory / PORT
    before = file.read_text().strip() if file.exists() else ""
    try:
        site = web.TCPSite(runner, "127.0.0.1", int(before) if before.isdecimal() else 0)
        await site.start()
    except OSError:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
    draft = directory / "port.new"
    draft.write_text(f"{runner.addresses[0][1]}\n")
    draft.replace(file)


async def _bind_control(runner: web.AppRunner, directory: Path) -> None:
    await runner.setup()
    socket = directory / SOCKET
    socket.unlink(missing_ok=True)
    await web.UnixSite(runner, str(socket)).start()


def _key(directory: Path) -> bytes:
    """32 bytes, made by whoever comes first."""
    with contextlib.suppress(FileExistsError):
        fd = os.open(directory / KEY, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.write(fd, secrets.token_bytes(32))
        os.close(fd)
    return (directory / KEY).read_bytes()

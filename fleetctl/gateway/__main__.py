"""`python -m fleetctl.gateway DIRECTORY`: serve until told to end, or until nobody needs it."""

import asyncio
import contextlib
import fcntl
import os
import secrets
import signal
import sys
import time
from pathlib import Path

from aiohttp import ClientSession, DummyCookieJar, TCPConnector, web

from fleetctl.gateway.cache import Cache
from fleetctl.gateway.control import control_app
from fleetctl.gateway.data import data_app
from fleetctl.gateway.ledger import Ledger
from fleetctl.gateway.reach.gateway import KEY, LEDGER, PORT, SOCKET
from fleetctl.gateway.state import State

IDLE_S = 600.0  # without grants and without a word of the controller
LOOK_S = 5.0


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m fleetctl.gateway DIRECTORY\n")
        return 2
    directory = Path(sys.argv[1])
    os.umask(0o077)
    lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    asyncio.run(_run(directory))
    return 0


async def _run(directory: Path) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    ledger = Ledger(directory / LEDGER)
    async with ClientSession(
        connector=TCPConnector(limit=0), cookie_jar=DummyCookieJar(), trust_env=False
    ) as client:
        state = State(_key(directory), ledger, Cache(directory / "cache.db"), client, ended)
        data = await _listen(data_app(state))
        await _bind(data, directory)
        control = await _listen(control_app(state))
        socket = directory / SOCKET
        socket.unlink(missing_ok=True)
        await web.UnixSite(control, str(socket)).start()
        await _until_ended(state)
        await data.cleanup()
        await control.cleanup()
    ledger.close()


async def _listen(app: web.Application) -> web.AppRunner:
    # Cancellation: a client that leaves ends its request at the server behind too.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    return runner


async def _bind(runner: web.AppRunner, directory: Path) -> None:
    """The port of last time when it is free, so that the addresses of living tasks stay true."""
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


def _key(directory: Path) -> bytes:
    """32 bytes, made by whoever comes first."""
    with contextlib.suppress(FileExistsError):
        fd = os.open(directory / KEY, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.write(fd, secrets.token_bytes(32))
        os.close(fd)
    return (directory / KEY).read_bytes()


async def _until_ended(state: State) -> None:
    heard_s = time.monotonic()
    while not state.ended.is_set():
        if state.grants or state.heard:
            heard_s, state.heard = time.monotonic(), False
        if time.monotonic() - heard_s > IDLE_S:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(state.ended.wait(), LOOK_S)


if __name__ == "__main__":
    sys.exit(main())

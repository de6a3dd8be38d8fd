"""`python -m fleetctl.gateway DIRECTORY`: serves until stopped, or until no caller needs it."""

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fleetctl.common.event_loop import loop_factory
from fleetctl.gateway.gateway_state import GatewayState
from fleetctl.gateway.serving import serve_gateway

IDLE_S = 600.0  # without grants and without a message of the controller
# With grants, whose tasks may go on without a controller: neither a message of the controller nor a
# call.
FORGOTTEN_S = 6 * 3600.0
LOOK_S = 5.0
DESCRIPTORS_MAX = 65_536


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m fleetctl.gateway DIRECTORY\n")
        return 2
    directory = Path(sys.argv[1])
    os.umask(0o077)
    _take_descriptors()
    lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve_directory(directory, lock))
    return 0


def _take_descriptors() -> None:
    """Increases the limit of open files up to the useful number, as far as the machine allows: each
    call takes two.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(DESCRIPTORS_MAX, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _serve_directory(directory: Path, lock: int) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with serve_gateway(directory, ended) as state:
        await _until_ended(state, partial(_is_home, directory, lock))


def _is_home(directory: Path, lock: int) -> bool:
    """Returns True if the lock that we hold is still the one of the directory."""
    try:
        return os.path.samestat((directory / "lock").stat(), os.fstat(lock))
    except FileNotFoundError:
        return False


async def _until_ended(
    state: GatewayState,
    is_home: Callable[[], bool],
    *,
    clock_s: Callable[[], float] = time.monotonic,
) -> None:
    heard_s = clock_s()
    calls = 0
    while not state.ended.is_set():
        if state.leaving and not state.batches:
            return
        if not is_home():
            return  # its state directory is gone, so no controller can end it any more
        if state.heard or state.batches or state.calls != calls:
            heard_s, state.heard, calls = clock_s(), False, state.calls
        if clock_s() - heard_s > (FORGOTTEN_S if state.grants else IDLE_S):
            return
        with contextlib.suppress(sqlite3.Error):  # there is no room now; at the next look
            state.kept.clean()
            state.answers.clean()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(state.ended.wait(), LOOK_S)


if __name__ == "__main__":
    sys.exit(main())

"""`python -m fleetctl.gateway DIRECTORY`: serve until told to end, or until nobody needs it."""

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

from fleetctl.common.event_loop import loop_factory
from fleetctl.gateway.serving import serving
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
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(directory))
    return 0


async def _run(directory: Path) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with serving(directory, ended) as state:
        await _until_ended(state)


async def _until_ended(state: State) -> None:
    heard_s = time.monotonic()
    while not state.ended.is_set():
        if state.leaving and not state.batches:
            return
        if state.grants or state.heard or state.batches:
            heard_s, state.heard = time.monotonic(), False
        if time.monotonic() - heard_s > IDLE_S:
            return
        state.kept.clean()
        state.answers.clean()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(state.ended.wait(), LOOK_S)


if __name__ == "__main__":
    sys.exit(main())

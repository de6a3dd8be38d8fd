"""`python -m tests.emulators.daytona --port N`: serve until told to stop or the parent is gone.

The first lines on stdout are the variables under which the SDK finds the server.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import signal
import sys
from pathlib import Path

from tests.emulators.boxes import nursery_here
from tests.emulators.loops import loop_factory

from .server import Server
from .settings import Settings

YOUNG_OBJECTS = 20_000  # between two collections; at Python's own 700 they take a tenth of the time


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.emulators.daytona", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--directory", type=Path, help="of images and volumes; default: a new one")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON, see settings.py")
    parser.add_argument("--until-stdin-ends", action="store_true")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    settings = Settings()
    settings.change(options.settings)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    async with Server(options.directory, settings=settings, port=options.port) as server:
        for name, value in server.env.items():
            print(f"{name}={value}")
        print(f"DAYTONA_EMULATOR_CA={server.authority}", flush=True)
        if options.until_stdin_ends:
            # Nothing is ever written to it: it can be read when its other end is gone.
            loop.add_reader(sys.stdin.fileno(), over.set)
        # What is there by now stays, and requests make little garbage in cycles.
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        await over.wait()
    # Whoever hears that this process has ended finds the disks of its sandboxes gone, too.
    (await nursery_here()).stop()


if __name__ == "__main__":
    main()

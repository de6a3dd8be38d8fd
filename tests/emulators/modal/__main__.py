"""`python -m tests.emulators.modal [--port N] [--directory D]`: the emulator as a program.

Runs until ^C, or the end of a pipe at stdin. The first line of stdout is JSON for programs; on a
terminal, what to export follows for people.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal
import stat
import sys
import tempfile
from pathlib import Path

from tests.emulators.loops import loop_factory

from .server import Emulator

YOUNG_OBJECTS = 50_000  # between two looks for garbage


async def run(directory: Path, port: int) -> None:
    emulator = Emulator(directory)
    await emulator.start(port)
    admin = f"{emulator.world.http_url}/admin"
    print(json.dumps({"env": emulator.env, "admin": admin}), flush=True)
    if sys.stdout.isatty():
        for name, value in emulator.env.items():
            print(f"export {name}={value}")
        print(f"# the truth: {admin}/state", flush=True)
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, done.set)
    if stat.S_ISFIFO(os.fstat(0).st_mode):  # of the program that started us
        loop.add_reader(0, lambda: os.read(0, 1024) or done.set())
    # What is there by now stays, and calls make little garbage in cycles.
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    await done.wait()
    await emulator.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.emulators.modal", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="of the control plane; 0 picks one")
    parser.add_argument("--directory", type=Path, help="where everything emulated lies")
    options = parser.parse_args()
    if options.directory is not None:
        options.directory.mkdir(parents=True, exist_ok=True)
        serve(options.directory, options.port)
        return
    with tempfile.TemporaryDirectory(prefix="modal-emulator-") as directory:
        serve(Path(directory), options.port)


def serve(directory: Path, port: int) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(directory, port))


if __name__ == "__main__":
    main()

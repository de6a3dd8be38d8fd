"""`python -m tests.emulators.kubernetes`: serve until told to stop or the parent is gone.

The first lines on stdout say where: KUBECONFIG, the server's address, and the control port.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import signal
import sys
import tempfile
from pathlib import Path

from tests.emulators.boxes import nursery_here
from tests.emulators.kubernetes import control
from tests.emulators.kubernetes.cluster import Cluster
from tests.emulators.kubernetes.settings import Settings
from tests.emulators.loops import loop_factory

YOUNG_OBJECTS = 50_000  # between two collections; at Python's own 700 they take a tenth of the time


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.emulators.kubernetes", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--directory", type=Path, help="of pods and claims; default: a new one")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON, see settings.py")
    parser.add_argument("--until-stdin-ends", action="store_true")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    directory = options.directory or Path(tempfile.mkdtemp(prefix="kubernetes-emulator-"))
    settings = Settings.of(options.settings)
    async with Cluster(directory, settings, port=options.port) as cluster:
        controlling, port = await control.serve(cluster)
        print(f"KUBECONFIG={cluster.kubeconfig}")
        print(f"KUBERNETES_EMULATOR_URL={cluster.url}")
        print(f"KUBERNETES_EMULATOR_CONTROL=http://127.0.0.1:{port}", flush=True)
        if options.until_stdin_ends:
            # Nothing is ever written to it: it can be read when its other end is gone.
            loop.add_reader(sys.stdin.fileno(), over.set)
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        await over.wait()
        await controlling.cleanup()
    (await nursery_here()).stop()


if __name__ == "__main__":
    main()

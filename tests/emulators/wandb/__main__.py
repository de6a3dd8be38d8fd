"""`python -m tests.emulators.wandb`: serve until told to stop or stdin ends.

The first line of stdout is JSON: the variables under which wandb finds it, and the address of its
admin interface.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat

from tests.emulators.loops import loop_factory

from .server import Server


def main() -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve())


async def _serve() -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    async with Server() as server:
        print(json.dumps({"env": server.env, "admin": server.admin_url}), flush=True)
        if stat.S_ISFIFO(os.fstat(0).st_mode):  # of the program that started us
            # Nothing is ever written to it: it can be read when its other end is gone.
            loop.add_reader(0, over.set)
        await over.wait()


if __name__ == "__main__":
    main()

"""The command line in a process that can tell how its CPU time divides: ours, and an SDK's.

`python -m tests.bench.meter FILE VERB ...` runs `fleetctl VERB ...`; at every SIGUSR1 it writes
FILE, a JSON object of seconds since the start:

process      all threads together
sdk_threads  threads that an SDK made for itself, or that work for it alone
sdk_steps    what it does on our main thread

What is not told apart counts as ours; stopwatch.py says what that is.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from tests.bench.stopwatch import (
    POOL,
    meter,
    meter_calling,
    meter_each,
    meter_loop,
    meter_plain,
    watch,
)

# Parts of the names of threads that SDKs make; the second one is synchronicity's.
SDK_THREADS = ("modal", "thread_inner", POOL)


def meter_modal() -> None:
    """All of its `.aio` calls cross into its own thread by one function, and bind their methods and
    translate their arguments and answers by three more.
    """
    from synchronicity.combined_types import MethodWithAio
    from synchronicity.synchronizer import Synchronizer

    meter(Synchronizer, "_run_function_async")
    meter_plain(Synchronizer, "_translate_in")
    meter_plain(Synchronizer, "_translate_out")
    meter_plain(MethodWithAio, "__get__")


def meter_daytona() -> None:
    """It works on our own event loop: its calls, and what they begin there."""
    from daytona import AsyncDaytona, AsyncSandbox
    from daytona._async.filesystem import AsyncFileSystem
    from daytona._async.process import AsyncProcess

    for owner, names in (
        (AsyncDaytona, ("create", "get", "_fetch_sandbox_page")),
        (AsyncSandbox, ("delete", "refresh_data", "wait_for_sandbox_start", "get_work_dir")),
        (AsyncProcess, ("exec", "create_session", "delete_session", "execute_session_command")),
        (AsyncProcess, ("get_session_command",)),
        (AsyncFileSystem, ("upload_files", "download_files", "delete_file")),
    ):
        for name in names:
            meter(owner, name)
    meter_calling(AsyncProcess, "get_session_command_logs_async")


def meter_kubernetes() -> None:
    """Its HTTP client is aiohttp; JSON, and TLS on asyncio's own loop, are counted with it."""
    from asyncio.sslproto import SSLProtocol

    from fleetctl.kubernetes.connection import ApiConnection

    meter(ApiConnection, "request")
    meter_each(ApiConnection, "watch")
    for name in ("buffer_updated", "_write_appdata"):
        meter_plain(SSLProtocol, name)


def meter_loops() -> None:
    meter_loop(asyncio.BaseEventLoop)
    try:
        import uvloop
    except ImportError:
        return
    meter_loop(uvloop.Loop)


METERS = (meter_modal, meter_daytona, meter_kubernetes, meter_loops)


def readings() -> dict[str, float]:
    threads_s = 0.0
    for thread in threading.enumerate():
        if thread.ident is not None and _is_of_an_sdk(thread):
            threads_s += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return {
        "process": time.process_time(),
        "sdk_threads": threads_s,
        "sdk_steps": watch.total_s,
    }


def _is_of_an_sdk(thread: threading.Thread) -> bool:
    return any(word in thread.name.lower() for word in SDK_THREADS)


def main(file: Path, words: list[str]) -> int:
    def write(*_: object) -> None:
        part = file.with_suffix(".part")
        part.write_text(json.dumps(readings()), encoding="utf-8")
        os.replace(part, file)

    signal.signal(signal.SIGUSR1, write)
    for begin in METERS:
        begin()
    from fleetctl.cli.main import main as fleetctl

    return fleetctl(words)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))

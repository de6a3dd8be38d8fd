"""The command line in a process that can tell how its CPU time divides: ours, and an SDK's.

`python -m tests.bench.meter FILE VERB ...` runs `fleetctl VERB ...`; at every SIGUSR1 it writes
FILE, a JSON object of seconds since the start:

process      all threads together
sdk_threads  threads that an SDK made for itself
sdk_steps    steps of an SDK's coroutines on our main thread, and its plain calls there
sdk_pool     what it does in threads of the event loop's pool

What is not told apart counts as ours.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

# Parts of the names of threads that SDKs make; the last one is synchronicity's.
SDK_THREADS = ("modal", "thread_inner")
spent_s = {"sdk_steps": 0.0, "sdk_pool": 0.0}
within = [False]  # whether the main thread is in an SDK
MAIN_THREAD = threading.main_thread().ident


def count_from() -> float:
    """Thread seconds from which on the main thread is in an SDK; negative when it was before, or
    when this is another thread: those are counted as a whole. A few of these are made for each
    call, and what they cost counts as ours: so there is no `with`.
    """
    if within[0] or threading.get_ident() != MAIN_THREAD:
        return -1.0
    within[0] = True
    return time.thread_time()


def count_to(begun_s: float) -> None:
    if begun_s >= 0:
        spent_s["sdk_steps"] += time.thread_time() - begun_s
        within[0] = False


class Metered:
    """Awaits something and adds the CPU time of its steps to the SDK's."""

    def __init__(self, work: Awaitable[Any]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        error: BaseException | None = None
        while True:
            begun_s = count_from()
            try:
                waits_for = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                count_to(begun_s)
            try:
                yield waits_for
                error = None
            except BaseException as thrown:  # it is the SDK's to judge
                error = thrown


def meter(owner: Any, name: str) -> None:
    """Count every call of an SDK's coroutine function, by replacing it where it is looked up."""
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def metered(*args: Any, **options: Any) -> Any:
        return await Metered(original(*args, **options))

    setattr(owner, name, metered)


def meter_plain(owner: Any, name: str) -> None:
    """The same for a function that is called on the way to a coroutine, and back."""
    original: Callable[..., Any] = getattr(owner, name)

    def metered(*args: Any, **options: Any) -> Any:
        begun_s = count_from()
        try:
            return original(*args, **options)
        finally:
            count_to(begun_s)

    setattr(owner, name, metered)


def meter_in_threads(owner: Any, name: str) -> None:
    """The same for a function that runs in threads of the event loop's pool, which we use, too."""
    original: Callable[..., Any] = getattr(owner, name)

    def metered(*args: Any, **options: Any) -> Any:
        begun_s = time.thread_time()
        try:
            return original(*args, **options)
        finally:
            spent_s["sdk_pool"] += time.thread_time() - begun_s

    setattr(owner, name, metered)


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
    """It works on our own event loop: its calls, its events, and the sockets that it reads from and
    writes to; nothing of ours has any that count.
    """
    from asyncio.selector_events import _SelectorSocketTransport

    import aiohttp.client
    from daytona import AsyncDaytona, AsyncSandbox
    from daytona._async.filesystem import AsyncFileSystem
    from daytona._async.process import AsyncProcess
    from engineio.async_client import AsyncClient
    from socketio import AsyncClient as AsyncSocket

    for owner, names in (
        (AsyncDaytona, ("create", "get", "_fetch_sandbox_page")),
        (AsyncSandbox, ("delete", "refresh_data", "wait_for_sandbox_start", "get_work_dir")),
        (AsyncProcess, ("exec", "create_session", "delete_session", "execute_session_command")),
        (AsyncProcess, ("get_session_command", "get_session_command_logs_async")),
        (AsyncFileSystem, ("upload_files", "download_files", "delete_file")),
        (AsyncClient, ("_read_loop_websocket", "_write_loop")),
        (AsyncSocket, ("_handle_eio_message",)),  # each event is read in a task of its own
    ):
        for name in names:
            meter(owner, name)
    for name in ("_read_ready", "write", "_write_ready"):
        meter_plain(_SelectorSocketTransport, name)
    # At each request it looks for proxies and passwords in files and in the environment.
    meter_in_threads(aiohttp.ClientSession, "_get_netrc_auth")
    meter_in_threads(aiohttp.client, "get_env_proxy_for_url")


METERS = (meter_modal, meter_daytona)


def readings() -> dict[str, float]:
    threads_s = 0.0
    for thread in threading.enumerate():
        if thread.ident is not None and _is_of_an_sdk(thread):
            threads_s += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return {"process": time.process_time(), "sdk_threads": threads_s, **spent_s}


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

"""Reads the files that manifests name in threads of their own, each with a bound on how long one
file may keep it: a network disk that does not answer blocks only the caller that named it.

Called by servers of many callers. A thread that hangs cannot be ended and is left behind; so it
must neither come from the shared thread pool nor be a thread that the process joins at exit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

from fleetctl.common.errors import Unavailable
from fleetctl.manifest.files.fence import LOOKING

T = TypeVar("T")

HANG_S = 60.0  # without progress to a new file; a million rows of one file take a part of this time
LOOK_S = 1.0
LEFT_BEHIND_MAX = 64  # threads that hang, before no more are begun
BRIEF_S = 0.5  # for a small file that the loop itself waits for

_left_behind: set[threading.Thread] = set()
_brief: dict[str, threading.Thread] = {}  # that hang, by the path that they read


async def call_in_file_thread(
    function: Callable[..., T],
    *given: Any,
    **named: Any,
) -> T:
    """Returns the result of the function. Raises Unavailable if a file does not answer, and the
    function's own errors.
    """
    _refuse_more()
    loop = asyncio.get_running_loop()
    looking = [""]
    context = copy_context()
    context.run(LOOKING.set, looking)
    done: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            result = context.run(function, *given, **named)
        except BaseException as error:  # noqa: BLE001 - carried over to whoever waits
            _settle_future(loop, done, error, None)
        else:
            _settle_future(loop, done, None, result)

    thread = threading.Thread(
        target=work,
        name="fleetctl-files",
        daemon=True,
    )
    thread.start()
    seen = ""
    since_s = loop.time()
    while not done.done():
        await asyncio.wait([done], timeout=LOOK_S)
        if looking[0] != seen:
            seen = looking[0]
            since_s = loop.time()
        if not done.done() and loop.time() - since_s > HANG_S:
            _left_behind.add(thread)
            raise Unavailable(
                f"`{seen}` was not read within {HANG_S:g} s" if seen else "files were not read",
                hint="make the disk of this file answer again, and try again",
            )
    return done.result()


def _refuse_more() -> None:
    _left_behind.difference_update([it for it in _left_behind if not it.is_alive()])
    if len(_left_behind) >= LEFT_BEHIND_MAX:
        raise Unavailable(
            f"{len(_left_behind)} files that manifests name do not answer, so no more are read",
            hint="make the disks of these files answer again, then run `fleetctl down` and `up`",
        )


def _settle_future(
    loop: asyncio.AbstractEventLoop,
    done: asyncio.Future[T],
    error: BaseException | None,
    result: T | None,
) -> None:
    def settle() -> None:
        if done.done():
            return  # no caller waits any more
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(settle)


def read_briefly(path: str, function: Callable[[], T]) -> T:
    """Returns the result of a function that reads one small file, for callers that cannot await it.
    Raises TimeoutError if the file does not answer at once, and the function's own errors.
    """
    hangs = _brief.get(path)
    if hangs is not None and hangs.is_alive():
        raise TimeoutError
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(context.run(function))
        except BaseException as error:  # noqa: BLE001 - carried over to whoever waits
            errors.append(error)

    context = copy_context()
    thread = threading.Thread(
        target=work,
        name="fleetctl-files",
        daemon=True,
    )
    _brief[path] = thread
    thread.start()
    thread.join(BRIEF_S)
    if thread.is_alive():
        raise TimeoutError
    del _brief[path]
    if errors:
        raise errors[0]
    return results[0]

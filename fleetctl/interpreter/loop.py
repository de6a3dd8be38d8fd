"""The one event loop that all interpreters of this process share, in a thread of its own.

Called by interpreter.py. Callers may be threads or coroutines of other loops, as many as they like;
all that touches a session happens here.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent import futures
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")

LOOK_UP_S = 1.0

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs work on the shared loop and waits here. When the wait is interrupted, the work is
    cancelled, and its end is waited for: it may have a sandbox to end first. A second interrupt
    leaves at once.
    """
    posted = _PostedWork(work)
    try:
        _wait_for(posted.over)
    except BaseException:
        if not posted.over.done():
            posted.give_up()
            _wait_for(posted.over)
        raise
    return posted.over.result()


def _wait_for(over: Future[Any]) -> None:
    """Waits for the end, looking up now and then: an interrupt that comes in the instant before a
    wait begins would else be seen when the wait ends, which may be never.
    """
    while not futures.wait([over], timeout=LOOK_UP_S).done:
        continue


def post_work(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Schedules work on the shared loop without waiting."""
    return _PostedWork(work).over


async def join_work(work: Coroutine[Any, Any, T]) -> T:
    """Runs work as `run` does, for a coroutine of another loop, which may be cancelled."""
    posted = _PostedWork(work)
    over = asyncio.wrap_future(posted.over)
    try:
        return await asyncio.shield(over)
    except asyncio.CancelledError:
        if not posted.over.done():
            posted.give_up()
            await asyncio.wait([over])
        raise


class _PostedWork(Generic[T]):
    """Work for the shared loop. over: its outcome, once it has really ended."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.over: Future[T] = Future()
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._loop = _get_loop()
        self._loop.call_soon_threadsafe(self._begin)

    def give_up(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._settle)

    def _cancel(self) -> None:
        assert self._task is not None, "calls of the loop keep their order"
        self._task.cancel()

    def _settle(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.over.cancel()
            self.over.set_running_or_notify_cancel()  # waiting callers are notified by this alone
        elif (error := task.exception()) is not None:
            self.over.set_exception(error)
        else:
            self.over.set_result(task.result())


async def call_in_thread(function: Callable[[], T]) -> T:
    """Calls a function that may block, with the context variables of the caller. The thread dies
    with the process: it may be a tool that hangs.
    """
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    done: asyncio.Future[T] = loop.create_future()

    def call() -> None:
        try:
            settle = _make_settler(done, context.run(function), None)
        except BaseException as error:  # noqa: BLE001 - carried over to the waiting caller
            settle = _make_settler(done, None, error)
        loop.call_soon_threadsafe(settle)

    threading.Thread(
        target=call,
        name="fleetctl-tool",
        daemon=True,
    ).start()
    return await done


def _make_settler(
    done: asyncio.Future[Any],
    value: object,
    error: BaseException | None,
) -> Callable[[], None]:
    def settle() -> None:
        if done.done():
            return  # no caller waits any more
        if error is None:
            done.set_result(value)
        elif isinstance(error, StopIteration):
            # a future cannot raise StopIteration
            done.set_exception(RuntimeError(f"StopIteration: {error}"))
        else:
            done.set_exception(error)

    return settle


def _get_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(
                target=_loop.run_forever,
                name="fleetctl-interpreters",
                daemon=True,
            ).start()
        return _loop


def _forget_loop() -> None:
    """Drops the loop in a fork, which does not have its thread."""
    global _loop, _lock
    _loop = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_loop)

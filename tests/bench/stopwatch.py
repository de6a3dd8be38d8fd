"""Tells apart whose work the main thread does, ours or an SDK's, by a watch that runs while it is
in an SDK. meter.py says where an SDK begins.

What an SDK begins, it does: the steps of tasks that it makes, what arrives on its connections, and
what it gives to the threads of the event loop's pool. What it calls of ours is ours again.

Counts as ours, as it cannot be told apart: what the event loop itself does for an SDK's sockets
(reading from them, writing to them later, TLS) and at the end of its work in threads, its timers,
and what this counting costs.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

MAIN_THREAD = threading.main_thread().ident
POOL = "sdk_pool"
# What an event loop calls of a connection.
EVENTS = (
    *("connection_made", "connection_lost", "pause_writing", "resume_writing"),
    *("data_received", "get_buffer", "buffer_updated", "eof_received"),
)


class Stopwatch:
    """total_s: of the main thread's CPU time, what it spent in SDKs."""

    __slots__ = ("_since_s", "clock", "runs", "total_s")

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self.clock = clock
        self.runs = False
        self.total_s = 0.0
        self._since_s = 0.0

    def turn(self, *, on: bool) -> bool:
        """Let it run from here on, or not; whether it did so before. Other threads change nothing:
        those of an SDK are counted as a whole. Made for each call, and what it costs is ours: so
        there is no `with`.
        """
        if threading.get_ident() != MAIN_THREAD:
            return on
        before = self.runs
        if before != on:
            now_s = self.clock()
            if before:
                self.total_s += now_s - self._since_s
            self._since_s, self.runs = now_s, on
        return before

    def runs_here(self) -> bool:
        return self.runs and threading.get_ident() == MAIN_THREAD


watch = Stopwatch()


class Steps:
    """Awaits something and lets the watch run, or not, in each of its steps."""

    def __init__(self, work: Awaitable[Any], *, on: bool) -> None:
        self._work, self._on = work, on

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        error: BaseException | None = None
        while True:
            before = watch.turn(on=self._on)
            try:
                waits_for = steps.send(None) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                watch.turn(on=before)
            try:
                yield waits_for
                error = None
            except BaseException as thrown:  # it is theirs to judge
                error = thrown


async def _whole(work: Awaitable[Any], *, on: bool) -> Any:
    return await Steps(work, on=on)


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let the watch run in a plain function of an SDK."""

    def timed(*args: Any, **options: Any) -> Any:
        before = watch.turn(on=True)
        try:
            return function(*args, **options)
        finally:
            watch.turn(on=before)

    return timed


def given(function: Callable[..., Any]) -> Callable[..., Any]:
    """Stop the watch in a function of ours, or a coroutine's, that an SDK calls."""

    def ours(*args: Any, **options: Any) -> Any:
        before = watch.turn(on=False)
        try:
            answer = function(*args, **options)
        finally:
            watch.turn(on=before)
        return _whole(answer, on=False) if asyncio.iscoroutine(answer) else answer

    return ours


def meter(owner: Any, name: str) -> None:
    """Count every call of an SDK's coroutine function, by replacing it where it is looked up."""
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def metered(*args: Any, **options: Any) -> Any:
        before = watch.turn(on=True)
        try:
            work = original(*args, **options)
        finally:
            watch.turn(on=before)
        return await Steps(work, on=True)

    setattr(owner, name, metered)


def meter_calling(owner: Any, name: str) -> None:
    """The same for one that is given functions of ours."""
    meter(owner, name)
    original: Callable[..., Awaitable[Any]] = getattr(owner, name)

    def called(*args: Any) -> Awaitable[Any]:
        return original(*(given(one) if callable(one) else one for one in args))

    setattr(owner, name, called)


def meter_each(owner: Any, name: str) -> None:
    """The same for a function whose answers come one after the other."""
    original: Callable[..., AsyncGenerator[Any, None]] = getattr(owner, name)

    async def metered(*args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        async with aclosing(original(*args, **options)) as answers:
            while True:
                try:
                    answer = await Steps(anext(answers), on=True)
                except StopAsyncIteration:
                    return
                yield answer

    setattr(owner, name, metered)


def meter_plain(owner: Any, name: str) -> None:
    """The same for a function that is called on the way to a coroutine, and back."""
    setattr(owner, name, counted(getattr(owner, name)))


def meter_loop(loop: type[asyncio.AbstractEventLoop]) -> None:
    """Count what SDKs begin on loops of this class: tasks, connections, and work in threads, which
    goes to a pool of its own, so that its threads can be counted as a whole.
    """
    pool = ThreadPoolExecutor(thread_name_prefix=POOL)
    create_task: Any = loop.create_task
    create_connection: Any = loop.create_connection
    run_in_executor: Any = loop.run_in_executor

    def task(self: Any, work: Any, **options: Any) -> Any:
        theirs = watch.runs_here()
        return create_task(self, _whole(work, on=True) if theirs else work, **options)

    async def connection(
        self: Any, make: Callable[[], Any], host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        if not _is_of_an_sdk(options.get("sock")):
            return await create_connection(self, make, host, port, **options)
        return await create_connection(self, lambda: _heard(make()), host, port, **options)

    def executed(self: Any, executor: Any, function: Any, *args: Any) -> Any:
        chosen = pool if executor is None and watch.runs_here() else executor
        return run_in_executor(self, chosen, function, *args)

    for name, hook in (
        ("create_task", task),
        ("create_connection", connection),
        ("run_in_executor", executed),
    ):
        setattr(loop, name, hook)


def _is_of_an_sdk(sock: socket.socket | None) -> bool:
    """The controller itself connects to nothing but supervisors, by Unix sockets."""
    return sock is None or sock.family != socket.AF_UNIX


def _heard(protocol: Any) -> Any:
    for name in EVENTS:
        if hasattr(protocol, name):
            setattr(protocol, name, counted(getattr(protocol, name)))
    return protocol

"""The relays of a provider, one a live run with endpoints: each carries the calls of its run
between the sandbox and the gateway until the run is over.

Each is an asyncio task. Its line may be lost at any moment: it is made again, and the sandbox
repeats the requests without a whole answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.common.event_loop import cancel_tasks
from fleetctl.providers.contract.base import EndpointAccess
from fleetctl.providers.remote import relay_call
from fleetctl.providers.remote.relay_call import (
    LINE_CHARACTERS_MAX,
    Outbox,
    RelayCancelled,
    RelayOver,
    RelayRequest,
    read_message,
)
from fleetctl.providers.remote.runs.follower import FollowPace, SandboxOver
from fleetctl.providers.remote.sandboxes.exec_channel import ExecChannel, LineSplitter

if TYPE_CHECKING:
    import aiohttp


log = logging.getLogger("fleetctl.providers")

AT_ONCE_MAX = 64  # the guest's own limit; our guest sends no more
UNKNOWN_S = 120.0  # for somebody to follow the run, who knows whether it lives
STEADY_S = 5.0  # a line that lasted this long is made again at once


class RelayLines(Protocol):
    async def line(self, handle: str, run: str) -> ExecChannel:
        """Join the relay of a sandbox for a run, by the guest's verb. Raises SandboxOver,
        Unavailable, Refused or OSError.
        """
        ...


class Relays:
    def __init__(
        self,
        lines: RelayLines,
        *,
        lives: Callable[[str], bool | None],
        pace: FollowPace,
    ) -> None:
        """lives: whether a run may live; None for a run without a follower."""
        self._lines = lines
        self._lives = lives
        self._pace = pace
        self._relays: dict[str, RunRelay] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None

    def hold(
        self,
        run: str,
        handle: str,
        access: EndpointAccess,
    ) -> None:
        """Carries the calls of a run until it is over. A second call switches to another
        gateway.
        """
        if run in self._relays:
            self._relays[run].access = access
            return
        self._relays[run] = RunRelay(
            run,
            access,
            open_line=partial(self._lines.line, handle, run),
            lives=partial(self._lives, run),
            client=self._client(),
            pace=self._pace,
        )
        self._begin(run)

    def end(self, run: str) -> None:
        """Notes that the run has ended or never began."""
        if run in self._relays:
            self._relays[run].end()

    def look(self, run: str) -> None:
        """Something about the run has changed."""
        if run in self._relays and self._lives(run) is False:
            self._relays[run].end()

    async def close(self) -> None:
        """Leave all runs to the next controller."""
        tasks = list(self._tasks.values())
        self._tasks = {}
        self._relays = {}
        await cancel_tasks(tasks)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _begin(self, run: str) -> None:
        if run in self._relays:
            task = self._tasks[run] = asyncio.ensure_future(self._relays[run].carry())
            task.add_done_callback(partial(self._settled, run))

    def _settled(self, run: str, done: asyncio.Task[None]) -> None:
        if self._tasks.get(run) is not done:
            return
        if done.cancelled() or done.exception() is None:
            del self._tasks[run], self._relays[run]
            return
        log.error("relaying failed", exc_info=done.exception(), extra={"run": run})
        asyncio.get_running_loop().call_later(self._pace.crash_s, self._begin, run)

    def _client(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,  # a proxy would be asked for our own loopback
            )
        return self._session


class _Dropped(Exception):
    """The line is of no use any more."""


class RunRelay:
    """access: how the gateway is asked for this run, now."""

    def __init__(
        self,
        run: str,
        access: EndpointAccess,
        *,
        open_line: Callable[[], Awaitable[ExecChannel]],
        lives: Callable[[], bool | None],
        client: aiohttp.ClientSession,
        pace: FollowPace,
    ) -> None:
        """lives: None while the answer is unknown."""
        self.run = run
        self.access = access
        self._open = open_line
        self._lives = lives
        self._client = client
        self._pace = pace
        self._over = asyncio.Event()
        self._asks: dict[str, asyncio.Task[None]] = {}
        self._unanswered: set[str] = set()
        self._cancelling: set[asyncio.Task[None]] = set()
        self._unknown_since_s: float | None = None

    def end(self) -> None:
        """Notes that the run has ended."""
        self._over.set()

    async def carry(self) -> None:
        """Carries calls until the run is over. Cancel it to leave the run to the next
        controller.
        """
        tries = 0
        try:
            while self._goes_on():
                tries = 0 if await self._one_line() else tries + 1
                if self._goes_on():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._over.wait(), self._delay_s(tries))
            for number in self._unanswered:
                self._cancel(number)
            await asyncio.gather(*self._cancelling)
        finally:
            await cancel_tasks(self._cancelling)

    def _goes_on(self) -> bool:
        if self._over.is_set():
            return False
        lives = self._lives()
        now_s = asyncio.get_running_loop().time()
        if lives is not None:
            self._unknown_since_s = None
            return lives
        if self._unknown_since_s is None:
            self._unknown_since_s = now_s
        return now_s - self._unknown_since_s < UNKNOWN_S

    def _delay_s(self, tries: int) -> float:
        return min(self._pace.retry_initial_s * 2.0 ** min(tries, 16), self._pace.retry_max_s)

    async def _one_line(self) -> bool:
        """Carries calls over one line until it is lost; returns whether it lasted."""
        loop = asyncio.get_running_loop()
        try:
            line = await self._open()
        except (SandboxOver, Refused, Unavailable, OSError, TimeoutError) as error:
            log.info("relay not joined", extra={"run": self.run, "error": type(error).__name__})
            return False
        outbox = Outbox()
        begun_s = loop.time()
        parts = [
            asyncio.ensure_future(outbox.send(line)),
            asyncio.ensure_future(self._receive(line, outbox)),
            asyncio.ensure_future(self._over.wait()),
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        except (_Dropped, Unavailable, OSError, TimeoutError) as error:
            log.info("relay dropped", extra={"run": self.run, "error": type(error).__name__})
        finally:
            await cancel_tasks([*parts, *self._asks.values()])
            self._asks.clear()
            with suppress(Refused, Unavailable, OSError, TimeoutError):
                await line.close()
        return loop.time() - begun_s >= STEADY_S

    async def _receive(self, line: ExecChannel, outbox: Outbox) -> None:
        """Takes in the sandbox's messages, until the line is at its end."""
        loop = asyncio.get_running_loop()
        splitter = LineSplitter()
        async with (
            aclosing(line.pieces()) as pieces,
            asyncio.timeout(self._pace.silence_s) as limit,
        ):
            async for piece in pieces:
                limit.reschedule(loop.time() + self._pace.silence_s)
                for text in splitter.take(piece):
                    self._take(text, outbox)
                if splitter.characters > LINE_CHARACTERS_MAX:
                    raise _Dropped

    def _take(self, text: str, outbox: Outbox) -> None:
        match read_message(text):
            case RelayOver():
                self._over.set()
            case RelayCancelled(number):
                self._forget(number, outbox)
            case RelayRequest() as request if request.number not in self._asks:
                if len(self._asks) >= AT_ONCE_MAX:
                    raise _Dropped
                self._unanswered.add(request.number)
                task = asyncio.ensure_future(self._answer(request, outbox))
                self._asks[request.number] = task
                task.add_done_callback(
                    lambda done: self._finish_request(request.number, done, outbox)
                )

    async def _answer(self, request: RelayRequest, outbox: Outbox) -> None:
        await relay_call.ask_gateway(self._client, lambda: self.access, request, outbox)
        self._unanswered.discard(request.number)

    def _finish_request(
        self,
        number: str,
        done: asyncio.Task[None],
        outbox: Outbox,
    ) -> None:
        if self._asks.get(number) is done:
            del self._asks[number]
        if not done.cancelled() and done.exception() is not None:
            log.error("asking failed", exc_info=done.exception(), extra={"run": self.run})
            outbox.break_off(number)

    def _forget(self, number: str, outbox: Outbox) -> None:
        """Cancels a request: its client left."""
        self._unanswered.discard(number)
        outbox.drop(number)
        task = self._asks.pop(number, None)
        if task is not None:
            task.cancel()
        self._cancel(number)

    def _cancel(self, number: str) -> None:
        task = asyncio.ensure_future(relay_call.cancel_request(self._client, self.access, number))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

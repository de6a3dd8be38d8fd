"""An endpoint as the controller sent it last, and the slots of its servers. An update keeps who
waits, what is in flight and what was found out.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.gateway.rules.limits import Limits, Minute, read_limits
from fleetctl.gateway.rules.queue import FairQueue
from fleetctl.gateway.rules.retry import Retry, read_retry
from fleetctl.gateway.rules.servers import Server, base_of, choose, read_server

SAMPLES_MAX = 512  # of waiting and answering times; enough for a p95
TIMEOUT_S = 60.0
LOOK_S = 0.25  # between two looks at servers that all rest
WAITING_LONG = 4  # requests behind a server that takes one at a time


@dataclass(frozen=True, slots=True)
class Grant:
    """tree: the run whose limits count. uid: of the object that pays."""

    run: str
    tree: str
    uid: str
    owner: str  # namespace/object: whose turn it is
    namespace: str
    endpoints: tuple[str, ...]


@dataclass(eq=False, slots=True)
class Waiter:
    owner: str
    run: str
    api: str  # of the servers that can answer it; "" any
    prefer: int | None
    since_s: float
    future: "asyncio.Future[Server | None]"  # None: nobody is there who could

    @property
    def line(self) -> str:
        return f"{self.api} {self.run}"


@dataclass(slots=True)
class Times:
    waiting_ms: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    answer_ms: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))


def told(row: Mapping[str, Any]) -> tuple[object, ...]:
    """What an update is needed for a change of."""
    return row["spec"], row.get("key") or "", row.get("keys") or {}


class Endpoint:
    """Whoever acquires a server releases it."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.name, self.namespace = str(row["name"]), str(row["namespace"])
        self.minute, self.times = Minute(), Times()
        self.waiting: FairQueue[Waiter] = FairQueue()
        self.most_waiting = 0  # since it was declared; what a server with one slot kept waiting
        self.running: Counter[str] = Counter()  # by run
        self.in_flight = 0  # of servers that are not declared any more, too
        self.servers: list[Server] = []
        self._alarm: asyncio.TimerHandle | None = None
        self.update(row)

    def update(self, row: Mapping[str, Any]) -> None:
        self.told = told(row)
        self.spec: Mapping[str, Any] = row["spec"]
        self.key = str(row.get("key") or "")
        self.limits: Limits = read_limits(self.spec)
        self.retry: Retry = read_retry(self.spec)
        self.timeout_s = float(self.spec.get("timeoutSeconds") or TIMEOUT_S)
        known = {it.url: it for it in self.servers}
        self.servers = [
            read_server(self.spec, it, known.get(base_of(it["url"])))
            for it in self.spec.get("servers") or ()
        ]
        keys = row.get("keys") or {}
        for server in self.servers:
            server.key = str(keys.get(server.url) or "")
        self.hand_out()

    def end(self) -> None:
        """It is declared no more: who waits for it waits for nothing."""
        self.servers = []
        self._refuse(lambda _: True)

    @property
    def concurrency(self) -> int:
        """Requests that it carries at once now."""
        carried, most = sum(it.pace.limit for it in self.servers), self.spec.get("concurrency")
        return min(most, carried) if isinstance(most, int) else carried

    def serves(self, api: str) -> bool:
        return any(not api or it.api == api for it in self.servers)

    async def acquire(self, grant: Grant, api: str, prefer: int | None) -> Server | None:
        """None: all its servers rested for as long as a request may take, or it is declared no
        more.
        """
        if not self.servers:
            return None
        future: asyncio.Future[Server | None] = asyncio.get_running_loop().create_future()
        waiter = Waiter(grant.owner, grant.run, api, prefer, time.monotonic(), future)
        self.waiting.add(grant.owner, waiter, waiter.line)
        self.hand_out()
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        try:
            return await future
        except asyncio.CancelledError:
            self.waiting.discard(grant.owner, waiter, waiter.line)
            server = None if future.cancelled() or not future.done() else future.result()
            if server is not None:
                self.release(grant.run, server)
            self.hand_out()  # who came after it stood behind it
            raise

    def release(self, run: str, server: Server) -> None:
        server.in_flight -= 1
        self.in_flight -= 1
        self.running[run] -= 1
        if not self.running[run]:
            del self.running[run]
        self.hand_out()

    def hand_out(self) -> None:
        if not self.waiting:
            return
        now_s = time.monotonic()
        while self.in_flight < self.concurrency:
            if choose(self.servers, now_s) is None:
                break
            waiter = self.waiting.take(lambda it: self._may(it, now_s))
            if waiter is None:
                break
            server = choose(self.servers, now_s, waiter.prefer, api=waiter.api)
            assert server is not None
            server.in_flight += 1
            self.in_flight += 1
            self.running[waiter.run] += 1
            waiter.future.set_result(server)
        if self.waiting and self._alarm is None and self._resting(now_s):
            self._alarm = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _may(self, waiter: Waiter, now_s: float) -> bool:
        most = self.limits.per_task_concurrency
        if waiter.future.done() or (most is not None and self.running[waiter.run] >= most):
            return False
        return not waiter.api or choose(self.servers, now_s, api=waiter.api) is not None

    def _resting(self, now_s: float) -> bool:
        """One that is asked again after its rest rests until it has answered."""
        return any(it.rest_s or it.resting_until_s > now_s for it in self.servers)

    def _look(self) -> None:
        """When one wakes it is asked; who waited for too long is told that none did."""
        self._alarm = None
        self.hand_out()
        late_s = time.monotonic() - self.timeout_s
        if all(it.rest_s for it in self.servers):
            self._refuse(lambda it: it.since_s <= late_s)

    def _refuse(self, late: Callable[[Waiter], bool]) -> None:
        for waiter in [it for it in self.waiting if late(it)]:
            self.waiting.discard(waiter.owner, waiter, waiter.line)
            if not waiter.future.done():
                waiter.future.set_result(None)

    def knows(self, model: str) -> bool:
        return model in (self.spec.get("models") or {})

    def served_name(self, model: str) -> str:
        """What the servers call a model that a task asks for."""
        return str((self.spec.get("models") or {}).get(model, model))

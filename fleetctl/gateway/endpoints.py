"""The endpoints and grants that the controller sent last, and the slots of their servers."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.gateway.rules.concurrency import Adaptive
from fleetctl.gateway.rules.limits import Limits, Minute, read_limits
from fleetctl.gateway.rules.queue import FairQueue
from fleetctl.gateway.rules.retry import Retry, read_retry
from fleetctl.gateway.rules.servers import Server, base_of, choose

SAMPLES_MAX = 512  # of waiting and answering times a row; enough for a p95


@dataclass(frozen=True, slots=True)
class Grant:
    run: str
    owner: str  # namespace/object: whose turn it is
    namespace: str
    endpoints: tuple[str, ...]
    usd_left: float | None


@dataclass(eq=False, slots=True)
class Waiter:
    run: str
    prefer: int | None
    future: "asyncio.Future[Server]"


@dataclass(slots=True)
class Times:
    waiting_ms: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    answer_ms: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))


class Endpoint:
    """Its servers' slots; whoever acquires one releases it."""

    def __init__(self, row: Mapping[str, Any], kept: Mapping[str, Server]) -> None:
        self.name, self.namespace = str(row["name"]), str(row["namespace"])
        self.spec: Mapping[str, Any] = row["spec"]
        self.key = str(row.get("key") or "")
        self.limits: Limits = read_limits(self.spec)
        self.retry: Retry = read_retry(self.spec)
        self.minute = Minute()
        self.servers = [
            _server(base_of(s["url"]), s.get("slots") or 1, kept)
            for s in self.spec.get("servers") or ()
        ]
        most = self.spec.get("concurrency") or sum(s.slots for s in self.servers)
        self.adaptive = Adaptive(most=most, limit=most)
        self.waiting: FairQueue[Waiter] = FairQueue()
        self.running: Counter[str] = Counter()

    async def acquire(self, grant: Grant, prefer: int | None) -> Server:
        waiter = Waiter(grant.run, prefer, asyncio.get_running_loop().create_future())
        self.waiting.add(grant.owner, waiter)
        self.hand_out()
        try:
            return await waiter.future
        except asyncio.CancelledError:
            self.waiting.discard(grant.owner, waiter)
            if waiter.future.done() and not waiter.future.cancelled():
                self.release(grant.run, waiter.future.result())
            raise

    def release(self, run: str, server: Server) -> None:
        server.in_flight -= 1
        self.running[run] -= 1
        if not self.running[run]:
            del self.running[run]
        self.hand_out()

    def hand_out(self) -> None:
        while sum(s.in_flight for s in self.servers) < self.adaptive.limit:
            now_s = time.monotonic()
            if choose(self.servers, now_s) is None:
                return
            waiter = self.waiting.take(self._may)
            if waiter is None:
                return
            server = choose(self.servers, now_s, waiter.prefer)
            assert server is not None
            server.in_flight += 1
            self.running[waiter.run] += 1
            waiter.future.set_result(server)

    def _may(self, waiter: Waiter) -> bool:
        most = self.limits.per_task_concurrency
        return not waiter.future.done() and (most is None or self.running[waiter.run] < most)

    def knows(self, model: str) -> bool:
        return model in (self.spec.get("models") or {})

    def served_name(self, model: str) -> str:
        """What the servers call a model that a task asks for."""
        return str((self.spec.get("models") or {}).get(model, model))


def _server(url: str, slots: int, kept: Mapping[str, Server]) -> Server:
    """The same object as before an update, so that what is in flight stays counted."""
    server = kept.get(url) or Server(url, slots)
    server.slots = slots
    return server

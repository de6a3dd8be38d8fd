"""What goes wrong on purpose: which call, with which status, before or after its effect, how often.

Consulted by calls.py for every RPC of both servers. Set by tests in-process or through /admin.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
from dataclasses import dataclass, field
from typing import Any

from grpclib import GRPCError, Status
from modal_proto import api_pb2

BEFORE, AFTER = "before", "after"
DISCONNECT = "DISCONNECT"
PAGE = "PAGE_"  # and an HTTP status


class Disconnected(Exception):
    """The connection is to be cut instead of an answer."""


class Paged(Exception):
    """A gateway answers in the service's place, with a page for people. Its word: the status."""


@dataclass(slots=True)
class Fault:
    """`rpc` is a name or a pattern. `status` is a gRPC status by name, DISCONNECT to cut the
    connection, PAGE_404 and the like for a gateway's page, or empty for a delay alone. AFTER means
    that the effect has happened and only the answer is lost. `skip` calls are let through first;
    then `count` are hit (None: all).
    """

    rpc: str
    status: str = ""
    when: str = BEFORE
    message: str = "injected"
    retry_after_s: float | None = None  # adds the RPCRetryPolicy that tells throttling from limits
    delay_s: float = 0.0
    count: int | None = 1
    skip: int = 0
    hits: int = 0

    def __post_init__(self) -> None:
        assert self.when in (BEFORE, AFTER), f"a fault is before or after, not `{self.when}`"
        known = self.status in ("", DISCONNECT) or self.status.startswith(PAGE)
        assert known or self.status in Status.__members__, self.status

    def takes(self, rpc: str) -> bool:
        """Returns whether this call is hit; counts."""
        if not fnmatch.fnmatchcase(rpc, self.rpc) or self.count == 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.count is not None:
            self.count -= 1
        self.hits += 1
        return True

    async def strike(self, go_on: asyncio.Event) -> None:
        """Hangs for its delay, or until `go_on` is set."""
        if self.delay_s:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(go_on.wait(), self.delay_s)
        if self.status == DISCONNECT:
            raise Disconnected
        if self.status.startswith(PAGE):
            raise Paged(self.status.removeprefix(PAGE))
        if self.status:
            details = None
            if self.retry_after_s is not None:
                details = [api_pb2.RPCRetryPolicy(retry_after_secs=self.retry_after_s)]
            raise GRPCError(Status[self.status], self.message, details)


@dataclass(slots=True)
class Faults:
    """The set ones in order; the first that takes a call has it."""

    planned: list[Fault] = field(default_factory=list)
    latency_s: float = 0.0  # added to every call
    latency_of_s: dict[str, float] = field(default_factory=dict)  # by RPC, instead of the general
    _go_on: asyncio.Event = field(default_factory=asyncio.Event)  # replaced at each release

    def add(self, rpc: str, status: str = "", **options: Any) -> Fault:
        fault = Fault(rpc, status, **options)
        self.planned.append(fault)
        return fault

    async def strike(self, fault: Fault) -> None:
        await fault.strike(self._go_on)

    def release(self) -> None:
        """The calls that hang now go on."""
        self._go_on.set()
        self._go_on = asyncio.Event()

    def clear(self) -> None:
        self.planned.clear()
        self.latency_s = 0.0
        self.latency_of_s.clear()

    def find(self, rpc: str) -> Fault | None:
        return next((fault for fault in self.planned if fault.takes(rpc)), None)

    def latency(self, rpc: str) -> float:
        return self.latency_of_s.get(rpc, self.latency_s)

"""How a test makes the service misbehave: which operation, how often, before or after the effect.

Consulted by server.py for every request. Set in-process, or through admin.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
from dataclasses import asdict, dataclass, field, fields
from typing import Any

BEFORE, AFTER = "before", "after"
FOREVER = 10**9
PAGE = "<html><head><title>{status}</title></head><body><h1>Bad gateway</h1></body></html>"


@dataclass(slots=True)
class Fault:
    """operation: a name or a shell glob, see server.py. when: AFTER means that the effect has
    happened and only the answer is spoiled. What then happens, in this order: wait `delay_s` (a
    hang ends earlier by `release`); cut the connection if `drop`; answer with `status`, `headers`
    and `body` if there is a status; else go on. `skip` requests are let through first, then
    `count` are hit.
    """

    operation: str = "*"
    when: str = BEFORE
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None  # a text is sent as an HTML page; anything else as JSON
    page: bool = False  # a gateway's page for people in the service's place
    delay_s: float = 0.0
    drop: bool = False
    skip: int = 0
    count: int = FOREVER
    met: int = 0  # requests that it has hit

    def __post_init__(self) -> None:
        if self.when not in (BEFORE, AFTER):
            raise ValueError(f"a fault is before or after, not `{self.when}`")
        if self.page:
            self.status = self.status or 502
            self.body = PAGE.format(status=self.status)

    def takes(self, operation: str, when: str) -> bool:
        """Returns whether this request is hit; counts."""
        if when != self.when or not fnmatch.fnmatchcase(operation, self.operation):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.met >= self.count:
            return False
        self.met += 1
        return True


class Faults:
    """The ones in force, in order; the first that takes a request has it."""

    def __init__(self) -> None:
        self.planned: list[Fault] = []
        self._go_on = asyncio.Event()  # replaced at each release

    def add(self, operation: str, **wanted: Any) -> Fault:
        unknown = set(wanted) - ({one.name for one in fields(Fault)} - {"met"})
        if unknown:
            raise ValueError(f"a fault has no `{sorted(unknown)[0]}`")
        fault = Fault(operation, **wanted)
        self.planned.append(fault)
        return fault

    def clear(self) -> None:
        """Those that hang go on."""
        self.planned.clear()
        self.release()

    def find(self, operation: str, when: str) -> Fault | None:
        return next((one for one in self.planned if one.takes(operation, when)), None)

    async def wait(self, fault: Fault) -> None:
        if fault.delay_s > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._go_on.wait(), fault.delay_s)

    def release(self) -> None:
        """The requests that hang now go on."""
        self._go_on.set()
        self._go_on = asyncio.Event()

    def described(self) -> list[dict[str, Any]]:
        return [asdict(one) for one in self.planned]

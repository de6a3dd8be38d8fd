"""How a test makes the emulator misbehave: faults of requests, and fates of sandboxes.

A fault is for requests: which ones, how many of them, and what goes wrong before or after the
effect. A fate is for a state: what becomes of a sandbox that passes through it.
"""

from __future__ import annotations

import fnmatch
import itertools
from dataclasses import asdict, dataclass, field, fields
from typing import Any

FOREVER = 10**9


@dataclass(slots=True)
class Fault:
    """Patterns are shell globs; `path` is matched with the prefix `/api` or `/toolbox`.

    `when` is `before` the effect or `after` it. What then happens, in this order: wait `delay_s`;
    end the connection if `drop` (`reset`: without a goodbye); answer with `status`, `headers` and
    `body` if there is a status; else go on as if nothing was. `during` is for streams: after
    `delay_s` the connection ends, whatever the route is doing.
    """

    method: str = "*"
    path: str = "*"
    operation: str = "*"
    when: str = "before"
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None  # a string is sent as it is, as HTML; anything else as JSON
    delay_s: float = 0.0
    drop: bool = False
    reset: bool = False
    skip: int = 0  # requests that match and are let through first
    count: int = FOREVER
    id: int = 0
    met: int = 0  # requests that it has hit

    def matches(self, method: str, path: str, operation: str) -> bool:
        return (
            fnmatch.fnmatchcase(method, self.method)
            and fnmatch.fnmatchcase(path, self.path)
            and fnmatch.fnmatchcase(operation, self.operation)
        )


@dataclass(slots=True)
class Fate:
    """What happens to a sandbox in the state `during`, once that state's time is over.

    `outcome` is `error` or `build_failed`, with a reason, or `stuck`: the state never ends, and the
    sandbox stays in the midst of a change.
    """

    name: str = "*"  # a glob over the sandbox's name
    during: str = "starting"
    outcome: str = "error"
    reason: str | None = "emulated failure"
    recoverable: bool = False
    skip: int = 0
    count: int = FOREVER
    id: int = 0
    met: int = 0


class Faults:
    """The faults and fates in force. The first that matches and is not used up applies."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self.faults: list[Fault] = []
        self.fates: list[Fate] = []

    def add(self, **wanted: Any) -> int:
        return self._keep(self.faults, Fault(**known(Fault, wanted)))

    def add_fate(self, **wanted: Any) -> int:
        return self._keep(self.fates, Fate(**known(Fate, wanted)))

    def remove(self, fault_id: int | None = None) -> None:
        """One fault or fate, or all."""
        self.faults[:] = [one for one in self.faults if fault_id not in (None, one.id)]
        self.fates[:] = [one for one in self.fates if fault_id not in (None, one.id)]

    def of(self, method: str, path: str, operation: str, when: str) -> Fault | None:
        for fault in self.faults:
            if fault.when == when and fault.matches(method, path, operation) and take(fault):
                return fault
        return None

    def fate(self, name: str, state: str) -> Fate | None:
        for fate in self.fates:
            if fate.during == state and fnmatch.fnmatchcase(name, fate.name) and take(fate):
                return fate
        return None

    def described(self) -> list[dict[str, Any]]:
        return [asdict(one) for one in self.faults] + [asdict(one) for one in self.fates]

    def _keep(self, kept: list[Any], one: Fault | Fate) -> int:
        one.id = next(self._ids)
        kept.append(one)
        return one.id


def take(one: Fault | Fate) -> bool:
    """Returns whether it still has something to do; counts this time if so."""
    if one.skip > 0:
        one.skip -= 1
        return False
    if one.met >= one.count:
        return False
    one.met += 1
    return True


def known(kind: type[Fault] | type[Fate], wanted: dict[str, Any]) -> dict[str, Any]:
    names = {one.name for one in fields(kind)} - {"id", "met"}
    unknown = set(wanted) - names
    if unknown:
        raise ValueError(f"`{kind.__name__}` has no `{sorted(unknown)[0]}`")
    return wanted

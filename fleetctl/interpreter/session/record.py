"""The record of an interpreter's sandbox: durable before it is made, closed when it has ended.

Used by runtime.py. Where the records cannot be written, an interpreter goes on: its sandboxes carry
their parents as tags, and end by their own lifetime.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from fleetctl.common.errors import FleetctlError, StoreError
from fleetctl.common.home import home
from fleetctl.interpreter import loop
from fleetctl.interpreter.options import Options
from fleetctl.stores.interpreters import REFUSED, STOPPED, InterpreterRun, InterpreterRuns

log = logging.getLogger(__name__)
_swept: set[str] = set()  # homes in which this process has looked for what others left


class Asking(Protocol):
    """The queries of one interpreter; see asking/recursion.py."""

    @property
    def depth(self) -> int: ...
    def usage_here(self) -> list[dict[str, Any]]: ...


class Record:
    """Of the sandboxes that one interpreter has in turn. asking: None without a language model.
    parent: the name of the sandbox whose code asked for this interpreter, "" for a program's own.
    """

    def __init__(
        self, options: Options, asking: Asking | None, parent: Callable[[], str] = lambda: ""
    ) -> None:
        self._provider, self._native = options.provider, _native(options.native)
        self._asking = asking
        self._parent = parent
        self._before: Sequence[Mapping[str, Any]] = ()
        self.name = ""  # of the sandbox that there is, or is being made

    @property
    def parent(self) -> str:
        return self._parent()

    def begin(self, name: str) -> None:
        """Before the provider is called."""
        depth = self._asking.depth if self._asking is not None else 0
        self._before = self._used()
        self.name = name
        run = InterpreterRun(name, self.parent, depth, self._provider, self._native)
        self._write(lambda runs: runs.begin(run))
        if str(home()) not in _swept:
            _swept.add(str(home()))
            loop.post(_sweep())

    def started(self) -> None:
        self._write(lambda runs: runs.started(self.name))

    def failed(self, error: BaseException) -> None:
        """The provider made no sandbox, or has ended it."""
        self._end(REFUSED, type(error).__name__)

    def ended(self) -> None:
        self._end(STOPPED, "")

    def _end(self, state: str, reason: str) -> None:
        name, self.name = self.name, ""
        if name:
            usage = _since(self._before, self._used())
            self._write(lambda runs: runs.ended(name, state, reason, usage))

    def _used(self) -> list[dict[str, Any]]:
        return [] if self._asking is None else self._asking.usage_here()

    def _write(self, act: Callable[[InterpreterRuns], None]) -> None:
        try:
            act(InterpreterRuns(home()))
        except StoreError as error:
            log.warning("sandbox of an interpreter not recorded", extra={"error": str(error)})


async def _sweep() -> None:
    """End what killed programs left; never in the way of this one."""
    from fleetctl.wiring import interpreters

    with suppress(FleetctlError):
        InterpreterRuns(home()).forget_old()
        for run in await interpreters.sweep(home()):
            log.info("sandbox of a killed program ended", extra={"sandbox": run.name})


def _native(native: Mapping[str, object]) -> dict[str, str]:
    """What its provider must know to find a sandbox by its name; see EndSession."""
    app = getattr(native.get("app"), "name", None) or native.get("app_name")
    return {"app_name": app} if isinstance(app, str) else {}


def _since(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    known = {row["depth"]: row for row in before}
    rows = []
    for row in after:
        old = known.get(row["depth"], {})
        new = {name: value - old.get(name, 0) for name, value in row.items() if name != "depth"}
        if any(new.values()):
            rows.append({"depth": row["depth"], **new})
    return rows

"""The record of an interpreter's sandbox: durable before it is made, closed when it has ended.

Used by runtime.py. Where the records cannot be written, an interpreter goes on: its sandboxes carry
their parents as tags, and end by their own lifetime.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from fleetctl.common.errors import FleetctlError, Refused, StoreError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.interpreter import loop
from fleetctl.interpreter.options import InterpreterOptions
from fleetctl.stores.interpreters import REFUSED, STOPPED, InterpreterRun, InterpreterRuns

log = logging.getLogger(__name__)
_swept: set[str] = set()  # homes in which this process has looked for what others left


class RecursionQueries(Protocol):
    """The queries of an interpreter; see asking/recursion.py."""

    @property
    def depth(self) -> int: ...
    def usage_here(self) -> list[dict[str, Any]]: ...


class InterpreterRecord:
    """The record of the sandboxes that one interpreter has in turn. asking: None without a language
    model. parent: the name of the sandbox whose code requested this interpreter, "" for a program's
    own.
    """

    def __init__(
        self,
        options: InterpreterOptions,
        asking: RecursionQueries | None,
        parent: Callable[[], str] = lambda: "",
    ) -> None:
        self._provider, self._native = options.provider, _native_names(options.native)
        self._asking = asking
        self._parent = parent
        self._before: Sequence[Mapping[str, Any]] = ()
        self.name = ""  # of the sandbox that there is, or is being made

    @property
    def parent(self) -> str:
        return self._parent()

    def begin(self, name: str) -> None:
        """Records the sandbox before the provider is called."""
        depth = self._asking.depth if self._asking is not None else 0
        self._before = self._used()
        self.name = name
        run = InterpreterRun(
            name,
            self.parent,
            depth,
            self._provider,
            self._native,
        )
        self._write(lambda runs: runs.begin(run))
        if str(find_state_dir()) not in _swept:
            _swept.add(str(find_state_dir()))
            loop.post_work(_sweep_orphans())

    def started(self) -> None:
        self._write(lambda runs: runs.started(self.name))

    def failed(self, error: BaseException) -> None:
        """Records a failed creation. Refused: there is no sandbox. After any other error there may
        be one, whose record stays open for the sweep, which looks for it by its name once this
        program has ended.
        """
        if isinstance(error, Refused):
            self._end(REFUSED, type(error).__name__)
        else:
            self.name = ""

    def ended(self) -> None:
        self._end(STOPPED, "")

    def _end(self, state: str, reason: str) -> None:
        name, self.name = self.name, ""
        if name:
            usage = _subtract_usage(self._before, self._used())
            self._write(lambda runs: runs.ended(name, state, reason, usage))

    def _used(self) -> list[dict[str, Any]]:
        if self._asking is None:
            return []
        return self._asking.usage_here()

    def _write(self, act: Callable[[InterpreterRuns], None]) -> None:
        try:
            act(InterpreterRuns(find_state_dir()))
        except StoreError as error:
            log.warning("sandbox of an interpreter not recorded", extra={"error": str(error)})


async def _sweep_orphans() -> None:
    """Ends the sandboxes of killed programs; an error does not affect this one."""
    from fleetctl.wiring import interpreters

    with suppress(FleetctlError):
        InterpreterRuns(find_state_dir()).forget_old()
        for run in await interpreters.sweep_interpreters(find_state_dir()):
            log.info("sandbox of a killed program ended", extra={"sandbox": run.name})


def _native_names(native: Mapping[str, object]) -> dict[str, str]:
    """Returns the fields by which its provider finds a sandbox by its name; see EndSession."""
    app = getattr(native.get("app"), "name", None) or native.get("app_name")
    if isinstance(app, str):
        return {"app_name": app}
    return {}


def _subtract_usage(
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

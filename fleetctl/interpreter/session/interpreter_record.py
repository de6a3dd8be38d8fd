"""Records an interpreter's sandbox before the provider makes it and again when it has ended, and
ends those that no shutdown has ended: dropped ones, and all at exit.

Where the records cannot be written, an interpreter goes on: its sandboxes carry their parents as
tags, and their own lifetime ends them. The sandboxes of a killed process are on record, for
wiring/interpreters.py to end; below that are the provider's own safeguards.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol

from fleetctl.common.errors import FleetctlError, Refused, StoreError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.interpreter import loop
from fleetctl.interpreter.options import InterpreterOptions
from fleetctl.stores.interpreters import REFUSED, STOPPED, InterpreterRun, InterpreterRuns

log = logging.getLogger(__name__)
_swept: set[str] = set()  # state directories in which this process has ended orphans


class RecursionQueries(Protocol):
    """The model queries of an interpreter, as far as its record needs them. asking/recursion.py
    implements them. depth: levels of sub-queries below the program, from 0.
    """

    @property
    def depth(self) -> int: ...

    def usage_here(self) -> list[dict[str, Any]]:
        """Returns the counts of all queries in this sandbox, one mapping for each depth."""
        ...


class InterpreterRecord:
    """The record of the sandboxes that an interpreter has one after another.

    asking: None without a language model. parent: returns the name of the sandbox whose code
    requested this interpreter, or "" for an interpreter of the user's program.
    """

    def __init__(
        self,
        options: InterpreterOptions,
        asking: RecursionQueries | None,
        parent: Callable[[], str] = lambda: "",
    ) -> None:
        self._provider, self._native = options.provider, _select_native_names(options.native)
        self._asking = asking
        self._parent = parent
        self._usage_before: Sequence[Mapping[str, Any]] = ()
        self.name = ""  # of the sandbox that exists or is being made

    @property
    def parent(self) -> str:
        return self._parent()

    def begin(self, name: str) -> None:
        """Records that a sandbox is about to be requested. name: its name at the provider."""
        depth = self._asking.depth if self._asking is not None else 0
        self._usage_before = self._read_usage()
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
        """Records that the provider has made the sandbox."""
        self._write(lambda runs: runs.started(self.name))

    def failed(self, error: BaseException) -> None:
        """Records a failed creation. After Refused there is no sandbox, and its record is closed.
        After any other error there may be a sandbox: its record stays open, and the sweep looks for
        the sandbox by its name once this program has ended.
        """
        if isinstance(error, Refused):
            self._end(REFUSED, type(error).__name__)
        else:
            self.name = ""

    def ended(self) -> None:
        """Records that the sandbox is confirmed to have ended."""
        self._end(STOPPED, "")

    def _end(self, state: str, reason: str) -> None:
        name, self.name = self.name, ""
        if name:
            usage = _subtract_usage(self._usage_before, self._read_usage())
            self._write(lambda runs: runs.ended(name, state, reason, usage))

    def _read_usage(self) -> list[dict[str, Any]]:
        if self._asking is None:
            return []
        return self._asking.usage_here()

    def _write(self, act: Callable[[InterpreterRuns], None]) -> None:
        try:
            act(InterpreterRuns(find_state_dir()))
        except StoreError as error:
            log.warning("sandbox of an interpreter not recorded", extra={"error": str(error)})


async def _sweep_orphans() -> None:
    """Ends the sandboxes of killed programs. Errors are ignored: the next program tries again."""
    from fleetctl.wiring import interpreters

    with suppress(FleetctlError):
        InterpreterRuns(find_state_dir()).forget_old()
        for run in await interpreters.sweep_interpreters(find_state_dir()):
            log.info("sandbox of a killed program ended", extra={"sandbox": run.name})


def _select_native_names(native: Mapping[str, object]) -> dict[str, str]:
    """Returns those fields of the sandbox's native options that its provider needs, beside its
    name, to find it again; see EndSession.
    """
    app = getattr(native.get("app"), "name", None) or native.get("app_name")
    if isinstance(app, str):
        return {"app_name": app}
    return {}


def _subtract_usage(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Returns by how much the counts of each depth have risen; depths without a rise are left
    out.
    """
    earlier = {row["depth"]: row for row in before}
    rises = []
    for row in after:
        depth = row["depth"]
        old = earlier.get(depth, {})
        counts = {name: value - old.get(name, 0) for name, value in row.items() if name != "depth"}
        if any(counts.values()):
            rises.append({"depth": depth, **counts})
    return rises


class SandboxHolder(Protocol):
    """An owner of a sandbox; see runtime.py."""

    @property
    def holds(self) -> bool: ...
    async def shutdown(self, *, at_once: bool = False) -> None: ...
    def leave_to_parent(self) -> object: ...


_alive: weakref.WeakSet[SandboxHolder] = weakref.WeakSet()
_ending: set[Future[None]] = set()
_lock = threading.Lock()
_left_to_parent: list[object] = []  # kept, so that no destructor ends what is in use


def remember_runtime(runtime: SandboxHolder) -> None:
    with _lock:
        _alive.add(runtime)


def abandon_runtime(runtime: SandboxHolder) -> None:
    """Its interpreter was dropped. Called by the garbage collector, so it must not wait."""
    if runtime.holds:
        ending = loop.post_work(runtime.shutdown(at_once=True))
        _ending.add(ending)
        ending.add_done_callback(_ending.discard)


def be_first() -> None:
    """Registers our exit hook again whenever an SDK was imported: hooks of an exit run in reverse
    order, and after its own an SDK cannot end a sandbox.
    """
    atexit.unregister(_end_all)
    atexit.register(_end_all)


def _end_all() -> None:
    with _lock:
        runtimes = [runtime for runtime in _alive if runtime.holds]
    for ending in [*_ending, *(loop.post_work(one.shutdown(at_once=True)) for one in runtimes)]:
        try:
            ending.result()
        except FleetctlError as error:
            log.warning("sandbox not ended at exit", extra={"error": str(error)})


def _forget_in_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _ending.clear()
    for runtime in list(_alive):
        _left_to_parent.append(runtime.leave_to_parent())


os.register_at_fork(after_in_child=_forget_in_fork)

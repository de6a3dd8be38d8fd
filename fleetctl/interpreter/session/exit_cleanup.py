"""Ends the sandboxes of interpreters without a shutdown: dropped ones, and all at exit.

Used by interpreter.py and runtime.py. The sandboxes of a killed process are on record
(interpreter_record.py), for wiring/interpreters.py to end; below that are the provider's own
safeguards."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from concurrent.futures import Future
from typing import Protocol

from fleetctl.common.errors import FleetctlError
from fleetctl.interpreter import loop

log = logging.getLogger(__name__)


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

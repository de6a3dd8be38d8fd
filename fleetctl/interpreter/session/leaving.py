"""Ends the sandboxes of interpreters that nobody shut down: dropped ones, and all at exit.

Used by interpreter.py and runtime.py. What a killed process leaves is on record (record.py), for
wiring/interpreters.py to end; below that are the provider's own safeguards.
"""

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


class Runtime(Protocol):
    """What may hold a sandbox; see runtime.py."""

    @property
    def holds(self) -> bool: ...
    async def shutdown(self, *, at_once: bool = False) -> None: ...
    def leave_to_parent(self) -> object: ...


_alive: weakref.WeakSet[Runtime] = weakref.WeakSet()
_ending: set[Future[None]] = set()
_lock = threading.Lock()
_left_to_parent: list[object] = []  # kept, so that no destructor ends what is in use


def remember(runtime: Runtime) -> None:
    with _lock:
        _alive.add(runtime)


def abandon(runtime: Runtime) -> None:
    """Its interpreter was dropped. Called by the garbage collector, so it must not wait."""
    if runtime.holds:
        ending = loop.post(runtime.shutdown(at_once=True))
        _ending.add(ending)
        ending.add_done_callback(_ending.discard)


def be_first() -> None:
    """Called whenever an SDK was imported: hooks of an exit run in reverse order, and after its own
    an SDK can end nothing.
    """
    atexit.unregister(_end_all)
    atexit.register(_end_all)


def _end_all() -> None:
    with _lock:
        runtimes = [runtime for runtime in _alive if runtime.holds]
    for ending in [*_ending, *(loop.post(one.shutdown(at_once=True)) for one in runtimes)]:
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

"""What all controllers of the cluster stand on: a queue of keys, and a writer of events."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from tests.emulators.kubernetes.api.writes.writing import Writer
from tests.emulators.kubernetes.schema.names import suffix
from tests.emulators.kubernetes.store.errors import ApiError
from tests.emulators.kubernetes.store.times import now_text

K = TypeVar("K", bound=Hashable)
Object = dict[str, Any]
BATCH = 50  # keys between two looks at what else the loop has to do


class Queue(Generic[K]):
    """Calls `reconcile` for keys soon after they are added, one after the other, each once."""

    def __init__(self, reconcile: Callable[[K], None]) -> None:
        self._reconcile = reconcile
        self._keys: dict[K, None] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._scheduled = False
        self._paused = False

    def add(self, key: K) -> None:
        self._keys[key] = None
        if not self._scheduled and not self._paused:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._drain)

    def add_after(self, key: K, seconds: float) -> None:
        """The earliest time that is asked for counts."""
        loop = asyncio.get_running_loop()
        held = self._timers.get(key)
        if held is not None and held.when() <= loop.time() + seconds and not held.cancelled():
            return
        if held is not None:
            held.cancel()
        self._timers[key] = loop.call_later(max(seconds, 0.0), self._due, key)

    def pause(self, paused: bool) -> None:
        """As if the controller were not running; keys wait."""
        self._paused = paused
        if not paused and self._keys and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _drain(self) -> None:
        self._scheduled = False
        if self._paused:
            return
        for key in list(self._keys)[:BATCH]:
            del self._keys[key]
            try:
                self._reconcile(key)
            except ApiError:
                # Another write came first, or the object is gone: look again.
                self.add_after(key, 0.05)
            except Exception:
                traceback.print_exc(file=sys.stderr)
        if self._keys and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._drain)


class Recorder:
    """Writes Events, and counts those that repeat."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._events = writer.resources.get("", "events")
        self._known: dict[tuple[str, str, str], tuple[str, str]] = {}

    def tell(
        self,
        about: Object,
        reason: str,
        message: str,
        *,
        source: str,
        warning: bool = False,
        host: str = "",
    ) -> None:
        """about: the object. Nothing happens when its namespace is going away."""
        metadata = about["metadata"]
        namespace = metadata.get("namespace") or "default"
        key = metadata["uid"], reason, message
        known = self._known.get(key)
        if known is not None and self._writer.change(self._events, *known, _again):
            return
        reference = {
            "kind": about["kind"],
            "apiVersion": about["apiVersion"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        }
        if "namespace" in metadata:
            reference["namespace"] = namespace
        name = f"{metadata['name']}.{time.time_ns():x}{suffix(2)}"
        now = now_text()
        event = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": reference,
            "reason": reason,
            "message": message,
            "source": {"component": source, **({"host": host} if host else {})},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": "Warning" if warning else "Normal",
            "eventTime": None,
            "reportingComponent": source,
            "reportingInstance": host,
        }
        try:
            self._writer.create(self._events, event)
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            return
        self._known[key] = namespace, name


def _again(event: Object) -> None:
    event["count"] = event.get("count", 1) + 1
    event["lastTimestamp"] = now_text()


def owned_by(owner: Object) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(stored: Object) -> Object | None:
    for one in stored["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            found: Object = one
            return found
    return None

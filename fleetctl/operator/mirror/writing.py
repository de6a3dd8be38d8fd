"""The writes to an API server, each the least that says it: a finalizer on and off, a status, an
Event. Called by mirror.py; how often they are worth it is decided in statuses.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from fleetctl.common.errors import FleetctlError
from fleetctl.common.text import timestamp
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import MERGE_PATCH, Connection, Object
from fleetctl.operator.mirror.entries import Entry
from fleetctl.operator.mirror.statuses import due_at_s, news, patch_of, status_for, written
from fleetctl.operator.mirror.wanted import FINALIZER
from fleetctl.specs.kinds.registry import API_VERSION
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.views.objects import View

log = logging.getLogger("fleetctl.operator")

MESSAGE_CHARS_MAX = 1000  # an Event's, as Kubernetes limits it to 1,024 bytes


class Writer:
    def __init__(self, connection: Connection, *, now_s: Callable[[], float]) -> None:
        self._connection, self._now_s = connection, now_s

    async def hold(self, entry: Entry, found: Object) -> Object:
        """The object with our finalizer. Raises ApiError where it changed meanwhile."""
        names = [*(found["metadata"].get("finalizers") or ()), FINALIZER]
        return await self._finalizers(entry, found, names)

    async def release(self, entry: Entry, found: Object) -> None:
        names = [it for it in found["metadata"].get("finalizers") or () if it != FINALIZER]
        try:
            await self._finalizers(entry, found, names)
        except ApiError as error:
            if not error.not_found:
                raise

    async def _finalizers(self, entry: Entry, found: Object, names: Sequence[str]) -> Object:
        metadata = {
            "finalizers": list(names),
            # A list is replaced whole: what somebody else put there meanwhile must not be lost.
            "resourceVersion": found["metadata"]["resourceVersion"],
        }
        try:
            return await self._connection.request(
                "PATCH", entry.path, body={"metadata": metadata}, content_type=MERGE_PATCH
            )
        except ApiError as error:
            if error.conflict:
                # The cache lags; the next look begins with what the server has.
                entry.fresh = await self._connection.request("GET", entry.path)
            raise

    async def tell(self, entry: Entry, found: Object, seen: View | None) -> float | None:
        """Write the status where it differs and that is due; when to look again, None = never."""
        now_s, before = self._now_s(), found.get("status") or {}
        generation = int(found["metadata"].get("generation") or 0)
        after = status_for(entry.kind, seen, before, generation, entry.refusal, now_s)
        patch = patch_of(before, after)
        if not patch:
            entry.since_s = None
            return None
        entry.since_s = now_s if entry.since_s is None else entry.since_s
        due_s = due_at_s(before, after, entry.writes, entry.since_s)
        if now_s < due_s:
            return due_s
        body = {"metadata": {"uid": found["metadata"]["uid"]}, "status": patch}
        entry.fresh = await self._connection.request(
            "PATCH", f"{entry.path}/status", body=body, content_type=MERGE_PATCH
        )
        entry.writes, entry.since_s = written(before, after, entry.writes, now_s), None
        for sort, reason, message in news(before, after):
            await self._event(entry, found, sort, reason, message)
        return None

    async def _event(
        self, entry: Entry, found: Object, sort: str, reason: str, message: str
    ) -> None:
        """For `kubectl describe`. Lost where it cannot be written: the status says the same."""
        namespace = entry.at[0] or DEFAULT_NAMESPACE
        now = timestamp(self._now_s())
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{entry.at[1]}.", "namespace": namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": entry.kind.name,
                "name": entry.at[1],
                "namespace": entry.at[0],
                "uid": found["metadata"]["uid"],
            },
            "type": sort,
            "reason": reason,
            "message": message[:MESSAGE_CHARS_MAX],
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": "fleetctl"},
            "reportingComponent": "fleetctl.dev/operator",
        }
        try:
            await self._connection.request(
                "POST", f"/api/v1/namespaces/{namespace}/events", body=body, tries=1
            )
        except FleetctlError as error:
            log.info("event not written", extra={"key": entry.key, "error": str(error)})

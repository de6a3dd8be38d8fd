"""The writes to an API server, each as small as possible: a finalizer on and off, a status, an
Event. Called by resource_mirror.py; how often they are worth it is decided in statuses.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from fleetctl.common.errors import FleetctlError
from fleetctl.common.text import format_timestamp
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import MERGE_PATCH, ApiConnection, Object
from fleetctl.operator.mirror.custom_resource import FINALIZER
from fleetctl.operator.mirror.entries import MirrorEntry
from fleetctl.operator.mirror.statuses import (
    SOON_S,
    due_at_s,
    list_events,
    patch_of,
    record_write,
    status_for,
)
from fleetctl.specs.kinds.registry import API_VERSION
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.views.objects import View

log = logging.getLogger("fleetctl.operator")

MESSAGE_CHARS_MAX = 1000  # an Event's, as Kubernetes limits it to 1,024 bytes


class ClusterWriter:
    def __init__(self, connection: ApiConnection, *, now_s: Callable[[], float]) -> None:
        self._connection = connection
        self._now_s = now_s

    async def hold(self, entry: MirrorEntry, found: Object) -> Object:
        """The object with our finalizer. Raises ApiError where it changed meanwhile."""
        names = [*(found["metadata"].get("finalizers") or ()), FINALIZER]
        return await self._finalizers(entry, found, names)

    async def release(self, entry: MirrorEntry, found: Object) -> None:
        names = [it for it in found["metadata"].get("finalizers") or () if it != FINALIZER]
        try:
            await self._finalizers(entry, found, names)
        except ApiError as error:
            if not error.not_found:
                raise

    async def _finalizers(
        self,
        entry: MirrorEntry,
        found: Object,
        names: Sequence[str],
    ) -> Object:
        metadata = {
            "finalizers": list(names),
            # A list is replaced whole: entries that another client added meanwhile must not be
            # lost.
            "resourceVersion": found["metadata"]["resourceVersion"],
        }
        try:
            return await self._connection.request(
                "PATCH", entry.path, body={"metadata": metadata}, content_type=MERGE_PATCH
            )
        except ApiError as error:
            if error.conflict:
                # The cache lags; the next look begins with the server's state.
                entry.take_reply(await self._connection.request("GET", entry.path))
            raise

    def pending_until_s(self, entry: MirrorEntry) -> float | None:
        """Returns when a write is due that is to show all that changes until then; None: at once,
        or there is none. A status is not computed before.
        """
        soon_s = entry.soon_s
        if soon_s is not None and self._now_s() < soon_s:
            return soon_s
        return None

    async def tell(
        self,
        entry: MirrorEntry,
        found: Object,
        seen: View | None,
    ) -> float | None:
        """Writes the status if it differs and the write is due. Returns the seconds until the next
        look; None = never.
        """
        now_s = self._now_s()
        before = found.get("status") or {}
        entry.soon_s = None
        if not before and entry.since_s is None:
            # The first status certainly differs from none; it is computed once it is due.
            entry.since_s = now_s
            entry.soon_s = now_s + SOON_S
            return entry.soon_s
        generation = int(found["metadata"].get("generation") or 0)
        after = status_for(
            seen,
            before,
            generation,
            entry.refusal,
            now_s,
        )
        patch = patch_of(before, after)
        if not patch:
            entry.since_s = None
            return None
        entry.since_s = now_s if entry.since_s is None else entry.since_s
        due_s = due_at_s(before, after, entry.writes, entry.since_s)
        if now_s < due_s:
            entry.soon_s = due_s if due_s <= entry.since_s + SOON_S else None
            return due_s
        body = {"metadata": {"uid": found["metadata"]["uid"]}, "status": patch}
        reply = await self._connection.request(
            "PATCH", f"{entry.path}/status", body=body, content_type=MERGE_PATCH
        )
        entry.take_reply(reply)
        entry.writes = record_write(before, after, entry.writes, now_s)
        entry.since_s = None
        for sort, reason, message in list_events(before, after):
            await self._event(
                entry,
                found,
                sort,
                reason,
                message,
            )
        return None

    async def _event(
        self,
        entry: MirrorEntry,
        found: Object,
        sort: str,
        reason: str,
        message: str,
    ) -> None:
        """Writes an Event for `kubectl describe`. Lost if the write fails: the status has the same
        message.
        """
        namespace = entry.at[0] or DEFAULT_NAMESPACE
        now = format_timestamp(self._now_s())
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

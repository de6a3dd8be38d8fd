"""Acquires a Kubernetes Lease, renews it, and detects its loss by this machine's clock alone.

lease.py decides the next step after each reply. Code that acts for the leader checks `leads` first;
`lost` is set when the lease has expired or was released, and this process never leads again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from fleetctl.common.errors import FleetctlError
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import ApiConnection, Object
from fleetctl.operator.leading.lease import (
    MICROTIME,
    NOBODY,
    LeaseKnowledge,
    LeaseStep,
    LeaseTimes,
    choose_step,
    is_leader,
    record_of,
    spec_of,
    update_known,
)

log = logging.getLogger("fleetctl.operator")

CALL_S = 3.0  # per request; several requests must fit before the deadline


def boottime_s() -> float:
    """Returns the seconds of a clock that goes on while the machine sleeps, and is never set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Elector:
    """A candidate for a lease. me: an identity that is unique to this process. clock: returns
    seconds that only rise.
    """

    def __init__(
        self,
        connection: ApiConnection,
        *,
        namespace: str,
        name: str,
        me: str,
        times: LeaseTimes,
        clock: Callable[[], float] = boottime_s,
    ) -> None:
        self.me = me
        self.lost = asyncio.Event()
        self._connection = connection
        self._times = times
        self._clock = clock
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._namespace = namespace
        self._known = LeaseKnowledge()

    def leads(self) -> bool:
        """Returns whether this process may act as the leader at this moment."""
        return is_leader(self.me, self._known, self._clock(), self._times)

    async def acquire(self) -> None:
        """Tries until this process leads."""
        while not self.leads():
            await self._take_step()
            if not self.leads():
                await asyncio.sleep(self._times.retry_s)
        log.info("leads", extra={"lease": self._name, "me": self.me})

    async def renew(self) -> None:
        """Renews the lease until it is lost, which sets `lost`; or until cancelled."""
        try:
            while self.leads():
                await asyncio.sleep(self._times.retry_s)
                # However long a reply takes, a lost lease stays lost.
                left_s = self._remaining_s()
                try:
                    async with asyncio.timeout(max(0.0, left_s)):
                        await self._take_step()
                except TimeoutError:
                    break
        finally:
            self.lost.set()
        log.warning("leads no more", extra={"lease": self._name, "me": self.me})

    async def release(self) -> None:
        """Releases the lease, so that another candidate leads at once. To be called only when this
        process no longer acts as the leader.
        """
        record = self._known.record
        self.lost.set()
        if not self.leads() or record is None:
            return
        self._known = replace(self._known, renewed_at_s=None)
        spec = spec_of(self.me, LeaseKnowledge(record), self._times, _format_now())
        spec |= {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            await self._put(spec, record.version)
        except FleetctlError as error:
            log.info("the lease runs out by itself", extra={"error": str(error)})

    def _remaining_s(self) -> float:
        renewed_at_s = self._known.renewed_at_s
        if renewed_at_s is None:
            return 0.0
        return renewed_at_s + self._times.deadline_s - self._clock()

    async def _take_step(self) -> None:
        """Reads the lease where it is due, and then creates, takes or renews it where that is
        due.
        """
        step = choose_step(self.me, self._known, self._clock(), self._times)
        try:
            if step is LeaseStep.READ:
                await self._read()
                step = choose_step(self.me, self._known, self._clock(), self._times)
            if step in (LeaseStep.CREATE, LeaseStep.TAKE, LeaseStep.RENEW):
                await self._write(create=step is LeaseStep.CREATE)
        except FleetctlError as error:
            log.info("lease not read or written", extra={"error": str(error)})

    async def _read(self) -> None:
        path = f"{self._path}/{self._name}"
        try:
            record = record_of(
                await self._connection.request("GET", path, deadline_s=CALL_S, tries=1)
            )
        except ApiError as error:
            if not error.not_found:
                raise
            record = NOBODY
        self._known = update_known(self._known, record, self._clock())

    async def _write(self, *, create: bool) -> None:
        spec = spec_of(self.me, self._known, self._times, _format_now())
        sent_at_s = self._clock()
        version = self._known.record.version if self._known.record is not None else ""
        try:
            if create:
                body = {"metadata": {"name": self._name}, "spec": spec, **_LEASE}
                made = await self._connection.request(
                    "POST",
                    self._path,
                    body=body,
                    deadline_s=CALL_S,
                    tries=1,
                )
            else:
                made = await self._put(spec, version)
        except ApiError as error:
            if not (error.conflict or error.exists or error.not_found):
                raise
            # Another candidate wrote the lease, or an earlier write of ours whose reply was lost
            # did.
            await self._read()
            return
        self._known = LeaseKnowledge(record_of(made), self._clock(), sent_at_s)

    async def _put(self, spec: Object, version: str) -> Object:
        """Replaces the lease's content. version: the resourceVersion that it must still have."""
        metadata = {"name": self._name, "namespace": self._namespace, "resourceVersion": version}
        return await self._connection.request(
            "PUT",
            f"{self._path}/{self._name}",
            body={"metadata": metadata, "spec": spec, **_LEASE},
            deadline_s=CALL_S,
            tries=1,
        )


_LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}


def _format_now() -> str:
    return datetime.now(UTC).strftime(MICROTIME)

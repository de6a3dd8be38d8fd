"""Becomes the leader by a Lease, stays it, and knows at once when it no longer is.

What follows from an answer is decided in lease.py. Whoever acts for the leader asks `leads` first;
`lost` is set when it is over, and this process never leads again.
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
from fleetctl.kubernetes.connection import Connection, Object
from fleetctl.operator.leading.lease import (
    MICROTIME,
    NOBODY,
    Known,
    Step,
    Times,
    heard,
    leads,
    record_of,
    spec_of,
    step,
)

log = logging.getLogger("fleetctl.operator")

CALL_S = 3.0  # of one question; several must fit before the deadline


def boottime_s() -> float:
    """A clock that goes on while the machine sleeps, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Elector:
    """me: unique to this process. clock: seconds that only rise."""

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str,
        name: str,
        me: str,
        times: Times,
        clock: Callable[[], float] = boottime_s,
    ) -> None:
        self.me = me
        self.lost = asyncio.Event()
        self._connection, self._times, self._clock = connection, times, clock
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name, self._namespace = name, namespace
        self._known = Known()

    def leads(self) -> bool:
        return leads(self.me, self._known, self._clock(), self._times)

    async def win(self) -> None:
        """Until this process leads."""
        while not self.leads():
            await self._go_on()
            if not self.leads():
                await asyncio.sleep(self._times.retry_s)
        log.info("leads", extra={"lease": self._name, "me": self.me})

    async def keep(self) -> None:
        """Renew until the lease is lost, which sets `lost`; or until cancelled."""
        try:
            while self.leads():
                await asyncio.sleep(self._times.retry_s)
                # However long an answer takes, what is over is over.
                left_s = self._left_s()
                try:
                    async with asyncio.timeout(max(0.0, left_s)):
                        await self._go_on()
                except TimeoutError:
                    break
        finally:
            self.lost.set()
        log.warning("leads no more", extra={"lease": self._name, "me": self.me})

    async def release(self) -> None:
        """Give the lease back, so that another one begins at once. Only when nothing acts any more
        in this process.
        """
        record = self._known.record
        self.lost.set()
        if not self.leads() or record is None:
            return
        self._known = replace(self._known, renewed_at_s=None)
        spec = spec_of(self.me, Known(record), self._times, _now())
        spec |= {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            await self._put(spec, record.version)
        except FleetctlError as error:
            log.info("the lease runs out by itself", extra={"error": str(error)})

    def _left_s(self) -> float:
        renewed_at_s = self._known.renewed_at_s
        if renewed_at_s is None:
            return 0.0
        return renewed_at_s + self._times.deadline_s - self._clock()

    async def _go_on(self) -> None:
        """One step: ask, or write."""
        todo = step(self.me, self._known, self._clock(), self._times)
        try:
            if todo is Step.READ:
                await self._read()
                todo = step(self.me, self._known, self._clock(), self._times)
            if todo in (Step.CREATE, Step.TAKE, Step.RENEW):
                await self._write(create=todo is Step.CREATE)
        except FleetctlError as error:
            log.info("no answer about the lease", extra={"error": str(error)})

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
        self._known = heard(self._known, record, self._clock())

    async def _write(self, *, create: bool) -> None:
        spec, sent_at_s = spec_of(self.me, self._known, self._times, _now()), self._clock()
        version = self._known.record.version if self._known.record is not None else ""
        try:
            if create:
                body = {"metadata": {"name": self._name}, "spec": spec, **_LEASE}
                made = await self._connection.request(
                    "POST", self._path, body=body, deadline_s=CALL_S, tries=1
                )
            else:
                made = await self._put(spec, version)
        except ApiError as error:
            if not (error.conflict or error.exists or error.not_found):
                raise
            await self._read()  # somebody else wrote it, or our own write before, unanswered
            return
        self._known = Known(record_of(made), self._clock(), sent_at_s)

    async def _put(self, spec: Object, version: str) -> Object:
        metadata = {"name": self._name, "namespace": self._namespace, "resourceVersion": version}
        return await self._connection.request(
            "PUT",
            f"{self._path}/{self._name}",
            body={"metadata": metadata, "spec": spec, **_LEASE},
            deadline_s=CALL_S,
            tries=1,
        )


_LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}


def _now() -> str:
    return datetime.now(UTC).strftime(MICROTIME)

"""Acquires a Kubernetes Lease, renews it, and detects its loss by this machine's clock alone; a
pure decision returns whether the candidate leads.

A decision is made after each reply. Code that acts for the leader checks `leads` first; `lost` is
set when the lease has expired or was released, and this process never leads again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from fleetctl.common.errors import FleetctlError
from fleetctl.kubernetes.answers import ApiError
from fleetctl.kubernetes.connection import ApiConnection, Object

log = logging.getLogger("fleetctl.operator")

CALL_S = 3.0  # per request; several requests must fit before the deadline


# No two clocks are compared: a lease is over when *this* candidate has seen it unchanged for as
# long as it is valid. A leader gives up well before that, by its own clock, whether or not the
# server answers: the client's own election does not (it leaves the leading thread working when the
# network is cut).

MICROTIME = "%Y-%m-%dT%H:%M:%S.%fZ"


DURATION_S = 15
# Parts of the duration: how long a leader acts after a sign of life, and how often it gives one.
DEADLINE_SHARE = 2 / 3
RETRY_SHARE = 2 / 15


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


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of a lease.

    duration_s: how long no other process leads after a renewal. deadline_s: how long the leader
    acts after one; the difference pays for calls under way and for clocks of unequal speed.
    """

    duration_s: int
    deadline_s: float
    retry_s: float


def times_of(duration_s: int = DURATION_S) -> LeaseTimes:
    return LeaseTimes(duration_s, duration_s * DEADLINE_SHARE, duration_s * RETRY_SHARE)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of a Lease. version: its resourceVersion; every write checks it."""

    holder: str
    duration_s: float
    transitions: int
    version: str


@dataclass(frozen=True, slots=True)
class LeaseKnowledge:
    """The knowledge of a candidate.

    since_s: its clock when the reply came that first had this record. renewed_at_s: its clock
    before it sent the last write that is known to have succeeded; None: it does not lead.
    """

    record: LeaseRecord | None = None
    since_s: float = 0.0
    renewed_at_s: float | None = None


class LeaseStep(StrEnum):
    READ = "read"  # another process leads, or the lease is unknown
    CREATE = "create"
    TAKE = "take"  # the lease has expired, or was given back
    RENEW = "renew"
    LOST = "lost"  # act no more, now and for ever: another process may lead


def choose_step(
    me: str,
    known: LeaseKnowledge,
    now_s: float,
    times: LeaseTimes,
) -> LeaseStep:
    """Returns the step of the candidate `me` at now_s. me: unique to this process."""
    if known.renewed_at_s is not None:
        if is_leader(me, known, now_s, times):
            return LeaseStep.RENEW
        return LeaseStep.LOST
    record = known.record
    if record is None:
        return LeaseStep.READ
    if record.version == "":
        return LeaseStep.CREATE
    # A lease in this process's own name, whose write got no reply, is treated as another's.
    if record.holder in ("", me) or now_s - known.since_s >= record.duration_s:
        return LeaseStep.TAKE
    return LeaseStep.READ


def is_leader(
    me: str,
    known: LeaseKnowledge,
    now_s: float,
    times: LeaseTimes,
) -> bool:
    """Returns True if the candidate may act at now_s. Checked before anything is made durable."""
    if known.renewed_at_s is None or known.record is None or known.record.holder != me:
        return False
    return now_s - known.renewed_at_s < times.deadline_s


def update_known(
    known: LeaseKnowledge,
    record: LeaseRecord,
    at_s: float,
) -> LeaseKnowledge:
    """Returns the knowledge after a reply. The same version again is no sign of life of
    its holder.
    """
    before = known.record
    same = before is not None and (before.version, before.holder) == (record.version, record.holder)
    return LeaseKnowledge(record, known.since_s if same else at_s, known.renewed_at_s)


NOBODY = LeaseRecord(
    holder="",
    duration_s=0,
    transitions=0,
    version="",
)  # there is no Lease yet


def record_of(lease: dict[str, Any]) -> LeaseRecord:
    spec = lease.get("spec") or {}
    return LeaseRecord(
        holder=str(spec.get("holderIdentity") or ""),
        duration_s=float(spec.get("leaseDurationSeconds") or 0),
        transitions=int(spec.get("leaseTransitions") or 0),
        version=str(lease["metadata"]["resourceVersion"]),
    )


def spec_of(
    me: str,
    known: LeaseKnowledge,
    times: LeaseTimes,
    at: str,
) -> dict[str, Any]:
    """Returns the Lease's spec that takes or renews it. at: the wall time, for readers; see
    MICROTIME.
    """
    before = known.record or NOBODY
    changes = before.holder != me
    return {
        "holderIdentity": me,
        "leaseDurationSeconds": times.duration_s,
        "leaseTransitions": before.transitions + changes,
        "renewTime": at,
        **({"acquireTime": at} if changes else {}),
    }

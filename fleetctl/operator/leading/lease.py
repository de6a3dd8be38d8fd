"""Decides from a Lease and the candidate's own clock if the candidate leads. Pure.

Called by elector.py and by the simulation. No two clocks are compared: a lease is over when *this*
candidate has seen it unchanged for as long as it is valid. A leader gives up well before that, by
its own clock, whether or not the server answers: the client's own election does not (it leaves the
leading thread working when the network is cut).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MICROTIME = "%Y-%m-%dT%H:%M:%S.%fZ"


DURATION_S = 15
# Parts of the duration: how long a leader acts after a sign of life, and how often it gives one.
DEADLINE_SHARE = 2 / 3
RETRY_SHARE = 2 / 15


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

"""Who leads, decided from what a Lease says and the candidate's own clock. Pure.

Called by elector.py and by the simulation. No two clocks are compared: a lease is over when *this*
candidate has seen it unchanged for as long as it is valid. A leader gives up well before that, by
its own clock, whether or not anybody answers: the client's own election does not (it leaves the
leading thread working when the network is cut).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MICROTIME = "%Y-%m-%dT%H:%M:%S.%fZ"


DURATION_S = 15
# Of the duration: how long a leader acts after a sign of life, and how often it gives one.
DEADLINE_SHARE, RETRY_SHARE = 2 / 3, 2 / 15


@dataclass(frozen=True, slots=True)
class Times:
    """duration_s: how long nobody else leads after a renewal. deadline_s: how long the leader
    acts after one; what is between them pays for calls under way and for clocks of unequal speed.
    """

    duration_s: int
    deadline_s: float
    retry_s: float


def times_of(duration_s: int = DURATION_S) -> Times:
    return Times(duration_s, duration_s * DEADLINE_SHARE, duration_s * RETRY_SHARE)


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says. version: its resourceVersion; every write checks it."""

    holder: str
    duration_s: float
    transitions: int
    version: str


@dataclass(frozen=True, slots=True)
class Known:
    """What one candidate knows. since_s: its clock when the answer came in that first said so.
    renewed_at_s: its clock before it sent the last write that is known to have succeeded; None: it
    does not lead.
    """

    record: Record | None = None
    since_s: float = 0.0
    renewed_at_s: float | None = None


class Step(StrEnum):
    READ = "read"  # somebody else leads, or nothing is known
    CREATE = "create"
    TAKE = "take"  # it is over, or was given back
    RENEW = "renew"
    LOST = "lost"  # act no more, now and for ever: another process may lead


def step(me: str, known: Known, now_s: float, times: Times) -> Step:
    """What the candidate `me` does at now_s. me: unique to this process."""
    if known.renewed_at_s is not None:
        return Step.RENEW if leads(me, known, now_s, times) else Step.LOST
    record = known.record
    if record is None:
        return Step.READ
    if record.version == "":
        return Step.CREATE
    # What was written in this process's own name, and its reply lost, is taken as anybody's.
    if record.holder in ("", me) or now_s - known.since_s >= record.duration_s:
        return Step.TAKE
    return Step.READ


def leads(me: str, known: Known, now_s: float, times: Times) -> bool:
    """Whether it may act at now_s. Asked before anything is made durable."""
    if known.renewed_at_s is None or known.record is None or known.record.holder != me:
        return False
    return now_s - known.renewed_at_s < times.deadline_s


def heard(known: Known, record: Record, at_s: float) -> Known:
    """After an answer. The same version again is no sign of life of its holder."""
    before = known.record
    same = before is not None and (before.version, before.holder) == (record.version, record.holder)
    return Known(record, known.since_s if same else at_s, known.renewed_at_s)


NOBODY = Record(holder="", duration_s=0, transitions=0, version="")  # there is no Lease yet


def record_of(lease: dict[str, Any]) -> Record:
    spec = lease.get("spec") or {}
    return Record(
        holder=str(spec.get("holderIdentity") or ""),
        duration_s=float(spec.get("leaseDurationSeconds") or 0),
        transitions=int(spec.get("leaseTransitions") or 0),
        version=str(lease["metadata"]["resourceVersion"]),
    )


def spec_of(me: str, known: Known, times: Times, at: str) -> dict[str, Any]:
    """The Lease's spec that takes or renews it. at: the wall time, for people; see MICROTIME."""
    before = known.record or NOBODY
    changes = before.holder != me
    return {
        "holderIdentity": me,
        "leaseDurationSeconds": times.duration_s,
        "leaseTransitions": before.transitions + changes,
        "renewTime": at,
        **({"acquireTime": at} if changes else {}),
    }

"""Writes the status of a Source, reads parts back, holds the round that is under way in memory, and
defines the keeper that fetches a repository and stores its objects.

The keeper is implemented in fleetctl/gitops, which knows git, files and how a manifest becomes an
object; the daemon passes it in. The state of a round can all be lost: the next one begins with a
look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fleetctl.common.errors import FleetctlError, Unavailable
from fleetctl.controllers.kinds.source_decision import (
    NEVER_S,
    SourceDecision,
    SourceKnowledge,
    SourceMemory,
    SourceStep,
)
from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import Phase
from fleetctl.controllers.status_keys import Status
from fleetctl.manifest.problems import ManifestErrors, join_sentences
from fleetctl.specs.kinds.source import SourceSpec
from fleetctl.tracking.kept_by import HELD, shorten_commit
from fleetctl.tracking.track import Track

REFUSED = "RevisionRefused"
UNREACHABLE = "SourceUnreachable"
NAMES_SHOWN_MAX = 5

PROBLEMS_TOLD_MAX = 5


def memory_of(status: Mapping[str, object]) -> SourceMemory:
    return SourceMemory(
        applied=_read_text(status, "appliedRevision"),
        applied_generation=_read_count(status, "appliedGeneration"),
        attempted=_read_text(status, "attemptedRevision"),
        request=_read_text(status, "request"),
    )


def objects_of(status: Mapping[str, object]) -> int:
    return _read_count(status, "objects")


def status_of(
    track: Track,
    spec: SourceSpec,
    decision: SourceDecision,
    desk: SourceWork,
    memory: SourceMemory,
    kept: SourceStoreResult | None,
    now_s: float,
) -> Status:
    before = track.status
    phase, reason, message, hint = _describe_state(
        track,
        spec,
        decision,
        desk,
        memory,
    )
    error = desk.error
    same = memory.attempted == _read_text(before, "attemptedRevision")
    if error is None and same and not _is_settled(desk):
        last = _read_text(before, "lastError")  # of the round before, until this one has ended
    else:
        last = describe_error(error)[0] if error is not None else ""
    status: Status = {
        "phase": phase.value,
        "reason": reason,
        "message": message,
        "hint": hint,
        "waitingOn": [message] if phase is Phase.PENDING and message else [],
        "observedGeneration": track.resource.generation,
        "appliedRevision": memory.applied,
        "appliedGeneration": memory.applied_generation,
        "attemptedRevision": memory.attempted,
        "request": memory.request,
        "lastError": last,
        "objects": kept.objects if kept is not None else objects_of(before),
        "changed": kept.changed if kept is not None else _read_map(before, "changed"),
        "unpruned": kept.left if kept is not None else _read_count(before, "unpruned"),
        "revisions": _list_revisions(before, memory, desk),
    }
    status["conditions"] = [_build_condition(status, before, now_s)]
    return status | _build_times(status, before, now_s)


def _describe_state(
    track: Track,
    spec: SourceSpec,
    decision: SourceDecision,
    desk: SourceWork,
    memory: SourceMemory,
) -> tuple[Phase, str, str, str]:
    """Returns (phase, reason, message, hint)."""
    kept = f"; the objects stay as at {shorten_commit(memory.applied)}" if memory.applied else ""
    if spec.suspend:
        return Phase.SUSPENDED, "Suspended", "suspend is set: nothing is applied", ""
    if desk.error is not None:
        text, hint = describe_error(desk.error)
        reason = UNREACHABLE if isinstance(desk.error, Unavailable) else REFUSED
        if isinstance(desk.error, Unavailable) and desk.error.reason != "Unavailable":
            reason = desk.error.reason
        return Phase.PENDING, reason, f"{text}{kept}", hint
    if desk.held:
        text = f"{shorten_commit(memory.attempted)} waits for consent: {'; '.join(desk.losses)}"
        return Phase.PENDING, HELD, text, f"fleetctl reconcile {track.resource.key} --yes"
    applied = memory.applied and memory.applied_generation == track.resource.generation
    if applied and memory.attempted == memory.applied:
        return Phase.READY, "Ready", "", ""
    before = track.status
    looks = not _is_settled(desk) and not desk.tip
    if looks and _read_text(before, "reason") in (REFUSED, UNREACHABLE, HELD):
        return (
            Phase.PENDING,
            _read_text(before, "reason"),
            _read_text(before, "message"),
            _read_text(before, "hint"),
        )
    doing = "reading" if decision.step is SourceStep.READ or desk.tip else "looking at"
    return Phase.PENDING, "InProgress", f"{doing} the repository{kept}", ""


def _is_settled(desk: SourceWork) -> bool:
    """Returns true if no round is under way."""
    return desk.task is None and not desk.tip and (desk.reading is None or desk.held or desk.kept)


def deleting_status(track: Track, left: Sequence[Resource]) -> Status:
    names = ", ".join(it.key for it in left[:NAMES_SHOWN_MAX])
    rest = len(left) - NAMES_SHOWN_MAX
    text = f"still removing {names}" + (f" and {rest:,} more" if rest > 0 else "")
    kept: Status = {**track.status}  # type: ignore[typeddict-item]
    return {
        **kept,
        "phase": Phase.DELETING.value,
        "reason": "Deleted",
        "message": text,
        "waitingOn": [text],
        "observedGeneration": track.resource.generation,
    }


def counts_text(changed: Mapping[str, int]) -> str:
    """Formats the counts: `3 created, 1 pruned`."""
    return ", ".join(f"{count:,} {word}" for word, count in changed.items() if count) or "no change"


def _build_times(
    status: Status,
    before: Mapping[str, object],
    now_s: float,
) -> Status:
    """Returns the times at which the status became so."""

    def since(key: str, word: str) -> float | None:
        value = before.get(key)
        same = before.get(word) == status.get(word) and isinstance(value, int | float)
        if same and isinstance(value, int | float):
            return float(value)
        return now_s

    failing = before.get("failingSince") or now_s
    return {
        "appliedAt": since("appliedAt", "appliedRevision") if status["appliedRevision"] else None,
        "attemptedAt": (
            since("attemptedAt", "attemptedRevision") if status["attemptedRevision"] else None
        ),
        "failingSince": failing if status["lastError"] else None,  # type: ignore[typeddict-item]
    }


def _list_revisions(
    before: Mapping[str, object],
    memory: SourceMemory,
    desk: SourceWork,
) -> list[dict[str, str]]:
    """Returns the known facts on the applied commit and on the one that was tried last."""
    rows = before.get("revisions")
    known = {it["revision"]: it for it in (rows if isinstance(rows, list) else ())}
    if (read := desk.reading) is not None and (read.author or read.subject):
        row = {"revision": read.commit, "author": read.author, "subject": read.subject}
        known[read.commit] = row
    wanted = dict.fromkeys((memory.applied, memory.attempted))
    return [known[it] for it in wanted if it in known]


def _build_condition(
    status: Status,
    before: Mapping[str, object],
    now_s: float,
) -> dict[str, object]:
    ready = str(status["phase"] == Phase.READY.value)
    conditions = before.get("conditions")
    known = conditions[0] if isinstance(conditions, list) and conditions else {}
    same = known.get("status") == ready
    return {
        "type": "Ready",
        "status": ready,
        "reason": status["reason"],
        "message": status["message"],
        "lastTransitionTime": known["lastTransitionTime"] if same else now_s,
    }


def _read_text(status: Mapping[str, object], name: str) -> str:
    value = status.get(name)
    if isinstance(value, str):
        return value
    return ""


def _read_count(status: Mapping[str, object], name: str) -> int:
    value = status.get(name)
    if isinstance(value, int):
        return value
    return 0


def _read_map(status: Mapping[str, object], name: str) -> dict[str, int]:
    value = status.get(name)
    if isinstance(value, dict):
        return value
    return {}


class ObjectsChanged(FleetctlError):
    """Objects changed since the commit was read: the store is unchanged, and the commit is read
    again.
    """


class SourceReading(Protocol):
    """A commit, fetched, loaded without an error, and what it would change."""

    @property
    def commit(self) -> str: ...

    @property
    def author(self) -> str:
        """Returns the name of the commit's author; empty for an unknown one."""
        ...

    @property
    def subject(self) -> str:
        """Returns the first line of the commit's message."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns the warnings of its manifests, a sentence each."""
        ...


@dataclass(frozen=True, slots=True)
class SourceStoreResult:
    """rows: as they are stored by now. losses: why the store is unchanged, as consent is missing.
    changed: how many were created, configured and pruned. objects: how many are kept in all. left:
    how many lost their manifest and stay, as pruning is off.
    """

    rows: tuple[Resource, ...] = ()
    losses: tuple[str, ...] = ()
    changed: dict[str, int] = field(default_factory=dict)
    objects: int = 0
    left: int = 0


class SourceKeeper(Protocol):
    """Writes happen inside a transaction of the caller's."""

    async def tip(self, source: Resource, spec: SourceSpec) -> str:
        """Returns the commit that the ref names now, 40 hex digits. Raises Refused where there is
        no such ref, and Unavailable.
        """
        ...

    async def read(
        self,
        source: Resource,
        spec: SourceSpec,
        commit: str,
    ) -> SourceReading:
        """Reads the whole commit or fails. Raises FleetctlError with all problems; an error names
        its file and line.
        """
        ...

    def keep(
        self,
        reading: SourceReading,
        live: Collection[str],
        *,
        approved: bool,
        now_s: float,
    ) -> SourceStoreResult:
        """Stores the objects of a commit. live: uids of objects that have runs now. Raises
        ObjectsChanged where it was read for other objects than exist now.
        """
        ...

    def release(self, source: Resource) -> tuple[Resource, ...]:
        """Releases its objects: they stay, without an owner from now on. Returns the rows as they
        are stored by now.
        """
        ...

    async def forget(self, source: Resource) -> None:
        """Removes the fetched data of a Source that is gone."""
        ...


@dataclass(slots=True)
class SourceWork:
    """task: a look (its result is a commit) or a reading. generation: of the Source, when the
    reading began; looked_generation: when the last look did. kept: the read commit was stored, in a
    transaction that may yet fail. request: the one by hand that this round answers. error: of the
    last round.
    """

    task: asyncio.Future[str] | asyncio.Future[SourceReading] | None = None
    generation: int = 0
    tip: str = ""
    reading: SourceReading | None = None
    kept: bool = False
    held: bool = False
    nudged: bool = False
    looked_at_s: float = NEVER_S
    looked_generation: int = 0
    failures: int = 0
    request: str = ""
    error: Exception | None = None
    losses: tuple[str, ...] = ()

    @property
    def over_with_error(self) -> bool:
        """Returns true if the last round has failed and no other is under way."""
        under_way = self.task is not None or self.tip or self.reading is not None
        return self.error is not None and not under_way

    def build_knowledge(
        self,
        request: str,
        *,
        allowed: bool,
        drifted: bool,
    ) -> SourceKnowledge:
        return SourceKnowledge(
            tip=self.tip,
            read=self.reading.commit if self.reading is not None else "",
            read_generation=self.generation,
            looked_at_s=self.looked_at_s,
            looked_generation=self.looked_generation,
            failures=self.failures,
            busy=self.task is not None and not self.task.done(),
            held=self.held,
            nudged=self.nudged,
            request=request,
            allowed=allowed,
            drifted=drifted,
        )

    def over(self, now_s: float, error: Exception | None = None) -> None:
        """Ends the round."""
        self.tip = ""
        self.reading = None
        self.kept = False
        self.nudged = False
        self.held = False
        self.losses = ()
        self.looked_at_s = now_s
        self.error = error
        self.failures = 0 if error is None else self.failures + 1

    def waits(self, losses: tuple[str, ...], now_s: float) -> None:
        """Records that the read commit needs consent; the ref is looked at again meanwhile."""
        self.tip = ""
        self.held = True
        self.nudged = False
        self.losses = losses
        self.looked_at_s = now_s
        self.error = None
        self.failures = 0


def describe_error(error: Exception) -> tuple[str, str]:
    """Returns (the problem, with file and line where known; a hint)"""
    if not isinstance(error, ManifestErrors):
        return str(error), str(getattr(error, "hint", ""))
    shown = [join_sentences(str(it), it.hint) for it in error.problems[:PROBLEMS_TOLD_MAX]]
    rest = len(error.problems) - len(shown)
    if rest > 0:
        shown.append(f"and {rest:,} more problems")
    return "\n".join(shown), ""

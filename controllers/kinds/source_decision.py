"""Decides a Source's next step: look at the repository, read a commit, make the objects equal to
it. Pure.

    decide_source_step(spec, generation, memory, sight, now_s) -> SourceDecision

The caller is engine/kinds/source_pass. A round is LOOK, then READ and KEEP where something differs.
A failure ends the round, leaves the objects unchanged, and begins another round after a delay that
doubles. The state of a round is in memory and may be lost: a restart begins with LOOK.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fleetctl.specs.kinds.source import REPAIR, SourceSpec

AGAIN_S = 5.0
AGAIN_S_MAX = 300.0
NEVER_S = -1.0


class SourceStep(StrEnum):
    SUSPENDED = "Suspended"
    BUSY = "Busy"  # a reply is on its way
    KEEP = "Keep"  # make the objects equal to what was read
    READ = "Read"  # fetch a commit and load all of its files
    LOOK = "Look"  # look up which commit the ref names
    REST = "Rest"


@dataclass(frozen=True, slots=True)
class SourceMemory:
    """The state kept in the status. applied_generation: the Source's generation when `applied` was
    applied. request: the last request by hand that was carried out.
    """

    applied: str = ""
    applied_generation: int = 0
    attempted: str = ""
    request: str = ""


@dataclass(frozen=True, slots=True)
class SourceKnowledge:
    """The state kept by this process. tip: the commit that the ref named in this round; empty: it
    was not requested yet. read: the commit that is read and not kept yet. read_generation: the
    Source's generation at that read; looked_generation: at the last look. looked_at_s: the end of
    the last round; NEVER_S: before the first. failures: rounds in a row. held: the read commit
    waits for consent. nudged: something that it waited for changed. request: the last one by hand;
    allowed: that request consents to the read commit.
    """

    tip: str = ""
    read: str = ""
    read_generation: int = 0
    looked_at_s: float = NEVER_S
    looked_generation: int = 0
    failures: int = 0
    busy: bool = False
    held: bool = False
    nudged: bool = False
    request: str = ""
    allowed: bool = False
    drifted: bool = False


@dataclass(frozen=True, slots=True)
class SourceDecision:
    """at_s: when to decide again at the latest; unset: when something happens."""

    step: SourceStep
    at_s: float | None = None
    why: str = ""


def decide_source_step(
    spec: SourceSpec,
    generation: int,
    memory: SourceMemory,
    sight: SourceKnowledge,
    now_s: float,
) -> SourceDecision:
    if spec.suspend:
        return SourceDecision(SourceStep.SUSPENDED, why="suspend is set")
    if sight.busy:
        return SourceDecision(SourceStep.BUSY, why="a reply is awaited")
    asked = sight.request != memory.request
    ready = bool(sight.read) and sight.read_generation == generation
    # A request without consent is for the newest commit: the repository is looked at first.
    answers = asked and (sight.allowed or bool(sight.tip))
    if ready and sight.tip in ("", sight.read) and (sight.nudged or not sight.held or answers):
        return SourceDecision(SourceStep.KEEP, why=f"{sight.read} is read")
    if sight.tip and not (ready and sight.held and sight.tip == sight.read):
        if sight.tip != memory.applied:
            return SourceDecision(SourceStep.READ, why=f"the ref names {sight.tip}")
        if generation != memory.applied_generation:
            return SourceDecision(SourceStep.READ, why="the Source changed since it was applied")
        if sight.drifted:
            return SourceDecision(SourceStep.READ, why="objects were changed by hand")
    due_s = due_at_s(spec, sight)
    if not sight.tip:
        if asked or sight.looked_generation != generation:
            return SourceDecision(SourceStep.LOOK, why="it is asked for, or another")
        if due_s is None or now_s >= due_s or set_back(sight, now_s):
            return SourceDecision(SourceStep.LOOK, why="it is time")
    return SourceDecision(SourceStep.REST, at_s=due_s, why="it is not time yet")


def due_at_s(spec: SourceSpec, sight: SourceKnowledge) -> float | None:
    """Returns when the next look is due; None: at once. After a failure sooner than usual, then
    less and less often.
    """
    if sight.looked_at_s == NEVER_S:
        return None
    if not sight.failures:
        return sight.looked_at_s + spec.git.interval
    most_s = max(AGAIN_S_MAX, spec.git.interval)
    return sight.looked_at_s + min(AGAIN_S * 2.0 ** min(sight.failures - 1, 16), most_s)


def set_back(sight: SourceKnowledge, now_s: float) -> bool:
    """Returns true if the clock shows less than at the last look: how long ago that was is
    unknown.
    """
    return sight.looked_at_s > now_s


def repairs_drift(spec: SourceSpec) -> bool:
    return spec.drift == REPAIR

"""What a Source does next: look at the repository, read a commit, make the objects equal to it, or
rest. Pure: an ordered table, the first rule that holds decides.

    decide(spec, generation, memory, sight, now_s) -> Decision   called by engine/kinds/gitops

A round is LOOK, then READ and KEEP where something differs. Whatever fails ends the round, leaves
the objects as they are, and begins another after a while that doubles. What is remembered of a
round in memory alone may be lost: a restart begins with LOOK.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fleetctl.specs.kinds.source import REPAIR, SourceSpec

AGAIN_S, AGAIN_S_MAX = 5.0, 300.0
NEVER_S = -1.0


class Step(StrEnum):
    SUSPENDED = "Suspended"
    BUSY = "Busy"  # an answer is on its way
    KEEP = "Keep"  # make the objects equal to what was read
    READ = "Read"  # fetch a commit and load all of it
    LOOK = "Look"  # ask which commit the ref names
    REST = "Rest"


@dataclass(frozen=True, slots=True)
class Memory:
    """What the status keeps. applied_generation: of the Source, when `applied` was applied.
    request: the last one by hand that was answered.
    """

    applied: str = ""
    applied_generation: int = 0
    attempted: str = ""
    request: str = ""


@dataclass(frozen=True, slots=True)
class Sight:
    """What this process knows. tip: the commit that the ref named in this round; empty: it was not
    asked yet. read: the commit that is read and not kept yet. read_generation: of the Source, as
    the reading had it; looked_generation: as the last look had it. looked_at_s: the end of the last
    round; NEVER_S: of none. failures: rounds in a row. held: what is read waits for consent.
    nudged: something that it waited for changed. request: the last one by hand; allowed: whether it
    consents to what is read.
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
class Decision:
    """at_s: when to decide again at the latest; None: when something happens."""

    step: Step
    at_s: float | None = None
    why: str = ""


def decide(
    spec: SourceSpec, generation: int, memory: Memory, sight: Sight, now_s: float
) -> Decision:
    if spec.suspend:
        return Decision(Step.SUSPENDED, why="suspend is set")
    if sight.busy:
        return Decision(Step.BUSY, why="an answer is on its way")
    asked = sight.request != memory.request
    ready = bool(sight.read) and sight.read_generation == generation
    # Who asks without consent asks for what is newest now: that is looked at first.
    answers = asked and (sight.allowed or bool(sight.tip))
    if ready and sight.tip in ("", sight.read) and (sight.nudged or not sight.held or answers):
        return Decision(Step.KEEP, why=f"{sight.read} is read")
    if sight.tip and not (ready and sight.held and sight.tip == sight.read):
        if sight.tip != memory.applied:
            return Decision(Step.READ, why=f"the ref names {sight.tip}")
        if generation != memory.applied_generation:
            return Decision(Step.READ, why="the Source is another since it was applied")
        if sight.drifted:
            return Decision(Step.READ, why="objects were changed by hand")
    due_s = due_at_s(spec, sight)
    if not sight.tip:
        if asked or sight.looked_generation != generation:
            return Decision(Step.LOOK, why="it is asked for, or another")
        if due_s is None or now_s >= due_s or set_back(sight, now_s):
            return Decision(Step.LOOK, why="it is time")
    return Decision(Step.REST, at_s=due_s, why="it is not time yet")


def due_at_s(spec: SourceSpec, sight: Sight) -> float | None:
    """When the next look is due; None: at once. After a failure sooner than else, then ever more
    rarely.
    """
    if sight.looked_at_s == NEVER_S:
        return None
    if not sight.failures:
        return sight.looked_at_s + spec.git.interval
    most_s = max(AGAIN_S_MAX, spec.git.interval)
    return sight.looked_at_s + min(AGAIN_S * 2.0 ** min(sight.failures - 1, 16), most_s)


def set_back(sight: Sight, now_s: float) -> bool:
    """Whether the clock says less than at the last look: how long ago that was is unknown."""
    return sight.looked_at_s > now_s


def repairs(spec: SourceSpec) -> bool:
    return spec.drift == REPAIR

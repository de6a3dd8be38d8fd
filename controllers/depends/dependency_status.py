"""Finds the status of an object's dependencies, and if they let it begin. Pure; the engine passes
the rows, and calls this before a pass of work that has not begun; an apply does too.

A dependency counts by its newest spec alone: the outcome of an earlier spec does not release its
dependents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import TERMINAL_PHASES, Phase
from fleetctl.controllers.trials.winner import MissingInput
from fleetctl.specs.blocks.depends import Dependency
from fleetctl.specs.values.namespaces import object_key

# Reasons for an object that waits for others, or that ended because of another.
AWAITS = "AwaitsDependency"
MISSING = "DependencyMissing"
FAILED = "DependencyFailed"
SKIPPED = "DependencySkipped"

_WANTED = {
    "Succeeded": "to succeed",
    "Complete": "to succeed",
    "Failed": "to fail",
    "Finished": "to end",
}
TOLD_MAX = 3  # dependencies that one sentence names


class DependencyState(Enum):
    MET = "Met"
    WAITING = "Waiting"
    MISSING = "Missing"
    FAILED = "Failed"  # it has finished, and not as the condition requires
    SKIPPED = "Skipped"  # it never ran, and that was no failure


@dataclass(frozen=True, slots=True)
class DependencyStatus:
    """One dependency as it is now. why: the rest of a sentence about it."""

    key: str
    condition: str
    state: DependencyState
    why: str = ""
    generation: int = 0  # of the spec that it was met by

    def status(self) -> dict[str, object]:
        return {"on": self.key, "condition": self.condition, "state": self.state.value}


def list_dependency_statuses(
    dependencies: Sequence[Dependency],
    namespace: str,
    row_of: Callable[[str, str], Resource | None],
) -> list[DependencyStatus]:
    """Returns the status of each dependency. row_of: the living object of a kind and name, as
    stored now.
    """
    return [get_dependency_status(it, namespace, row_of(it.kind, it.name)) for it in dependencies]


def get_dependency_status(
    dependency: Dependency,
    namespace: str,
    row: Resource | None,
) -> DependencyStatus:
    key = object_key(dependency.kind, dependency.name, namespace)
    condition = dependency.condition
    if row is None:
        return DependencyStatus(key, condition, DependencyState.MISSING, "is not there")
    if row.deleted_at_s is not None:
        return DependencyStatus(key, condition, DependencyState.MISSING, "is being deleted")
    status: Mapping[str, Any] = json.loads(row.status or "{}")
    phase = status.get("phase")
    if status.get("observedGeneration") != row.generation:
        stale = "has changed since, and runs again" if phase in TERMINAL_PHASES else "has not begun"
        return DependencyStatus(key, condition, DependencyState.WAITING, stale)
    if phase not in TERMINAL_PHASES:
        return DependencyStatus(
            key, condition, DependencyState.WAITING, f"is {phase or Phase.PENDING.value}"
        )
    if condition == "Finished" or phase == _phase_of(condition):
        return DependencyStatus(
            key,
            condition,
            DependencyState.MET,
            f"is {phase}",
            row.generation,
        )
    if phase == Phase.SKIPPED:
        return DependencyStatus(key, condition, DependencyState.SKIPPED, "was skipped")
    text = str(status.get("message") or "")
    ended = "failed" if phase == Phase.FAILED else "succeeded"
    return DependencyStatus(
        key, condition, DependencyState.FAILED, f"{ended}: {text}" if text else ended
    )


def _phase_of(condition: str) -> Phase:
    if condition == "Failed":
        return Phase.FAILED
    return Phase.SUCCEEDED


def find_blocker(found: Sequence[DependencyStatus], on_failed: str | None) -> MissingInput | None:
    """Returns why work with these dependencies may not begin; None where all are met.

    on_failed: `Fail`, `Skip` or empty: then work for the case that a dependency fails is skipped
    where it did not, and all else fails. Work that a skipped dependency leaves undone is not a
    failure, so it is skipped as well.
    """
    for state in (DependencyState.FAILED, DependencyState.SKIPPED):
        those = [it for it in found if it.state is state]
        # A dependency that failed counts more than one that unexpectedly did not.
        ended = next((it for it in those if it.condition != "Failed"), next(iter(those), None))
        if ended is not None:
            return _for_good(ended, on_failed)
    open_ = [it for it in found if it.state is not DependencyState.MET]
    if not open_:
        return None
    missing = next((it for it in open_ if it.state is DependencyState.MISSING), None)
    text = "; ".join(f"{_describe_condition(it)}, which {it.why}" for it in open_[:TOLD_MAX])
    more = len(open_) - TOLD_MAX
    text = f"waits for {text}" + (f"; and {more} more" if more > 0 else "")
    if missing is not None:
        return MissingInput(text, reason=MISSING, hint=f"apply {missing.key}")
    hint = f"it goes on by itself then; `fleetctl describe {open_[0].key}` shows how far that is"
    return MissingInput(text, reason=AWAITS, hint=hint)


def _for_good(ended: DependencyStatus, on_failed: str | None) -> MissingInput:
    text = f"it waited for {_describe_condition(ended)}, which {ended.why}"
    if on_failed is None and ended.state is DependencyState.FAILED and ended.condition == "Failed":
        return MissingInput(
            text,
            for_good=True,
            reason=FAILED,
            skips=True,
        )
    hint = f"fix {ended.key} and apply it; then apply this again"
    if ended.state is DependencyState.SKIPPED:
        return MissingInput(
            text,
            for_good=True,
            reason=SKIPPED,
            skips=True,
            hint=hint,
        )
    skips = on_failed == "Skip"
    return MissingInput(
        text,
        for_good=True,
        reason=FAILED,
        skips=skips,
        hint=hint,
    )


def _describe_condition(it: DependencyStatus) -> str:
    return f"{it.key} {_WANTED[it.condition]}"

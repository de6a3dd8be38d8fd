"""Where the dependencies of an object stand, and whether they let it begin. Pure; the engine hands
in the rows, and asks before a pass of work that has not begun; an apply asks too.

A dependency counts by its newest spec alone: what an earlier one came to releases nobody.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import TERMINAL_PHASES, Phase
from fleetctl.controllers.trials.winner import Lacking
from fleetctl.specs.blocks.depends import Dependency
from fleetctl.specs.values.hints import message_of, with_hint
from fleetctl.specs.values.namespaces import object_key

# Reasons of an object that waits for others, or that ended because of one.
AWAITS, MISSING = "AwaitsDependency", "DependencyMissing"
FAILED, SKIPPED = "DependencyFailed", "DependencySkipped"

_WANTED = {
    "Succeeded": "to succeed",
    "Complete": "to succeed",
    "Failed": "to fail",
    "Finished": "to end",
}
TOLD_MAX = 3  # dependencies that one sentence names


class State(Enum):
    MET = "Met"
    WAITING = "Waiting"
    MISSING = "Missing"
    FAILED = "Failed"  # it is over, and came out otherwise than it must
    SKIPPED = "Skipped"  # it never ran, and that was no failure


@dataclass(frozen=True, slots=True)
class Standing:
    """One dependency as it is now. why: the rest of a sentence about it."""

    key: str
    condition: str
    state: State
    why: str = ""
    generation: int = 0  # of the spec that it was met by

    def status(self) -> dict[str, object]:
        return {"on": self.key, "condition": self.condition, "state": self.state.value}


def standings(
    dependencies: Sequence[Dependency],
    namespace: str,
    row_of: Callable[[str, str], Resource | None],
) -> list[Standing]:
    """row_of: the living object of a kind and name, as stored now."""
    return [standing(it, namespace, row_of(it.kind, it.name)) for it in dependencies]


def standing(dependency: Dependency, namespace: str, row: Resource | None) -> Standing:
    key, condition = object_key(dependency.kind, dependency.name, namespace), dependency.condition
    if row is None:
        return Standing(key, condition, State.MISSING, "is not there")
    if row.deleted_at_s is not None:
        return Standing(key, condition, State.MISSING, "is being deleted")
    status: Mapping[str, Any] = json.loads(row.status or "{}")
    phase = status.get("phase")
    if status.get("observedGeneration") != row.generation:
        stale = "has changed since, and runs again" if phase in TERMINAL_PHASES else "has not begun"
        return Standing(key, condition, State.WAITING, stale)
    if phase not in TERMINAL_PHASES:
        return Standing(key, condition, State.WAITING, f"is {phase or Phase.PENDING.value}")
    if condition == "Finished" or phase == _phase_of(condition):
        return Standing(key, condition, State.MET, f"is {phase}", row.generation)
    if phase == Phase.SKIPPED:
        return Standing(key, condition, State.SKIPPED, "was skipped")
    text = message_of(str(status.get("message") or ""))
    ended = "failed" if phase == Phase.FAILED else "succeeded"
    return Standing(key, condition, State.FAILED, f"{ended}: {text}" if text else ended)


def _phase_of(condition: str) -> Phase:
    return Phase.FAILED if condition == "Failed" else Phase.SUCCEEDED


def blocked(found: Sequence[Standing], on_failed: str | None) -> Lacking | None:
    """What keeps work with these dependencies from beginning; None where all of them are met.

    on_failed: `Fail`, `Skip` or nothing: then work for the case that a dependency fails is skipped
    where it did not, and all else fails. What one that was skipped leaves undone is nobody's
    failure, so it is skipped as well.
    """
    for state in (State.FAILED, State.SKIPPED):
        those = [it for it in found if it.state is state]
        # What went wrong counts more than what did not fail.
        ended = next((it for it in those if it.condition != "Failed"), next(iter(those), None))
        if ended is not None:
            return _for_good(ended, on_failed)
    open_ = [it for it in found if it.state is not State.MET]
    if not open_:
        return None
    missing = next((it for it in open_ if it.state is State.MISSING), None)
    text = "; ".join(f"{_wanted(it)}, which {it.why}" for it in open_[:TOLD_MAX])
    more = len(open_) - TOLD_MAX
    text = f"waits for {text}" + (f"; and {more} more" if more > 0 else "")
    if missing is not None:
        return Lacking(with_hint(text, f"apply {missing.key}"), reason=MISSING)
    hint = f"it goes on by itself then; `fleetctl describe {open_[0].key}` shows how far that is"
    return Lacking(with_hint(text, hint), reason=AWAITS)


def _for_good(ended: Standing, on_failed: str | None) -> Lacking:
    text = f"it waited for {_wanted(ended)}, which {ended.why}"
    if on_failed is None and ended.state is State.FAILED and ended.condition == "Failed":
        return Lacking(text, for_good=True, reason=FAILED, skips=True)
    hint = f"mend {ended.key} and apply it; then apply this again"
    if ended.state is State.SKIPPED:
        return Lacking(with_hint(text, hint), for_good=True, reason=SKIPPED, skips=True)
    skips = on_failed == "Skip"
    return Lacking(with_hint(text, hint), for_good=True, reason=FAILED, skips=skips)


def _wanted(it: Standing) -> str:
    return f"{it.key} {_WANTED[it.condition]}"

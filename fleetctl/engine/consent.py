"""What a person must allow before it is stored: running work or data that would be destroyed.

Called between propose and commit. The one who asks is the CLI; without a terminal nobody asks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from controllers.impact import spent_usd, worked_s
from controllers.model import Resource, Run
from fleetctl.engine.changes import PRUNED, Change
from fleetctl.errors import Refused
from specs.kinds import KINDS

PATHS_SHOWN_MAX = 3


class NeedsConsent(Refused):
    """Certain: nothing was stored. `losses` says what would be lost, one sentence an object."""

    def __init__(self, losses: Sequence[str], *, hint: str) -> None:
        super().__init__("\nerror: ".join(losses), hint=hint)
        self.losses = tuple(losses)


def check(changes: Sequence[Change], approved: Collection[str], now_s: float) -> None:
    """Raises NeedsConsent when work or data would be lost beyond what is approved.

    approved: names of runs and keys of objects that a person has seen going, in a saved plan.
    """
    losses: list[str] = []
    spares = False
    for change in changes:
        doomed = [run for run in _destroyed(change) if run.name not in approved]
        if doomed:
            losses.append(f"{change.key}: {_cause(change)}{_loss(change, doomed, now_s)}")
            spares = spares or (change.impact is not None and change.impact.spared > 0)
        if change.outcome == PRUNED and deletes_data(change.after) and change.key not in approved:
            losses.append(f"{change.key}: pruning it deletes its data (deletionPolicy is Delete)")
    if losses:
        rest = ", or --rollout=FinishRunning to let running work end first" if spares else ""
        raise NeedsConsent(losses, hint=f"add --yes to do it all the same{rest}")


def approvable(changes: Sequence[Change]) -> list[str]:
    """What a plan shows as lost, so that its apply need not ask again: see `check`."""
    runs = [run.name for change in changes for run in _destroyed(change)]
    volumes = [it.key for it in changes if it.outcome == PRUNED and deletes_data(it.after)]
    return sorted([*runs, *volumes])


def deletes_data(resource: Resource) -> bool:
    """Whether the data of a volume goes with it."""
    if resource.kind != "Volume":
        return False
    return bool(json.loads(resource.spec).get("deletionPolicy") == "Delete")


def _destroyed(change: Change) -> tuple[Run, ...]:
    found = change.impact
    if found is None:
        return ()
    if change.outcome == PRUNED:
        everything = (*found.going_on, *found.replaced, *found.cancelled)
        return tuple(run for run in everything if run.started_at_s is not None)
    return found.destroyed


def _cause(change: Change) -> str:
    paths = [field.path for field in change.fields]
    if not paths:
        return ""
    shown = ", ".join(paths[:PATHS_SHOWN_MAX])
    rest = f" and {len(paths) - PATHS_SHOWN_MAX} more" if len(paths) > PATHS_SHOWN_MAX else ""
    return f"{shown}{rest} changed: "


def _loss(change: Change, doomed: Sequence[Run], now_s: float) -> str:
    unit = KINDS[change.after.kind].unit + ("s" if len(doomed) != 1 else "")
    replaced = {run.name for run in change.impact.replaced} if change.impact is not None else set()
    again = change.outcome != PRUNED and all(run.name in replaced for run in doomed)
    fate = "replaced" if again else "stopped"
    cost = spent_usd(doomed, now_s)
    work = f"{worked_s(doomed, now_s):,.0f} s of work"
    them = "it" if len(doomed) == 1 else "them"
    said = work if not cost else f"{work}, about ${cost:,.2f} already spent on {them}"
    return f"{len(doomed):,} running {unit} would be {fate} ({said})"

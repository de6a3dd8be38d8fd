"""The consent that a user must give before a change is stored that destroys running work or data,
or that starts far more work than the user is likely to want.

Called between propose and commit. The CLI asks the question; without a terminal there is no
question.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from fleetctl.apply.change import CONFIGURED, CREATED, PRUNED, Change
from fleetctl.common.errors import Refused
from fleetctl.controllers.model import Resource, Run
from fleetctl.controllers.reuse.impact import spent_usd, worked_s
from fleetctl.specs.builtin import DEFAULT_PROVIDER
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.tracking.kept_by import KEPT_BY, MADE_FROM

PATHS_SHOWN_MAX = 3
_NOTES = (KEPT_BY, MADE_FROM)
# Finished work that is repeated in less time than a user needs to answer needs no consent.
REDONE_S_MIN = 10.0

# A file of rows may hold a million; a larger number is rather a slip of the pen.
UNITS_UNASKED_MAX = 1_000_000
_OF_TOTALS = ("tasks", "completions", "search", "trials")


class NeedsConsent(Refused):
    """Raised before the store was written, for certain. `losses`: one sentence an object on the
    work or data that it would lose."""

    def __init__(self, losses: Sequence[str], *, hint: str) -> None:
        super().__init__("\nerror: ".join(losses), hint=hint)
        self.losses = tuple(losses)


class LossType(StrEnum):
    """The sort of a loss: running work, the time of finished work, data; or a question without a
    loss."""

    AGAIN = "again"
    RUNNING = "running"
    DATA = "data"
    ASKED = "asked"


class ExpectedLoss(NamedTuple):
    """One loss. spares: `rollout: FinishRunning` would let some of the work end first."""

    sort: LossType
    sentence: str
    spares: bool = False


def losses_of(
    change: Change,
    approved: Collection[str],
    now_s: float,
) -> Iterator[ExpectedLoss]:
    """Yields an object's losses beyond the approved ones; see `check_consent`."""
    if _is_rerun_costly(change) and _name_repeat(change) not in approved:
        yield ExpectedLoss(
            LossType.AGAIN, f"{change.key}: {_describe_cause(change)}{_describe_rerun(change)}"
        )
    doomed = [run for run in change.destroyed if run.name not in approved]
    if doomed:
        spares = change.impact is not None and change.impact.spared > 0
        text = f"{change.key}: {_describe_cause(change)}{_describe_loss(change, doomed, now_s)}"
        yield ExpectedLoss(LossType.RUNNING, text, spares)
    if change.outcome == PRUNED and deletes_data(change.after) and change.key not in approved:
        text = f"{change.key}: pruning it deletes its data (deletionPolicy is Delete)"
        yield ExpectedLoss(LossType.DATA, text)
    for name, question in ask_about(change):
        if name not in approved:
            yield ExpectedLoss(LossType.ASKED, question)


def check_consent(
    changes: Sequence[Change],
    approved: Collection[str],
    now_s: float,
) -> None:
    """Raises NeedsConsent when work or data would be lost beyond the approved losses.

    approved: names of runs and keys of objects that the user has seen as lost, in a saved plan.
    """
    losses = [it for change in changes for it in losses_of(change, approved, now_s)]
    if losses:
        rest = ", or --rollout=FinishRunning to let running work end first"
        rest = rest if any(it.spares for it in losses) else ""
        if any(it.sort is LossType.AGAIN for it in losses):
            rest += ", or --keep-finished to leave finished work as it is"
        raise NeedsConsent(
            [it.sentence for it in losses], hint=f"add --yes to do it all the same{rest}"
        )


def list_approvable(changes: Sequence[Change]) -> list[str]:
    """Returns the names of the losses that a plan shows, so that its apply need not ask again: see
    `check`."""
    runs = [run.name for change in changes for run in change.destroyed]
    volumes = [it.key for it in changes if it.outcome == PRUNED and deletes_data(it.after)]
    again = [_name_repeat(change) for change in changes if _is_rerun_costly(change)]
    asked = [name for change in changes for name, _ in ask_about(change)]
    return sorted([*runs, *volumes, *again, *asked])


def deletes_data(resource: Resource) -> bool:
    """Returns true for a volume whose data is deleted with it."""
    if resource.kind != "Volume":
        return False
    return bool(json.loads(resource.spec).get("deletionPolicy") == "Delete")


def _is_rerun_costly(change: Change) -> bool:
    """Returns true where finished work would be repeated that took time or money."""
    if change.impact is None or change.outcome not in (CREATED, CONFIGURED) or change.rerun:
        return False  # a rerun that the user named needs no consent
    again = change.impact.again
    return again.units > 0 and (again.work_s >= REDONE_S_MIN or bool(again.usd))


def _name_repeat(change: Change) -> str:
    """Returns the name of the repeated work in an approval."""
    return f"{change.key}#again"


def _describe_rerun(change: Change) -> str:
    assert change.impact is not None
    again = change.impact.again
    unit = KINDS[change.after.kind].unit + ("s" if again.units != 1 else "")
    cost = "" if not again.usd else f" and ${again.usd:,.2f}"
    return f"{again.units:,} finished {unit}, {duration_text(again.work_s)}{cost}, would run again"


def duration_text(seconds: float) -> str:
    """Returns `12 min`, `40 s` or `3 h`: no more precise than a user needs to weigh a loss."""
    for size_s, word in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:,.0f} {word}"
    return f"{seconds:,.0f} s"


def _describe_cause(change: Change) -> str:
    # Annotations that fleetctl itself writes (keeper, origin) are no change by a user.
    paths = [it.path for it in change.fields if not any(key in it.path for key in _NOTES)]
    if not paths:
        return ""
    shown = ", ".join(paths[:PATHS_SHOWN_MAX])
    rest = f" and {len(paths) - PATHS_SHOWN_MAX} more" if len(paths) > PATHS_SHOWN_MAX else ""
    return f"{shown}{rest} changed: "


def _describe_loss(
    change: Change,
    doomed: Sequence[Run],
    now_s: float,
) -> str:
    unit = KINDS[change.after.kind].unit + ("s" if len(doomed) != 1 else "")
    replaced = {run.name for run in change.impact.replaced} if change.impact is not None else set()
    again = change.outcome != PRUNED and all(run.name in replaced for run in doomed)
    fate = "replaced" if again else "stopped"
    cost = spent_usd(doomed, now_s)
    work = f"{worked_s(doomed, now_s):,.0f} s of work"
    them = "it" if len(doomed) == 1 else "them"
    message = work if not cost else f"{work}, about ${cost:,.2f} already spent on {them}"
    return f"{len(doomed):,} running {unit} would be {fate} ({message})"


def ask_about(change: Change) -> Iterator[tuple[str, str]]:
    """Yields the name in an approval, and a sentence."""
    if (question := _ask_about_count(change)) is not None:
        yield f"{change.key}#many", question
    if (question := _ask_about_left(change)) is not None:
        yield f"{change.key}#moves", question


def _ask_about_count(change: Change) -> str | None:
    count = change.impact.to_run if change.impact is not None else None
    if count is None or count <= UNITS_UNASKED_MAX:
        return None
    grown = any(field.path.startswith(_OF_TOTALS) for field in change.fields)
    if change.outcome != CREATED and not grown:
        return None  # they had consent when they were applied
    unit = KINDS[change.after.kind].unit
    return f"{change.key}: {count:,} {unit}s would run, more than {UNITS_UNASKED_MAX:,}"


def _ask_about_left(change: Change) -> str | None:
    before = change.before
    if change.after.kind != "Volume" or change.outcome != CONFIGURED or before is None:
        return None
    was = _read_provider(before.spec)
    will = _read_provider(change.after.spec)
    if was == will:
        return None
    return (
        f"{change.key}: its data stays on `{was}`, nothing of it is copied to `{will}`"
        f" (`fleetctl cp {change.key}:/ DIR` copies it here)"
    )


def _read_provider(spec: str) -> str:
    return str(json.loads(spec).get("provider") or DEFAULT_PROVIDER)

"""One object before and after an apply, and how that is told to people.

Made by propose.py; read by whatever shows, weighs or allows a change: the socket server, `plan`,
`diff`, dry runs, consent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetctl.controllers.model import Resource, Run
from fleetctl.controllers.reuse.impact import Impact
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.changes import FieldChange, field_changes
from fleetctl.tracking.annotations import NOTES, work_digest

CREATED, CONFIGURED, UNCHANGED, PRUNED = "created", "configured", "unchanged", "pruned"
FIELDS_SHOWN_MAX = 6
FIELDS_KEPT_MAX = 20
# Of these an event keeps that they changed, and not from what to what: values of `env` may be
# credentials, and programs may have them in their text.
_UNTOLD = frozenset(("env", "python", "script", "command", "args"))
_WORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_URL_USER = re.compile(r"//[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says of an object that does not meet it. deny: nothing is stored. exempt: until
    when and why it is let pass all the same.
    """

    policy: str
    message: str
    deny: bool
    exempt: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One object before and after. impact is None where no work hangs on the change."""

    outcome: str
    before: Resource | None
    after: Resource
    fields: tuple[FieldChange, ...] = ()
    impact: Impact | None = None
    note: str = ""
    asked_again: bool = False  # it was refused before, and is tried anew
    rerun: bool = False  # all that ended runs again, whatever is known
    verdicts: tuple[Verdict, ...] = ()  # of policies
    by: str = ""  # who changed what was there: a file, or a hand

    @property
    def destroyed(self) -> tuple[Run, ...]:
        """Runs whose work would be lost."""
        found = self.impact
        if found is None:
            return ()
        if self.outcome == PRUNED:
            everything = (*found.going_on, *found.replaced, *found.cancelled)
            return tuple(run for run in everything if run.started_at_s is not None)
        return found.destroyed

    @property
    def key(self) -> str:
        return self.after.key

    @property
    def message(self) -> str:
        """A sentence for people, or nothing."""
        shown = [field.short for field in self.fields[:FIELDS_SHOWN_MAX]]
        if len(self.fields) > FIELDS_SHOWN_MAX:
            shown.append(f"and {len(self.fields) - FIELDS_SHOWN_MAX} more")
        parts = [", ".join(shown), self.note, self._counts()]
        return "; ".join(text for text in parts if text)

    @property
    def record(self) -> str:
        """What is kept of it in an event: as `message`, with more fields and nothing secret."""
        fields = [_recorded(field) for field in self.fields[:FIELDS_KEPT_MAX]]
        if len(self.fields) > FIELDS_KEPT_MAX:
            fields.append(f"and {len(self.fields) - FIELDS_KEPT_MAX} more")
        parts = [", ".join(fields), self.note, self._counts(), self.by and f"by {self.by}"]
        parts += (
            f"exempt from policy/{it.policy} {it.exempt}: {it.message}"
            for it in self.verdicts
            if it.exempt
        )
        message = "; ".join(text for text in parts if text)
        return f"{self.key} {self.outcome}" + (f": {message}" if message else "")

    def _counts(self) -> str:
        found = self.impact
        if found is None:
            return ""
        if self.outcome == CREATED:
            return _all_new(found, self.after.kind)
        if self.outcome == PRUNED:
            live = len(found.going_on) + len(found.replaced) + len(found.cancelled)
            return f"{live:,} stopped" if live else ""
        parts = [f"{found.kept:,} kept"] if found.kept else []
        if kept := len(found.history.kept_outdated):
            parts.append(f"{kept:,} of them outdated")
        parts += [f"{found.cached:,} cached"] if found.cached else []
        if found.going_on:
            parts.append(f"{len(found.going_on):,} running on")
        if found.again.units:
            parts.append(f"{found.again.units:,} to run again")
        fresh = None
        if found.to_run is not None:
            fresh = found.to_run - len(found.replaced) - found.again.units
        if fresh:
            parts.append(f"{fresh:,} to run")
        if found.replaced:
            parts.append(f"{len(found.replaced):,} replaced")
        if found.cancelled:
            parts.append(f"{len(found.cancelled):,} cancelled")
        return ", ".join(parts)


def replaced_by(change: Change, among: Sequence[Change]) -> list[Resource]:
    """The objects whose place a new one takes: those of its kind that the same apply prunes."""
    if change.outcome != CREATED or not KINDS[change.after.kind].runs:
        return []
    of = (change.after.kind, change.after.namespace)
    pruned = (it.after for it in among if it.outcome == PRUNED)
    return [it for it in pruned if (it.kind, it.namespace) == of]


def _recorded(field: FieldChange) -> str:
    if not _UNTOLD.isdisjoint(_WORDS.findall(field.path)):
        return field.path
    if any(_holds_untold(value) for value in (field.before, field.after)):
        return field.path
    return _URL_USER.sub("//***@", field.short)


def _holds_untold(value: object) -> bool:
    if isinstance(value, dict):
        return not _UNTOLD.isdisjoint(value) or any(map(_holds_untold, value.values()))
    return isinstance(value, list) and any(map(_holds_untold, value))


def differences(before: Resource, after: Resource) -> list[FieldChange]:
    """What differs between two states of one object, as a person wrote it."""
    return [
        *field_changes(json.loads(before.spec), json.loads(after.spec)),
        *field_changes(before.labels, after.labels, "labels"),
        *field_changes(_written(before), _written(after), "annotations"),
    ]


def _written(resource: Resource) -> dict[str, str]:
    """The annotations that a person wrote."""
    return {key: text for key, text in resource.annotations.items() if key not in NOTES}


def outcomes_of(changes: Sequence[Change]) -> list[Mapping[str, str]]:
    """One entry an object, as a reply tells it."""
    return [{"key": it.key, "outcome": it.outcome, "message": it.message} for it in changes]


def works_of(changes: Sequence[Change]) -> dict[str, list[object]]:
    """The generation and the digest of the work of each object, by key."""
    return {
        it.key: [
            it.after.generation,
            work_digest(it.after.kind, json.loads(it.after.spec), it.after.annotations),
        ]
        for it in changes
        if it.outcome != PRUNED
    }


def _all_new(found: Impact, kind: str) -> str:
    """`500 tasks: 412 cached, 88 to run`; nothing while nobody knows how many there are."""
    if found.total is None:
        return ""
    units = _units(found.total, kind)
    return (
        f"{units}: {found.cached:,} cached, {found.to_run or 0:,} to run" if found.cached else units
    )


def _units(count: int, kind: str) -> str:
    unit = KINDS[kind].unit
    return f"{count:,} {unit}" + ("s" if count != 1 else "")

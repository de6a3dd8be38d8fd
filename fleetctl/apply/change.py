"""One object before and after an apply, and the sentences and records that describe the change.

Made by propose.py; read by each part that shows, weighs or allows a change: the socket server,
`plan`, `diff`, dry runs, consent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetctl.apply.file_changes import list_file_changes, split_files
from fleetctl.common.finding import Finding, Severity
from fleetctl.common.redaction import without_credentials
from fleetctl.controllers.model import Resource, Run
from fleetctl.controllers.reuse.impact import Impact
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.changes import FieldChange, field_changes
from fleetctl.tracking.annotations import NOTES, work_digest

CREATED = "created"
CONFIGURED = "configured"
UNCHANGED = "unchanged"
PRUNED = "pruned"
FIELDS_SHOWN_MAX = 6
FIELDS_KEPT_MAX = 20
# An event records that these fields changed, but not their values: values of `env` may be
# credentials, and programs may have them in their text.
_UNTOLD = frozenset(("env", "python", "script", "command", "args"))
_WORDS = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class PolicyVerdict(Finding):
    """The verdict of a policy on an object that does not meet it. exempt: until when, and why, the
    object passes in spite of the policy.
    """

    policy: str = ""
    exempt: str = ""

    @property
    def deny(self) -> bool:
        return self.severity is Severity.DENIED


@dataclass(frozen=True, slots=True)
class Change:
    """One object before and after. impact is None where the change affects no work."""

    outcome: str
    before: Resource | None
    after: Resource
    fields: tuple[FieldChange, ...] = ()
    impact: Impact | None = None
    note: str = ""
    asked_again: bool = False  # the object was refused before, and is tried again
    rerun: bool = False  # every ended run is repeated, whatever is known of its work
    verdicts: tuple[PolicyVerdict, ...] = ()  # of policies
    conflict: Finding | None = None  # why the stored object cannot be changed so
    by: str = ""  # the Source or user that made the previous state

    @property
    def destroyed(self) -> tuple[Run, ...]:
        """Returns the runs whose work would be lost."""
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
        """Returns the change as a sentence for a user; empty where there is none to show."""
        shown = [field.short for field in self.fields[:FIELDS_SHOWN_MAX]]
        if len(self.fields) > FIELDS_SHOWN_MAX:
            shown.append(f"and {len(self.fields) - FIELDS_SHOWN_MAX} more")
        parts = [", ".join(shown), self.note, self._counts()]
        return "; ".join(text for text in parts if text)

    @property
    def record(self) -> str:
        """Returns the text that an event stores of the change: as `message`, with more fields and
        no secret."""
        fields = [_record_field(field) for field in self.fields[:FIELDS_KEPT_MAX]]
        if len(self.fields) > FIELDS_KEPT_MAX:
            fields.append(f"and {len(self.fields) - FIELDS_KEPT_MAX} more")
        parts = [", ".join(fields), self.note, self._counts(), self.by and f"by {self.by}"]
        parts += (
            f"exempt from policy/{it.policy} {it.exempt}: {it.what}"
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
            if live:
                return f"{live:,} stopped"
            return ""
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
    """Returns the objects that a new one replaces: objects of its kind that the same apply
    prunes."""
    if change.outcome != CREATED or not KINDS[change.after.kind].runs:
        return []
    of = (change.after.kind, change.after.namespace)
    pruned = (it.after for it in among if it.outcome == PRUNED)
    return [it for it in pruned if (it.kind, it.namespace) == of]


def _record_field(field: FieldChange) -> str:
    if not _UNTOLD.isdisjoint(_WORDS.findall(field.path)):
        return field.path
    if any(_holds_untold(value) for value in (field.before, field.after)):
        return field.path
    return without_credentials(field.short)


def _holds_untold(value: object) -> bool:
    if isinstance(value, dict):
        return not _UNTOLD.isdisjoint(value) or any(map(_holds_untold, value.values()))
    return isinstance(value, list) and any(map(_holds_untold, value))


def list_differences(before: Resource, after: Resource) -> list[FieldChange]:
    """Returns the differences between two states of an object, in the fields that a user wrote."""
    old, old_files = split_files(json.loads(before.spec))
    new, new_files = split_files(json.loads(after.spec))
    return [
        *field_changes(old, new),
        *list_file_changes(old_files, new_files),
        *field_changes(before.labels, after.labels, "labels"),
        *field_changes(_user_annotations(before), _user_annotations(after), "annotations"),
    ]


def _user_annotations(resource: Resource) -> dict[str, str]:
    """Returns the annotations that the user wrote."""
    return {key: text for key, text in resource.annotations.items() if key not in NOTES}


def outcomes_of(changes: Sequence[Change]) -> list[Mapping[str, str]]:
    """Returns one entry an object, as a reply reports it."""
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
    """Returns `500 tasks: 412 cached, 88 to run`; empty while the number of units is unknown."""
    if found.total is None:
        return ""
    units = _format_units(found.total, kind)
    if found.cached:
        return f"{units}: {found.cached:,} cached, {found.to_run or 0:,} to run"
    return units


def _format_units(count: int, kind: str) -> str:
    unit = KINDS[kind].unit
    return f"{count:,} {unit}" + ("s" if count != 1 else "")

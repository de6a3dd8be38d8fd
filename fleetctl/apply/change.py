"""One object before and after an apply: the sentences and records that describe the change, the
files of its tasks by name, and the renames, in which the same object goes on under a new name.

An object counts as renamed where some of its work counts for the new manifest; otherwise one
object is created and the other one is pruned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fleetctl.common.errors import FleetctlError
from fleetctl.common.finding import Finding, Severity
from fleetctl.common.text import without_credentials
from fleetctl.controllers.kinds.registry import choose_controller
from fleetctl.controllers.model import Resource, Run
from fleetctl.controllers.reuse.impact import Impact
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.changes import UNSET, FieldChange, field_changes
from fleetctl.tracking.annotations import NOTES, SCHEDULED_BY, pins_of, work_digest
from fleetctl.tracking.source_state import names_text

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


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

_AT = ("tasks", "files")
Path = tuple[str, ...]

TRIED_MAX = 20  # candidates for one manifest; each is read with all its attempts


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
            return _all_new(found, KINDS[self.after.kind].unit_of(self.after.spec))
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


def list_replaced(change: Change, among: Sequence[Change]) -> list[Resource]:
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


def _all_new(found: Impact, unit: str) -> str:
    """Returns `500 tasks: 412 cached, 88 to run`; empty while the number of units is unknown."""
    if found.total is None:
        return ""
    units = _format_units(found.total, unit)
    if found.cached:
        return f"{units}: {found.cached:,} cached, {found.to_run or 0:,} to run"
    return units


def _format_units(count: int, unit: str) -> str:
    return f"{count:,} {unit}" + ("s" if count != 1 else "")


def split_files(spec: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Path, dict[str, Any]]]:
    """Returns (the spec without lists of files, those lists by their path): the spec's own, and
    those of the objects that it makes.
    """
    rest = dict(spec)
    found = {}
    for within in ((), ("template", "spec")):
        holder = rest
        for key in (*within, _AT[0]):
            inner = holder.get(key)
            if not isinstance(inner, Mapping):
                break
            holder[key] = holder = dict(inner)
        else:
            if isinstance(holder.get(_AT[1]), Mapping):
                found[(*within, *_AT)] = holder.pop(_AT[1])
    return rest, found


def list_file_changes(
    before: Mapping[Path, Mapping[str, Any]], after: Mapping[Path, Mapping[str, Any]]
) -> Iterator[FieldChange]:
    """Yields a change for each list that differs."""
    for path in dict.fromkeys((*before, *after)):
        old = before.get(path)
        new = after.get(path)
        if old == new:
            continue
        name = ".".join(path)
        if old is None or new is None:
            count = len(new.get("found") or ()) if new is not None else 0
            text = "no longer its tasks" if new is None else _format_count(count)
            yield FieldChange(name, old or UNSET, new or UNSET, text)
            continue
        for key in ("chunk", "names", "volume", "glob"):
            was = old.get(key, UNSET)
            now = new.get(key, UNSET)
            if was != now:
                yield FieldChange(f"{name}.{key}", was, now)
        if text := describe_files(_list_contents(old), _list_contents(new)):
            yield FieldChange(name, old, new, text)


def describe_files(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Returns `1 added: d.txt; 1 removed: a.txt`; empty for no difference. before, after: contents
    by path.
    """
    added = dict.fromkeys(it for it in after if it not in before)
    removed = dict.fromkeys(it for it in before if it not in after)
    edited = [it for it in after if it in before and before[it] != after[it]]
    left: dict[str, list[str]] = {}
    for path in removed:
        left.setdefault(before[path], []).append(path)
    renamed = []
    for path in list(added):
        if old := left.get(after[path]):
            renamed.append(f"{old[0]} -> {path}")
            del removed[old.pop(0)], added[path]
    parts = {"added": [*added], "edited": edited, "renamed": renamed, "removed": [*removed]}
    told = (f"{len(it):,} {word}: {names_text(it)}" for word, it in parts.items() if it)
    return "; ".join(told)


def _list_contents(files: Mapping[str, Any]) -> dict[str, str]:
    prefix = "" if files["base"] == "." else f"{files['base'].rstrip('/')}/"
    found: Sequence[Mapping[str, Any]] = files.get("found") or ()
    return {f"{prefix}{it['path']}": _content_of(it) for it in found}


def _content_of(found: Mapping[str, Any]) -> str:
    """Returns a text that is equal for equal files. A file of a volume stands for its path as well,
    so that none of them is a renamed one.
    """
    known = found.get("sha256")
    if known is None and found.get("digest"):
        return f"{found['path']} {found['digest']}"
    if known is None:
        return f"{found['path']} {found['bytes']} {found.get('modified')}"
    return str(known)


def _format_count(number: int) -> str:
    return f"{number:,} file{'s'[: number != 1]}"


class Leaving:
    """The objects that the apply would prune. impact: returns the impact on an object whose name
    alone changes. taken: uid -> old key of the objects that continue under a new name.
    """

    def __init__(
        self, rows: Iterable[Resource], impact: Callable[[Resource], Impact | None]
    ) -> None:
        self._impact = impact
        self._rows = {
            it.uid: it for it in rows if KINDS[it.kind].runs and SCHEDULED_BY not in it.annotations
        }
        self.taken: dict[str, str] = {}

    def renamed(
        self,
        fresh: Change,
        manifest: Manifest,
        make: Callable[[Resource], Change],
    ) -> Change | None:
        """Returns the change of the object that the manifest renames; None for a new one. fresh:
        the change that creates a new one. make: the change of an object that already had the new
        name.
        """
        best = None
        worth = 0
        for row in self._alike(fresh, manifest):
            try:
                change = make(replace(row, name=manifest.name))
            except FleetctlError:
                continue  # such as a W&B sweep with another search, which it can never become
            if change.impact is None:
                change = replace(change, impact=self._impact(change.after))
            found = change.impact
            counts = 0 if found is None else found.kept + len(found.going_on)
            if counts > worth:
                best = (row, change)
                worth = counts
        if best is None:
            return None
        row, change = best
        del self._rows[row.uid]
        self.taken[row.uid] = row.key
        name = FieldChange("metadata.name", row.name, manifest.name)
        return replace(
            change,
            outcome=CONFIGURED,
            before=row,
            fields=(name, *change.fields),
        )

    def _alike(self, fresh: Change, manifest: Manifest) -> Iterator[Resource]:
        """Yields objects of equal content, at least in one stage; those with the very spec
        first."""
        kind = choose_controller(manifest.kind, manifest.spec)
        if kind is None or not self._rows:
            return
        contents = set(kind.contents_of(manifest.spec, pins_of(fresh.after.annotations)))
        place = (manifest.kind, manifest.namespace)
        alike = [
            it
            for it in self._rows.values()
            if (it.kind, it.namespace) == place
            and not contents.isdisjoint(json.loads(it.status or "{}").get("contents") or ())
        ]
        alike.sort(key=lambda it: it.spec != fresh.after.spec)
        yield from alike[:TRIED_MAX]

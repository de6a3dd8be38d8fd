"""A stored object as screens see it, and the document that `-o json` prints. Pure.

Status is camelCase JSON as the engine wrote it; any key may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.common.author import AUTHOR
from fleetctl.common.text import YEAR_10000_S, format_timestamp, without_credentials
from fleetctl.controllers.status_keys import BOOKKEEPING, Count, Map, Text, Time
from fleetctl.specs.kinds.registry import API_VERSION, Kind, unit_called
from fleetctl.specs.values.namespaces import object_key
from fleetctl.views.kinds import kind_named

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import ResourceRow, RunRow

PENDING, RUNNING, SUSPENDED, SUCCEEDED, FAILED, SKIPPED = (
    "Pending", "Running", "Suspended", "Succeeded", "Failed", "Skipped",
)  # fmt: skip
DELETING = "Deleting"
READY = "Ready"
NONE = "-"  # an empty cell
# Reasons of an object that makes progress.
MOVING = ("InProgress", "Finishing")
# Keys of a status that hold seconds since the epoch; documents show them as Kubernetes shows times.
TIME_KEYS = (
    "since",
    "until",
    "startTime",
    "completionTime",
    "firstResultTime",
    "activeSince",
    "workingSince",
    "lastTransitionTime",
    "lastScheduleTime",
    "lastSuccessfulTime",
    "nextScheduleTime",
    "decidedUntil",
    "nextTime",
    "lastFailureTime",
    "appliedAt",
    "attemptedAt",
    "failingSince",
)


class View(NamedTuple):
    """A stored row with its parsed status; the spec is read on demand."""

    resource: ResourceRow
    kind: Kind
    status: Mapping[str, object]
    spec_text: Callable[[], str]

    @property
    def key(self) -> str:
        return object_key(self.resource.kind, self.resource.name, self.resource.namespace)

    @property
    def phase(self) -> str:
        """Returns the status word that lists show."""
        if self.resource.deleted_at_s is not None:
            return DELETING
        return self.text("phase") or PENDING

    @property
    def author(self) -> str:
        """Returns the user of a team's server, or the agent, that changed it last; empty for the
        machine's own user."""
        return self.resource.annotations.get(AUTHOR, "")

    @property
    def over(self) -> bool:
        """Returns true where the newest spec has come to its end, either way."""
        return self.phase in (SUCCEEDED, FAILED, SKIPPED) and self.current

    @property
    def current(self) -> bool:
        """Returns true where the status is of the newest spec."""
        return self.count("observedGeneration") >= self.resource.generation

    @property
    def done(self) -> str:
        """Returns `431/500`, or `431/?` while the total is unknown. A trial that was ended early is
        done.
        """
        total = self.status.get("total")
        done = self.count("succeeded") + self.count("stopped")
        return f"{done}/{total if isinstance(total, int) else '?'}"

    @property
    def settled(self) -> int:
        """Returns the number of finished units, whatever their outcome."""
        return self.count("succeeded") + self.count("failed") + self.count("stopped")

    def time_s(self, key: Time) -> float | None:
        """Returns a time of a status, where it is one that a clock can show."""
        value = self.status.get(key)
        if isinstance(value, (int, float)) and 0 <= value < YEAR_10000_S:
            return value
        return None

    def worked_s(self, now_s: float) -> float | None:
        """Returns the seconds in which at least one attempt ran; None where none ever did, or it
        was not recorded."""
        before_s = self.time_s("workedSeconds")
        since_s = self.time_s("workingSince")
        if before_s is None:
            start_s = self.time_s("startTime")
            end_s = self.time_s("completionTime")
            if start_s is None or end_s is None:
                return None
            return max(0.0, end_s - start_s)
        return before_s + (0.0 if since_s is None else max(0.0, now_s - since_s)) or None

    @property
    def starting(self) -> int:
        """Returns units that are tried while no run of the object runs: no machine may ever take
        them."""
        if self.phase == PENDING:
            return self.count("starting")
        return 0

    @property
    def active(self) -> int:
        """Returns units at work; units that only try to start do not count as long as no unit
        runs."""
        return self.count("active") - self.starting

    @property
    def providers(self) -> list[str]:
        """Returns the names of providers where it runs, or may run by its placement."""
        places = self.status.get("placement")
        listed = [as_mapping(it) for it in places] if isinstance(places, list) else []
        return [*self.map("where"), *(str(it.get("provider")) for it in listed)]

    @property
    def waiting_on(self) -> list[str]:
        """Returns sentences on the obstacles that the object waits for, the most useful first."""
        waiting = self.status.get("waitingOn")
        if isinstance(waiting, list):
            return [str(line) for line in waiting]
        return []

    @property
    def conditions(self) -> list[Mapping[str, object]]:
        found = self.status.get("conditions")
        if isinstance(found, list):
            return [c for c in found if isinstance(c, dict)]
        return []

    def text(self, key: Text) -> str:
        value = self.status.get(key)
        if isinstance(value, str):
            return value
        return ""

    def count(self, key: Count) -> int:
        value = self.status.get(key)
        if isinstance(value, int):
            return value
        return 0

    def map(self, key: Map) -> Mapping[str, object]:
        return as_mapping(self.status.get(key))

    def spec(self) -> Mapping[str, object]:
        return parse_document(self.spec_text())

    def name_unit(self, run: RunRow) -> str:
        """Returns the name of a piece of its work, for users: `task 3`, `stage train`."""
        spec = self.spec_text() if self.kind.unit_in else "{}"
        return unit_called(self.kind.name, run.index, run.params, spec)

    def shown_spec(self) -> Mapping[str, object]:
        """Returns the spec for people: earlier versions stored addresses of sinks with tokens."""
        return as_mapping(_mask_sinks(self.spec()))


def _mask_sinks(value: object) -> object:
    """Returns a part of a spec with each URL of `notify` masked, also in templates of objects."""
    if isinstance(value, list):
        return [_mask_sinks(it) for it in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _mask_urls(it) if name == "notify" and isinstance(it, list) else _mask_sinks(it)
        for name, it in value.items()
    }


def _mask_urls(value: object) -> object:
    if isinstance(value, list):
        return [_mask_urls(it) for it in value]
    if isinstance(value, dict):
        return {
            name: without_credentials(it)
            if name == "url" and isinstance(it, str)
            else _mask_urls(it)
            for name, it in value.items()
        }
    return value


def as_mapping(value: object) -> Mapping[str, object]:
    if isinstance(value, dict):
        return value
    return {}


def parse_document(text: str) -> Mapping[str, object]:
    """Parses a stored document; an unreadable one is empty, so that only its own object suffers."""
    try:
        return as_mapping(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return {}


def build_view(resource: ResourceRow, spec_text: Callable[[], str]) -> View:
    status = parse_document(resource.status)
    return View(resource, kind_named(resource.kind), status, spec_text)


PARTS = ("metadata", "spec", "status")


def build_document(
    seen: View,
    now_s: float,
    *,
    parts: Collection[str] = PARTS,
) -> dict[str, object]:
    """Returns the object as a manifest with a status: the output of `-o json` and `-o yaml`. now_s:
    end of the duration of running ones.

    Lists of thousands that need only a part are spared the others.
    """
    shown: dict[str, object] = {"apiVersion": API_VERSION, "kind": seen.resource.kind}
    if "metadata" in parts:
        shown["metadata"] = _build_metadata(seen.resource)
    if "spec" in parts:
        shown["spec"] = seen.shown_spec()
    if "status" in parts:
        shown["status"] = _build_status(seen, now_s)
    return shown


def _build_metadata(resource: ResourceRow) -> dict[str, object]:
    # A cluster-wide object has no namespace; the others always show theirs, as kubectl's do.
    named = {"namespace": resource.namespace} if kind_named(resource.kind).namespaced else {}
    shown = {key: it for key, it in resource.annotations.items() if key not in BOOKKEEPING}
    metadata: dict[str, object] = {
        "name": resource.name,
        **named,
        "labels": resource.labels,
        "annotations": shown,
        "uid": resource.uid,
        "generation": resource.generation,
        "version": resource.version,
        "creationTimestamp": format_timestamp(resource.created_at_s),
    }
    if resource.deleted_at_s is not None:
        metadata["deletionTimestamp"] = format_timestamp(resource.deleted_at_s)
    return metadata


def _build_status(seen: View, now_s: float) -> dict[str, object]:
    status = {
        "phase": PENDING,
        "active": 0,
        "succeeded": 0,
        "failed": 0,
        **format_times(seen.status),
    }
    if newest := seen.map("checkpoint"):
        at_s = newest.get("at")
        shown = format_timestamp(at_s) if isinstance(at_s, (int, float)) else at_s
        status["checkpoint"] = {**newest, "at": shown}
    if kept := seen.map("backup"):
        status["backup"] = format_times(kept)
    if seen.conditions:
        status["conditions"] = [format_times(condition) for condition in seen.conditions]
    if seen.resource.deleted_at_s is not None:
        status["phase"] = DELETING
    if (worked_s := seen.worked_s(now_s)) is not None:
        status["durationSeconds"] = round(worked_s, 3)
    return status


def format_times(values: Mapping[str, object]) -> dict[str, object]:
    """Returns the status with every known time written out; times that are not set are left out."""
    shown = dict(values)
    for key in TIME_KEYS:
        at_s = shown.get(key)
        if isinstance(at_s, (int, float)):
            shown[key] = format_timestamp(at_s)
        elif at_s is None:
            shown.pop(key, None)
    return shown


def explain_status(seen: View) -> str:
    """Returns a sentence on why the object stands still or ended badly; empty when all is well."""
    if not seen.status:
        if seen.phase == DELETING:
            return ""
        return "no controller has looked at it yet"
    reason = seen.text("reason")
    message = seen.text("message")
    waiting = seen.waiting_on[0] if seen.waiting_on else ""
    if seen.phase in (SUCCEEDED, READY):
        return ""
    if reason in MOVING:
        return seen.text("warning")
    if seen.phase == DELETING:
        return waiting
    if seen.phase in (FAILED, SKIPPED):
        return _join_reason(reason, message or _failed_condition(seen))
    # A reason that only reads "waiting" adds nothing to a sentence with the cause.
    return _join_reason("" if reason == "Waiting" else reason, message or waiting)


def _join_reason(reason: str, message: str) -> str:
    if reason and message:
        return f"{reason}: {message}"
    return reason or message


def _failed_condition(seen: View) -> str:
    for condition in seen.conditions:
        if condition.get("type") == FAILED and condition.get("status") == "True":
            return _join_reason(
                str(condition.get("reason") or ""), str(condition.get("message") or "")
            )
    return ""


def suggest_fix(seen: View) -> str:
    """Returns a command or a change that would help; empty without a known one."""
    if seen.phase == SUSPENDED:
        return f"fleetctl resume {seen.key}"
    hint = seen.text("hint")
    if hint and explain_status(seen):
        return hint
    if seen.text("reason") == "RevisionRefused":
        return "push a commit that fixes it"
    if "Refused" in seen.text("reason"):
        return "change the manifest and apply it again"
    if seen.phase == FAILED and seen.count("failed"):
        return f"fleetctl logs {seen.key} --failed"
    return ""


def is_standing_still(seen: View) -> bool:
    """Returns true where a list should point at this object: it waits, or it failed."""
    return seen.phase not in (DELETING, SKIPPED) and bool(explain_status(seen))

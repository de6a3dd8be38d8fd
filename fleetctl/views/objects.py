"""A stored object as screens see it, and the document that `-o json` prints. Pure.

Status is camelCase JSON as the engine wrote it; any key may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fleetctl.common.text import YEAR_10000_S, timestamp
from fleetctl.controllers.vocabulary.bookkeeping import BOOKKEEPING
from fleetctl.controllers.vocabulary.status_keys import Count, Map, Text, Time
from fleetctl.specs.kinds.registry import API_VERSION, Kind
from fleetctl.specs.values.namespaces import object_key
from fleetctl.views.kinds import kind_named

if TYPE_CHECKING:
    from fleetctl.stores.read.rows import ResourceRow

PENDING, RUNNING, SUSPENDED, SUCCEEDED, FAILED, SKIPPED = (
    "Pending", "Running", "Suspended", "Succeeded", "Failed", "Skipped",
)  # fmt: skip
DELETING, READY = "Deleting", "Ready"
NONE = "-"  # a cell of which there is nothing to say
# Reasons of an object that gets on.
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
    """A stored row with its parsed status; the spec is read when asked for."""

    resource: ResourceRow
    kind: Kind
    status: Mapping[str, object]
    spec_text: Callable[[], str]

    @property
    def key(self) -> str:
        return object_key(self.resource.kind, self.resource.name, self.resource.namespace)

    @property
    def phase(self) -> str:
        """The status word that lists show."""
        if self.resource.deleted_at_s is not None:
            return DELETING
        return self.text("phase") or PENDING

    @property
    def over(self) -> bool:
        """Whether the newest spec has come to its end, either way."""
        return self.phase in (SUCCEEDED, FAILED, SKIPPED) and self.current

    @property
    def current(self) -> bool:
        """Whether the status speaks of the newest spec."""
        return self.count("observedGeneration") >= self.resource.generation

    @property
    def done(self) -> str:
        """`431/500`, or `431/?` while nobody knows how many there will be. A trial that was ended
        early is done.
        """
        total = self.status.get("total")
        done = self.count("succeeded") + self.count("stopped")
        return f"{done}/{total if isinstance(total, int) else '?'}"

    @property
    def settled(self) -> int:
        """Units that are over, whatever came of them."""
        return self.count("succeeded") + self.count("failed") + self.count("stopped")

    def time_s(self, key: Time) -> float | None:
        """A time of a status, where it is one that a clock can show."""
        value = self.status.get(key)
        known = isinstance(value, (int, float)) and 0 <= value < YEAR_10000_S
        return value if known else None  # type: ignore[return-value]

    def worked_s(self, now_s: float) -> float | None:
        """For how long at least one attempt ran; None where none ever did, or nobody kept it."""
        before_s, since_s = self.time_s("workedSeconds"), self.time_s("workingSince")
        if before_s is None:
            start_s, end_s = self.time_s("startTime"), self.time_s("completionTime")
            return None if start_s is None or end_s is None else max(0.0, end_s - start_s)
        return before_s + (0.0 if since_s is None else max(0.0, now_s - since_s)) or None

    @property
    def starting(self) -> int:
        """Units that are tried while nothing of the object runs: no machine may ever take them."""
        return self.count("starting") if self.phase == PENDING else 0

    @property
    def active(self) -> int:
        """Units at work; what only tries to start is none as long as nothing runs."""
        return self.count("active") - self.starting

    @property
    def waiting_on(self) -> list[str]:
        """Sentences on what the object waits for, the most telling first."""
        waiting = self.status.get("waitingOn")
        return [str(line) for line in waiting] if isinstance(waiting, list) else []

    @property
    def conditions(self) -> list[Mapping[str, object]]:
        found = self.status.get("conditions")
        return [c for c in found if isinstance(c, dict)] if isinstance(found, list) else []

    def text(self, key: Text) -> str:
        value = self.status.get(key)
        return value if isinstance(value, str) else ""

    def count(self, key: Count) -> int:
        value = self.status.get(key)
        return value if isinstance(value, int) else 0

    def map(self, key: Map) -> Mapping[str, object]:
        return mapping(self.status.get(key))

    def spec(self) -> Mapping[str, object]:
        return parsed(self.spec_text())


def mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def parsed(text: str) -> Mapping[str, object]:
    """A stored document; one that cannot be read is empty, so that its object alone is unwell."""
    try:
        return mapping(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return {}


def view(resource: ResourceRow, spec_text: Callable[[], str]) -> View:
    status = parsed(resource.status)
    return View(resource, kind_named(resource.kind), status, spec_text)


PARTS = ("metadata", "spec", "status")


def document(seen: View, now_s: float, *, parts: Collection[str] = PARTS) -> dict[str, object]:
    """The object as a manifest with a status: what `-o json` and `-o yaml` print. now_s: of what
    runs, so long it has.

    Lists of thousands that need only a part are spared the others.
    """
    shown: dict[str, object] = {"apiVersion": API_VERSION, "kind": seen.resource.kind}
    if "metadata" in parts:
        shown["metadata"] = _metadata(seen.resource)
    if "spec" in parts:
        shown["spec"] = seen.spec()
    if "status" in parts:
        shown["status"] = _status(seen, now_s)
    return shown


def _metadata(resource: ResourceRow) -> dict[str, object]:
    # A cluster-wide object has none; the others always show theirs, as kubectl's do.
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
        "creationTimestamp": timestamp(resource.created_at_s),
    }
    if resource.deleted_at_s is not None:
        metadata["deletionTimestamp"] = timestamp(resource.deleted_at_s)
    return metadata


def _status(seen: View, now_s: float) -> dict[str, object]:
    status = {"phase": PENDING, "active": 0, "succeeded": 0, "failed": 0, **dated(seen.status)}
    if newest := seen.map("checkpoint"):
        at_s = newest.get("at")
        shown = timestamp(at_s) if isinstance(at_s, (int, float)) else at_s
        status["checkpoint"] = {**newest, "at": shown}
    if kept := seen.map("backup"):
        status["backup"] = dated(kept)
    if seen.conditions:
        status["conditions"] = [dated(condition) for condition in seen.conditions]
    if seen.resource.deleted_at_s is not None:
        status["phase"] = DELETING
    if (worked_s := seen.worked_s(now_s)) is not None:
        status["durationSeconds"] = round(worked_s, 3)
    return status


def dated(values: Mapping[str, object]) -> dict[str, object]:
    """The status with every known time written out; times that are not set are left out."""
    shown = dict(values)
    for key in TIME_KEYS:
        at_s = shown.get(key)
        if isinstance(at_s, (int, float)):
            shown[key] = timestamp(at_s)
        elif at_s is None:
            shown.pop(key, None)
    return shown


def why(seen: View) -> str:
    """A sentence on why the object stands still or ended badly; empty when all is well."""
    if not seen.status:
        return "" if seen.phase == DELETING else "no controller has looked at it yet"
    reason, message = seen.text("reason"), seen.text("message")
    waiting = seen.waiting_on[0] if seen.waiting_on else ""
    if seen.phase in (SUCCEEDED, READY):
        return ""
    if reason in MOVING:
        return seen.text("warning")
    if seen.phase == DELETING:
        return waiting
    if seen.phase in (FAILED, SKIPPED):
        return _joined(reason, message or _failed_condition(seen))
    # A reason that only says "waiting" adds nothing to the sentence that says on what.
    return _joined("" if reason == "Waiting" else reason, message or waiting)


def _joined(reason: str, message: str) -> str:
    return f"{reason}: {message}" if reason and message else reason or message


def _failed_condition(seen: View) -> str:
    for condition in seen.conditions:
        if condition.get("type") == FAILED and condition.get("status") == "True":
            return _joined(str(condition.get("reason") or ""), str(condition.get("message") or ""))
    return ""


def fix(seen: View) -> str:
    """A command or a change that would help; empty when none is known."""
    if seen.phase == SUSPENDED:
        return f"fleetctl resume {seen.key}"
    hint = seen.text("hint")
    if hint and why(seen):
        return hint
    if seen.text("reason") == "RevisionRefused":
        return "push a commit that mends it"
    if "Refused" in seen.text("reason"):
        return "change the manifest and apply it again"
    if seen.phase == FAILED and seen.count("failed"):
        return f"fleetctl logs {seen.key} --failed"
    return ""


def stands_still(seen: View) -> bool:
    """Whether a list should point at this object: it waits, or it failed."""
    return seen.phase not in (DELETING, SKIPPED) and bool(why(seen))

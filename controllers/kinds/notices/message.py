"""Writes the message of a notice in the form of each sink. Pure: a function of an object's status.

A message holds names, one-word reasons, counts and money; never output of a program, nor a sentence
that may quote it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fleetctl.controllers.kinds.notices.notice import Notice
from fleetctl.controllers.kinds.notices.notice_events import NoticeEvent
from fleetctl.controllers.model import Resource
from fleetctl.specs.values.hashing import canonical_json

ID_HEX_DIGITS = 32
KEY_PREFIX = "whsec_"
KEY_BYTES_MIN, KEY_BYTES_MAX = 24, 64  # as Standard Webhooks has them
NAMED_MAX = 20  # in a message about many; the others are listed by id

_COUNTS = ("total", "succeeded", "failed", "refused", "stopped", "cached", "retries")
_COST = ("actual", "calls", "estimated")
_BUDGET = ("maxCost", "used", "left", "warned")


def id_of(
    store_id: str,
    resource: Resource,
    happened: NoticeEvent,
) -> str:
    """Returns the same id whenever the same event is reported again, to any sink, and by any
    controller.
    """
    parts = [store_id, resource.uid, resource.generation, happened.event, happened.occasion]
    return _hash_id(parts)


def _hash_id(parts: Sequence[object]) -> str:
    return "msg_" + hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:ID_HEX_DIGITS]


def body_of(
    id_: str,
    resource: Resource,
    event: str,
    status: Mapping[str, object],
    at_s: float,
) -> str:
    """Returns the JSON of a notice; docs/how-to/be-notified.md lists its fields."""
    told: dict[str, Any] = {
        "id": id_,
        "event": event,
        "at": _format_time(at_s),
        "kind": resource.kind,
        "name": resource.name,
        "namespace": resource.namespace,
        "uid": resource.uid,
        "generation": resource.generation,
        "phase": status.get("phase"),
        "reason": status.get("reason"),
    }
    counts = {key: status[key] for key in _COUNTS if isinstance(status.get(key), int)}
    budget = status if resource.kind == "Budget" else status.get("budget")
    parts: dict[str, Any] = {
        "counts": counts,
        "costUsd": _pick_numbers(status.get("cost"), _COST),
        "budgetUsd": _pick_numbers(budget, _BUDGET),
        "lastFailure": _pick_failure(status.get("lastFailure")),
    }
    if resource.kind == "Source":
        parts["repository"] = _repository_url(resource)
        done = event == "SourceApplied"
        parts["revision"] = status.get("appliedRevision" if done else "attemptedRevision")
    seconds = status.get("workedSeconds")
    if isinstance(seconds, int | float):
        parts["workedSeconds"] = seconds
    return canonical_json({**told, **{key: it for key, it in parts.items() if it}})


def _repository_url(resource: Resource) -> str:
    """Its URL, without a password."""
    url = str((json.loads(resource.spec).get("git") or {}).get("url") or "")
    return re.sub(r"//[^/@]*@", "//", url)


def _pick_numbers(block: object, keys: Sequence[str]) -> dict[str, float]:
    if not isinstance(block, Mapping):
        return {}
    return {key: block[key] for key in keys if isinstance(block.get(key), int | float)}


def _pick_failure(block: object) -> dict[str, object]:
    if not isinstance(block, Mapping):
        return {}
    return {key: block[key] for key in ("index", "attempt", "reason") if key in block}


def _format_time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


@dataclass(frozen=True, slots=True)
class NoticeMessage:
    """One or several notices, as they are sent at once. A repeated message has the same id."""

    id: str
    bodies: tuple[Mapping[str, Any], ...]

    @property
    def json(self) -> str:
        """Returns the body of a webhook's request, which a command reads too."""
        if len(self.bodies) == 1:
            (only,) = self.bodies
            return canonical_json(
                {"type": f"fleetctl.{only['event']}", "timestamp": only["at"], "data": only}
            )
        first = self.bodies[:NAMED_MAX]
        data = {
            "count": len(self.bodies),
            "notices": first,
            "more": len(self.bodies) - len(first),
            "ids": [it["id"] for it in self.bodies],
        }
        at = max(it["at"] for it in self.bodies)
        return canonical_json({"type": "fleetctl.Many", "timestamp": at, "data": data})

    @property
    def title(self) -> str:
        """Returns one line, such as `batchjob/mnist has failed`."""
        first = self.bodies[0]
        if len(self.bodies) == 1:
            return _format_sentence(first)
        return f"{_format_sentence(first)}, and {len(self.bodies) - 1:,} more notices"

    @property
    def text(self) -> str:
        """Returns the message for human readers."""
        lines = [_format_line(it) for it in self.bodies[:NAMED_MAX]]
        more = len(self.bodies) - len(lines)
        return "\n".join([*lines, *([f"and {more:,} more"] if more else [])])


def message_of(notices: Sequence[Notice]) -> NoticeMessage:
    """Builds a message: a single notice keeps its own id, several get an id over all of theirs."""
    ids = [it.id for it in notices]
    bodies = tuple(json.loads(it.body) for it in notices)
    return NoticeMessage(ids[0] if len(ids) == 1 else _hash_id(ids), bodies)


_VERBS = {
    "Failed": "has failed",
    "Succeeded": "has succeeded",
    "Skipped": "was skipped",
    "BudgetLow": "has little of its budget left",
    "SourceFailed": "differs from its repository",
    "SourceApplied": "equals its repository",
}


def _format_sentence(body: Mapping[str, Any]) -> str:
    where = "" if body["namespace"] == "default" else f" in {body['namespace']}"
    return f"{str(body['kind']).lower()}/{body['name']}{where} {_VERBS[body['event']]}"


def _format_line(body: Mapping[str, Any]) -> str:
    counts, cost, budget = (body.get(it, {}) for it in ("counts", "costUsd", "budgetUsd"))
    parts = [str(body["reason"] or "")]
    if "succeeded" in counts:
        of = f" of {counts['total']:,}" if counts.get("total") else ""
        parts.append(f"{counts['succeeded']:,}{of} succeeded")
    if counts.get("failed"):
        parts.append(f"{counts['failed']:,} failed")
    if failure := body.get("lastFailure"):
        parts.append(f"last failure {failure.get('reason')}")
    if "actual" in cost:
        parts.append(f"${cost['actual']:,.2f}")
    if "maxCost" in budget:
        left = f"${budget['left']:,.2f} of " if "left" in budget else ""
        parts.append(
            f"{left}${budget['maxCost']:,.2f} left" if left else f"${budget['maxCost']:,.2f}"
        )
    return f"{_format_sentence(body)}: {', '.join(it for it in parts if it)}"


def key_bytes(text: str) -> bytes:
    """Decodes a signing key as it is written. Raises ValueError with the problem, never the key."""
    if not text.startswith(KEY_PREFIX):
        raise ValueError(f"it must begin with `{KEY_PREFIX}`")
    try:
        key = base64.b64decode(text.removeprefix(KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"it must be base64 after `{KEY_PREFIX}`") from None
    if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"it must stand for {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes")
    return key


def sign_message(
    key: bytes,
    id_: str,
    at_s: int,
    body: str,
) -> str:
    """Returns the value of `webhook-signature`, by the first scheme of Standard Webhooks:
    HMAC-SHA256 over `ID.TIMESTAMP.BODY`.
    """
    digest = hmac.new(key, f"{id_}.{at_s}.{body}".encode(), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"

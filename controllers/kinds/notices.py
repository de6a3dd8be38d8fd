"""Notices: finds the event in a change of a status that subscribers receive, writes its message in
the form of each sink, and decides when one is tried again. Pure.

A message holds names, one-word reasons, counts and money; never output of a program, nor a
sentence that may quote it. A kind with an event of its own adds a rule to RULES, and the word for
the event to specs/blocks/notify.py.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from fleetctl.controllers.model import Resource
from fleetctl.controllers.planning.plan import TERMINAL_PHASES
from fleetctl.specs.values.hashing import canonical_json

Status = Mapping[str, object]

ID_HEX_DIGITS = 32
KEY_PREFIX = "whsec_"
KEY_BYTES_MIN, KEY_BYTES_MAX = 24, 64  # as Standard Webhooks has them
NAMED_MAX = 20  # in a message about many; the others are listed by id

_COUNTS = ("total", "succeeded", "failed", "refused", "stopped", "cached", "retries")
_COST = ("actual", "calls", "estimated")
_BUDGET = ("maxCost", "used", "left", "warned")

# A notice that is a day late still shows what to look at in the morning; a later one does not.
GIVE_UP_AFTER_S = 24 * 3600.0
RETRY_FIRST_S = 5.0
RETRY_MAX_S = 3600.0  # also the limit of a sink's Retry-After
# Slack takes one message a second; a reader far fewer.
BURST = 10
EVERY_S = 6.0
IN_A_MESSAGE_MAX = 1000  # notices, some 40 bytes each beside those that are described in full


class NoticeState(Enum):
    WAITING = "Waiting"
    DELIVERED = "Delivered"
    UNDELIVERED = "Undelivered"  # given up


@dataclass(frozen=True, slots=True)
class Notice:
    """A row of the outbox. Written in one transaction with the change that it reports.

    id: a function of the event, equal for every sink that receives it and in every repetition.
    sink: JSON, the namespace and the one field of `notify` that defines the sink. body: JSON, the
    content. message: the id under which it is sent, which several may share; empty until it is
    first tried.
    """

    id: str
    sink: str
    uid: str
    object: str  # key
    namespace: str
    event: str
    body: str
    at_s: float
    deadline_s: float  # when it is given up
    state: NoticeState = NoticeState.WAITING
    tries: int = 0
    due_at_s: float = 0.0  # of the next try
    message: str = ""
    problem: str = ""  # why the last try did not do
    ended_at_s: float | None = None
    number: int = 0  # the order of their coming, from 1; 0 = not stored yet


_HOST = re.compile(r"https?://[^/?#]+")


@dataclass(frozen=True, slots=True)
class NoticeSink:
    """The target of a notice. how: `webhook`, `slack`, `email` or `command`; fields: that block of
    the manifest.
    """

    namespace: str
    how: str
    fields: Mapping[str, Any]
    argv: tuple[str, ...] = ()  # of a command

    @property
    def secret(self) -> str:
        """Returns the name of the Secret with its address or key; empty where it has no Secret."""
        return str(self.fields.get("secret") or "")

    @property
    def title(self) -> str:
        """Returns, for users, the sink as its manifest describes it, never an address out of a
        Secret.
        """
        match self.how:
            case "command":
                return f"command {self.argv[0]}"
            case "email":
                return f"email to {', '.join(self.fields['to'])}"
        # Only the host of an address: its path or query may contain a key.
        host = _HOST.match(str(self.fields.get("url") or ""))
        if host:
            return f"{self.how} {host[0]}"
        return f"{self.how} of secret/{self.secret}"


def sink_of(text: str) -> NoticeSink:
    """Parses the sink of a stored row."""
    whole = json.loads(text)
    namespace = whole.pop("namespace")
    ((how, said),) = whole.items()
    if how == "command":
        return NoticeSink(namespace, how, {}, tuple(said))
    return NoticeSink(namespace, how, said)


@dataclass(frozen=True, slots=True)
class NoticeEvent:
    """event: a word of `notify.when`. occasion: distinguishes the event from the same event at
    another time; a function of the status alone.
    """

    event: str
    occasion: str


def _find_end(before: Status, after: Status) -> NoticeEvent | None:
    """Reports an object that finished, or finished again after a retry or a change. Where no run
    started since and the work is the same, such as after a change of `notify`, it returns no event.
    """
    phase = after.get("phase")
    at = after.get("completionTime")
    if phase not in TERMINAL_PHASES or at is None:
        return None
    if all(before.get(it) == after.get(it) for it in ("phase", "contents")):
        return None
    return NoticeEvent(str(phase), f"{at}")


def _find_low_budget(before: Status, after: Status) -> NoticeEvent | None:
    """Reports a Budget that crossed a level of its `warnAt`, in this period and with this cap."""
    level = after.get("warned")
    same = all(before.get(it) == after.get(it) for it in ("since", "maxCost", "warned"))
    if not level or same:
        return None
    return NoticeEvent("BudgetLow", f"{after.get('since')}/{after.get('maxCost')}/{level}")


def _report_own_low(before: Status, after: Status) -> NoticeEvent | None:
    """Reports the same for an object's own `budget`."""
    own = after.get("budget")
    own_before = before.get("budget")
    if not isinstance(own, Mapping):
        return None
    told = own_before if isinstance(own_before, Mapping) else {}
    return _find_low_budget(told, own)


def _find_source_failure(before: Status, after: Status) -> NoticeEvent | None:
    """Reports a Source that begins to fail, or fails at another revision. An unreachable repository
    is not reported: its objects go on, and each gap of a network would be a notice.
    """
    if not after.get("lastError") or after.get("reason") == "SourceUnreachable":
        return None
    failed = before.get("lastError") and before.get("reason") != "SourceUnreachable"
    if failed and before.get("attemptedRevision") == after.get("attemptedRevision"):
        return None
    return NoticeEvent(
        "SourceFailed", f"{after.get('failingSince')}/{after.get('attemptedRevision')}"
    )


def _find_applied_event(before: Status, after: Status) -> NoticeEvent | None:
    """Returns an event if a Source applied another commit, or its commit again after a failure."""
    if not after.get("appliedRevision") or after.get("reason") != "Ready":
        return None
    same = before.get("appliedRevision") == after.get("appliedRevision")
    if same and (before.get("reason") == "Ready" or not before.get("lastError")):
        return None
    return NoticeEvent("SourceApplied", f"{after.get('appliedAt')}/{after.get('appliedRevision')}")


RULES: Mapping[str, tuple[Callable[[Status, Status], NoticeEvent | None], ...]] = {
    "Budget": (_find_low_budget,),
    "Source": (_find_source_failure, _find_applied_event),
}
OF_WORK = (_find_end, _report_own_low)


def find_notice_events(
    kind: str,
    before: Status,
    after: Status,
    *,
    runs: bool,
) -> list[NoticeEvent]:
    """Returns the events of a status change. runs: the kind does work."""
    rules = OF_WORK if runs else RULES.get(kind, ())
    found = (rule(before, after) for rule in rules)
    return [it for it in found if it is not None]


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


def retry_after_s(
    tries: int,
    *,
    asked_s: float,
    chance: float,
) -> float:
    """Returns the seconds until the next try. asked_s: the sink's Retry-After, 0 = absent. chance:
    in [0, 1), spreads notices so that they are not sent all at once.
    """
    base_s = min(RETRY_FIRST_S * 4.0 ** min(tries - 1, 16), RETRY_MAX_S)
    return max(base_s * (0.75 + chance / 2), min(asked_s, RETRY_MAX_S))


@dataclass(slots=True)
class SinkPace:
    """The rate limit of a sink: a bucket of tokens, one for each message, and its recent
    failures.
    """

    filled_at_s: float
    tokens: float = BURST
    failures: int = 0  # in a row
    held_until_s: float = 0.0

    def ready_at_s(self, now_s: float) -> float:
        """Returns when the next message may be sent."""
        self._fill(now_s)
        # A little more than the token takes: sums of floats must not end just before it.
        wait_s = 0.0 if self.tokens >= 1.0 else (1.0 - self.tokens) * EVERY_S + 0.001
        return max(self.held_until_s, now_s + wait_s)

    def room(self, now_s: float) -> int:
        """Messages that may go now, one after the other."""
        self._fill(now_s)
        if now_s >= self.held_until_s:
            return int(self.tokens)
        return 0

    def take(self) -> None:
        self.tokens -= 1.0

    def reset_failures(self) -> None:
        self.failures = 0
        self.held_until_s = 0.0

    def failed(
        self,
        now_s: float,
        *,
        asked_s: float,
        chance: float,
    ) -> None:
        self.failures += 1
        self.held_until_s = now_s + retry_after_s(self.failures, asked_s=asked_s, chance=chance)

    def idle(self, now_s: float) -> bool:
        """Returns true if the bucket equals that of a sink never used."""
        self._fill(now_s)
        return self.tokens >= BURST and not self.failures

    def _fill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - self.filled_at_s)  # a clock that was set back adds no tokens
        self.filled_at_s = now_s
        self.tokens = min(float(BURST), self.tokens + passed_s / EVERY_S)

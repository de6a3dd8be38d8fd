"""A notice: that something became of an object, on its way to one sink. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class NoticeState(Enum):
    WAITING = "Waiting"
    DELIVERED = "Delivered"
    UNDELIVERED = "Undelivered"  # given up


@dataclass(frozen=True, slots=True)
class Notice:
    """A row of the outbox. Written with the change that it tells of, in one transaction.

    id: a function of what happened, equal for every sink that is told of it and in every
    repetition. sink: JSON, the namespace and the one field of `notify` that says how. body: JSON,
    what is told. message: the id under which it goes, which several may share; empty until it is
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


@dataclass(frozen=True, slots=True)
class Sink:
    """Where a notice goes. how: `webhook`, `slack`, `email` or `command`; fields: what it says."""

    namespace: str
    how: str
    fields: Mapping[str, Any]
    argv: tuple[str, ...] = ()  # of a command

    @property
    def secret(self) -> str:
        """The name of the Secret with its address or key; empty where it has none."""
        return str(self.fields.get("secret") or "")

    @property
    def title(self) -> str:
        """For people: what a manifest says of it, and never an address out of a Secret."""
        match self.how:
            case "command":
                return f"command {self.argv[0]}"
            case "email":
                return f"email to {', '.join(self.fields['to'])}"
        # Of an address only where it leads: a key may stand in its path.
        host = "/".join(str(self.fields.get("url") or "").split("/")[:3])
        return f"{self.how} {host}" if host else f"{self.how} of secret/{self.secret}"


def sink_of(text: str) -> Sink:
    """As a row keeps it."""
    whole = json.loads(text)
    namespace = whole.pop("namespace")
    ((how, said),) = whole.items()
    if how == "command":
        return Sink(namespace, how, {}, tuple(said))
    return Sink(namespace, how, said)

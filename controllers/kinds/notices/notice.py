"""A notice: that something became of an object, on its way to one sink. Pure."""

from __future__ import annotations

import json
import re
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

"""Tells a sink once. Called by engine/kinds/notices/delivery.py, which knows when and how often.

Each has a thread of its own, so that a sink that hangs holds up nothing else, not even the end of
the process, and a deadline over the whole of it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Thread
from typing import Protocol

from fleetctl.controllers.kinds.notices.message import Message, key_bytes, signature
from fleetctl.controllers.kinds.notices.notice import Sink
from fleetctl.notices.mail import Mail
from fleetctl.notices.outcome import Outcome
from fleetctl.notices.program import Program
from fleetctl.notices.request import LOOPBACK_NAMES, Post
from fleetctl.specs.blocks.notify import SLACK_URL, SMTP_URL, WEBHOOK_KEY, WEBHOOK_URL

DEADLINE_S = 30.0


class Way(Protocol):
    """Tells once, blocking, in a thread; `cut` ends it from another one."""

    def __call__(self) -> Outcome: ...

    def cut(self) -> None: ...


async def send(
    sink: Sink,
    values: Mapping[str, str],
    message: Message,
    *,
    now_s: float,
    programs: bool = True,
) -> Outcome:
    """values: of the Secret that the sink names. programs: whether this process may start any."""
    if sink.how == "command" and not programs:
        return Outcome("a controller in a cluster starts no programs", gone=True)
    made = _way(sink, values, message, now_s=now_s)
    return made if isinstance(made, Outcome) else await _in_a_thread(made)


async def _in_a_thread(way: Way) -> Outcome:
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Outcome] = loop.create_future()

    def tell(outcome: Outcome) -> None:
        if not answered.done():
            answered.set_result(outcome)

    def work() -> None:
        outcome = way()
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(tell, outcome)

    Thread(target=work, name="notice", daemon=True).start()
    try:
        # `wait_for` of Python 3.11 loses a cancellation that comes with the answer.
        async with asyncio.timeout(DEADLINE_S):
            return await answered
    except TimeoutError:
        return Outcome(f"nothing within {DEADLINE_S:g} s")
    finally:
        way.cut()


def _way(sink: Sink, values: Mapping[str, str], message: Message, *, now_s: float) -> Way | Outcome:
    ways: Mapping[str, Callable[[], Way | Outcome]] = {
        "webhook": lambda: _webhook(sink, values, message, now_s),
        "slack": lambda: _slack(sink, values, message),
        "email": lambda: _mail(sink, values, message),
        "command": lambda: Program(sink.argv, message.json, os.environ),
    }
    make = ways.get(sink.how)
    return make() if make is not None else Outcome(f"this version knows no `{sink.how}`")


def _webhook(
    sink: Sink, values: Mapping[str, str], message: Message, now_s: float
) -> Way | Outcome:
    url = sink.fields.get("url") or values.get(WEBHOOK_URL)
    if not url:
        return Outcome(f"secret/{sink.secret} has no {WEBHOOK_URL}")
    at_s, body = int(now_s), message.json
    headers = {"webhook-id": message.id, "webhook-timestamp": str(at_s)}
    key = values.get(WEBHOOK_KEY)
    if key is None and sink.secret and WEBHOOK_URL not in values:
        return Outcome(f"secret/{sink.secret} has neither {WEBHOOK_KEY} nor {WEBHOOK_URL}")
    if key is not None:
        try:
            headers["webhook-signature"] = signature(key_bytes(key), message.id, at_s, body)
        except ValueError as error:
            return Outcome(f"{WEBHOOK_KEY} of secret/{sink.secret}: {error}")
    return Post(str(url), body.encode(), headers)


def _slack(sink: Sink, values: Mapping[str, str], message: Message) -> Way | Outcome:
    url = values.get(SLACK_URL, "")
    if not url:
        return Outcome(f"secret/{sink.secret} has no {SLACK_URL}")
    host = url.partition("://")[2].partition("/")[0].rpartition(":")[0]
    if not url.startswith("https://") and host not in LOOPBACK_NAMES:
        return Outcome(f"{SLACK_URL} of secret/{sink.secret} must begin with https://")
    return Post(url, json.dumps({"text": message.text}).encode(), {})


def _mail(sink: Sink, values: Mapping[str, str], message: Message) -> Way | Outcome:
    url = values.get(SMTP_URL)
    if not url:
        return Outcome(f"secret/{sink.secret} has no {SMTP_URL}")
    to = sink.fields["to"]
    return Mail(url, message, to, sink.fields.get("from") or to[0])

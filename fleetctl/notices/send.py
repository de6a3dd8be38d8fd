"""Sends to a sink once. Called by engine/kinds/notices/delivery.py, which decides when and how
often.

Each has a thread of its own, so that a sink that hangs delays only itself, not even the end of the
process, and a deadline over the whole call.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Thread
from typing import Protocol

from fleetctl.controllers.kinds.notices.message import NoticeMessage, key_bytes, sign_message
from fleetctl.controllers.kinds.notices.notice import NoticeSink
from fleetctl.notices.commit_status import statuses_of
from fleetctl.notices.mail import NoticeMail
from fleetctl.notices.notice_program import NoticeProgram
from fleetctl.notices.request import LOOPBACK_NAMES, NoticePost
from fleetctl.notices.sink_outcome import SinkOutcome
from fleetctl.specs.blocks.notify import SLACK_URL, SMTP_URL, WEBHOOK_KEY, WEBHOOK_URL

DEADLINE_S = 30.0


class NoticeSender(Protocol):
    """Tells once, blocking, in a thread; `cut` ends it from another one."""

    def __call__(self) -> SinkOutcome: ...

    def cut(self) -> None: ...


async def send_notice(
    sink: NoticeSink,
    values: Mapping[str, str],
    message: NoticeMessage,
    *,
    now_s: float,
    programs: bool = True,
) -> SinkOutcome:
    """Sends a message. values: of the Secret that the sink names. programs: this process may start
    programs.
    """
    if sink.how == "command" and not programs:
        return SinkOutcome("a controller in a cluster starts no programs", gone=True)
    made = _make_sender(sink, values, message, now_s=now_s)
    if isinstance(made, SinkOutcome):
        return made
    return await _in_a_thread(made)


async def _in_a_thread(way: NoticeSender) -> SinkOutcome:
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[SinkOutcome] = loop.create_future()

    def tell(outcome: SinkOutcome) -> None:
        if not answered.done():
            answered.set_result(outcome)

    def work() -> None:
        outcome = way()
        with suppress(RuntimeError):  # the loop is closed, and no caller waits any more
            loop.call_soon_threadsafe(tell, outcome)

    Thread(
        target=work,
        name="notice",
        daemon=True,
    ).start()
    try:
        # `wait_for` of Python 3.11 loses a cancellation that comes with the reply.
        async with asyncio.timeout(DEADLINE_S):
            return await answered
    except TimeoutError:
        return SinkOutcome(f"nothing within {DEADLINE_S:g} s")
    finally:
        way.cut()


def _make_sender(
    sink: NoticeSink,
    values: Mapping[str, str],
    message: NoticeMessage,
    *,
    now_s: float,
) -> NoticeSender | SinkOutcome:
    ways: Mapping[str, Callable[[], NoticeSender | SinkOutcome]] = {
        "webhook": lambda: _make_webhook(sink, values, message, now_s),
        "slack": lambda: _make_slack(sink, values, message),
        "email": lambda: _make_mail(sink, values, message),
        "commitStatus": lambda: statuses_of(sink, values, message),
        "command": lambda: NoticeProgram(sink.argv, message.json, os.environ),
    }
    make = ways.get(sink.how)
    if make is not None:
        return make()
    return SinkOutcome(f"this version knows no `{sink.how}`")


def _make_webhook(
    sink: NoticeSink,
    values: Mapping[str, str],
    message: NoticeMessage,
    now_s: float,
) -> NoticeSender | SinkOutcome:
    url = sink.fields.get("url") or values.get(WEBHOOK_URL)
    if not url:
        return SinkOutcome(f"secret/{sink.secret} has no {WEBHOOK_URL}")
    at_s = int(now_s)
    body = message.json
    headers = {"webhook-id": message.id, "webhook-timestamp": str(at_s)}
    key = values.get(WEBHOOK_KEY)
    if key is None and sink.secret and WEBHOOK_URL not in values:
        return SinkOutcome(f"secret/{sink.secret} has neither {WEBHOOK_KEY} nor {WEBHOOK_URL}")
    if key is not None:
        try:
            headers["webhook-signature"] = sign_message(key_bytes(key), message.id, at_s, body)
        except ValueError as error:
            return SinkOutcome(f"{WEBHOOK_KEY} of secret/{sink.secret}: {error}")
    return NoticePost(str(url), body.encode(), headers)


def _make_slack(
    sink: NoticeSink,
    values: Mapping[str, str],
    message: NoticeMessage,
) -> NoticeSender | SinkOutcome:
    url = values.get(SLACK_URL, "")
    if not url:
        return SinkOutcome(f"secret/{sink.secret} has no {SLACK_URL}")
    host = url.partition("://")[2].partition("/")[0].rpartition(":")[0]
    if not url.startswith("https://") and host not in LOOPBACK_NAMES:
        return SinkOutcome(f"{SLACK_URL} of secret/{sink.secret} must begin with https://")
    return NoticePost(url, json.dumps({"text": message.text}).encode(), {})


def _make_mail(
    sink: NoticeSink,
    values: Mapping[str, str],
    message: NoticeMessage,
) -> NoticeSender | SinkOutcome:
    url = values.get(SMTP_URL)
    if not url:
        return SinkOutcome(f"secret/{sink.secret} has no {SMTP_URL}")
    to = sink.fields["to"]
    return NoticeMail(url, message, to, sink.fields.get("from") or to[0])

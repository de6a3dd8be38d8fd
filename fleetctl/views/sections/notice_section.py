"""Texts on notices: the sink, and the fate of the newest. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.common.text import format_age
from fleetctl.controllers.kinds.notices import sink_of
from fleetctl.stores.read.rows import NoticeRow


def title_of(row: NoticeRow) -> str:
    """Returns the sink: `webhook of secret/alerts`."""
    return sink_of(row.sink).title


def notice_line(rows: Sequence[NoticeRow], now_s: float) -> str:
    """Returns the newest one of an object, and how many there were. rows: at least one, oldest
    first."""
    last = rows[-1]
    when = last.ended_at_s if last.ended_at_s is not None else last.at_s
    text = f"{last.event} {last.state.lower()} {format_age(now_s - when)} ago, {title_of(last)}"
    if last.state != "Delivered" and last.problem:
        text += f": {last.problem}"
    failed = sum(it.state == "Undelivered" for it in rows)
    more = len(rows) - 1
    others = f"{failed} of {len(rows)} undelivered" if failed else f"{more} more" if more else ""
    if others:
        return f"{text} ({others}: fleetctl get notices {last.object})"
    return text

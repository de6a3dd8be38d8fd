"""Notices on their way, in SQLite. Part of the SQLite store; see outbox.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace

from fleetctl.controllers.kinds.notices.notice import Notice, NoticeState
from fleetctl.stores.outbox import NOTICES_KEPT_MAX, NoticeStore
from fleetctl.stores.sqlite.store_session import Row, StoreSession


class SqliteNotices:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def add(self, notices: Sequence[Notice]) -> None:
        rows = [_to_row(it) for it in notices]
        self._session.writing().executemany(self._session.sql["add_notice"], rows)

    def waiting(self, *, after: int, count_max: int) -> Sequence[Notice]:
        return [
            _to_notice(row) for row in self._session.read("waiting_notices", (after, count_max))
        ]

    def advance(self, notices: Sequence[Notice]) -> None:
        state = self._session.writing()
        sql = self._session.sql
        rows = [
            (
                it.state.value,
                it.tries,
                it.due_at_s,
                it.message,
                it.problem,
                it.ended_at_s,
                it.number,
            )
            for it in notices
        ]
        state.executemany(sql["advance_notice"], rows)
        if any(it.ended_at_s is not None for it in notices):
            state.execute(sql["forget_notices"], (NOTICES_KEPT_MAX,))


def _to_row(notice: Notice) -> Row:
    *row, _number = astuple(replace(notice, state=notice.state.value))  # type: ignore[arg-type]
    return tuple(row)


def _to_notice(row: Row) -> Notice:
    found = Notice(*row)
    return replace(found, state=NoticeState(found.state))


_: type[NoticeStore] = SqliteNotices

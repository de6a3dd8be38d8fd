"""Selects rows by a user's SQL condition: `tasks.fromResults.where`. The rows are put into a
database of their own in memory, so that no other data can be read or written; within bounds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing

from fleetctl.common.errors import UsageError

# As the view `tasks` of views.sql has them. `cached` is apart: a result that was taken over is a
# success like any other here, so that what is chosen does not hang on what had run before.
COLUMNS = (
    "idx", "state", "cached", "attempts", "reason", "exit_code", "provider", "params",
    "duration_s", "usd", "result", "content", "outdated", "run", "message",
)  # fmt: skip
SUCCEEDED = "state = 'Succeeded'"
# A condition over 100,000 rows takes some millions of steps; a second is a mistake.
STEPS_MAX = 50_000_000
_STEPS_PER_LOOK = 1_000_000
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN = ("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "randomblob")


def choose_rows(rows: Iterable[Sequence[object]], where: str) -> list[int]:
    """Returns the indexes, ascending, of the rows (by COLUMNS) that meet it. Raises UsageError."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute(f"CREATE TABLE tasks ({', '.join(COLUMNS)})")
        marks = ", ".join("?" * len(COLUMNS))
        db.executemany(f"INSERT INTO tasks VALUES ({marks})", rows)  # noqa: S608 - question marks
        _lock_down(db)
        try:
            # The end of a line ends a comment in it. The last line ensures a single condition: with
            # a second statement or an early parenthesis the whole does not parse.
            sql = f"SELECT idx FROM tasks WHERE (\n{where}\n) ORDER BY idx"  # noqa: S608
            found = db.execute(sql).fetchall()
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise _explain_error(error) from error
    return [index for (index,) in found]


def check_condition(where: str) -> None:
    """Raises UsageError if it is not a condition and could select no row."""
    choose_rows((), where)


def _lock_down(db: sqlite3.Connection) -> None:
    looks = iter(range(STEPS_MAX // _STEPS_PER_LOOK))
    db.execute("PRAGMA query_only = ON")
    for function in ("json_each", "json_tree"):  # made when first used, which is denied below
        db.execute(f"SELECT 1 FROM {function}('[]')").fetchall()  # noqa: S608
    db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    db.set_authorizer(_authorize_action)
    db.set_progress_handler(lambda: int(next(looks, None) is None), _STEPS_PER_LOOK)


def _authorize_action(
    action: int,
    _what: str | None,
    detail: str | None,
    *_: str | None,
) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        if detail in _FORBIDDEN:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK
    if action in _ALLOWED:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _explain_error(error: Exception) -> UsageError:
    message = str(error)
    if message == "interrupted":
        return UsageError("the condition takes too long", hint="compare columns with values")
    if "not authorized" in message or "prohibited" in message:
        return UsageError("the condition may only read tasks", hint=f"e.g. {SUCCEEDED}")
    columns = f"the columns are {', '.join(COLUMNS)}; a field of a result is `result ->> 'score'`"
    return UsageError(f"the condition is wrong: {message}", hint=columns)

"""Runs SQL over the store, only reading and within bounds: a user's own over the views, a condition
on rows, and the facts of a bug report.

The store is the user's own file, so the bounds on a user's SQL guard against mistakes and runaways,
not against its owner. The connection never writes, and opens only the files that their writers
keep. A condition on rows runs in memory, in a database with these rows alone, so that no other data
can be read or written.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from fleetctl.common import state_paths as places
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import EVENTS_DB, STATE_DB
from fleetctl.stores import queries
from fleetctl.stores.interpreters import is_readable
from fleetctl.stores.queries import STATES
from fleetctl.stores.read.connecting import connect_readonly, readonly_uri
from fleetctl.stores.sqlite_errors import READ_FAILURES, explain_error, primary_code

VIEWS = (
    "tasks",
    "attempts",
    "results",
    "metrics",
    "events",
    "calls",
    "endpoints",
    "costs",
    "warm",
    "reuses",
    "objects",
    "interpreters",
)
_OF_NO_NAMESPACE = frozenset({"interpreters"})
# A sum over a million rows needs megabytes; a cross join by mistake would take all there is.
HEAP_BYTES_MAX = 256 << 20
VALUE_BYTES_MAX = 16 << 20
# Some tens of microseconds of work, so that a deadline is kept closely.
STEPS_PER_LOOK = 10_000
_WAIT_S = 5.0
_READING = {
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE,
}  # fmt: skip
_OF_THE_STORE = {
    sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
}  # fmt: skip
_FUNCTIONS_OF_FILES = ("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer")
_SCHEMAS = (
    ("state", places.STATE_DB, "state_schema.sql"),
    ("log", places.EVENTS_DB, "events_schema.sql"),
)

Hint = Callable[[], str]
# State, reason and index of a task, the failed indexes of its object, and its end.
TaskState = Callable[..., str]

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


# The files of which `collect_facts` reports. It opens them read-only, and the error of a file that
# cannot be read is one of the facts; no name, document or result is among them.
FILES = (STATE_DB, EVENTS_DB)


class QueryAnswer(NamedTuple):
    """`rows` streams; it ends with an error when the query takes too long or too much."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


class SqlQuery:
    """One connection with the views. `over` is polled; once true, a query ends. namespace: the one
    whose rows there are, for a user of a server who may see no other; None for all.
    """

    def __init__(
        self,
        home: Path,
        *,
        now_s: float,
        task_state: TaskState,
        over: Callable[[], bool] = lambda: False,
        namespace: str | None = None,
    ) -> None:
        self._over = over
        self._namespace = namespace
        self._home = home
        self._db = sqlite3.connect(
            ":memory:",
            uri=True,
            timeout=_WAIT_S,
            isolation_level=None,
        )
        self._db.execute("PRAGMA temp_store = MEMORY")  # first: it drops all views that there are
        try:
            self._prepare(home, now_s, task_state)
        except READ_FAILURES as error:
            self._db.close()
            raise explain_error(error, home / places.STATE_DB) from error

    def _prepare(
        self,
        home: Path,
        now_s: float,
        task_state: TaskState,
    ) -> None:
        for name, file, schema in _SCHEMAS:
            self._attach(home / file, name, schema, founded=_is_founded(home / file))
        path = home / places.INTERPRETERS_DB
        self._attach(path, "interpreters", "interpreters_schema.sql", founded=is_readable(path))
        self._db.create_function("now_s", 0, lambda: now_s)
        self._owners = _TaskOwners(home / places.STATE_DB)
        self._db.create_function("task_state", 4, self._owners.judged_by(task_state))
        self._db.create_function("desired_content", 2, self._owners.find_desired_content)
        named = queries.read_queries("views.sql")
        for name in ("owned_runs", "objects", "attempts", "tasks", *VIEWS):
            rows = self._limit_rows(name, named[name])
            self._db.execute(f"CREATE TEMP VIEW IF NOT EXISTS {name} AS {rows}")
        self._lock_down()

    def _limit_rows(self, view: str, rows: str) -> str:
        """Returns the rows of a view that are of the namespace; views are made of each other."""
        if self._namespace is None:
            return rows
        if view in _OF_NO_NAMESPACE:
            return f"SELECT * FROM ({rows}) WHERE 0"  # noqa: S608 - of views.sql
        named = self._namespace.replace("'", "''")
        return f"SELECT * FROM ({rows}) WHERE namespace = '{named}'"  # noqa: S608 - of views.sql

    def __enter__(self) -> SqlQuery:
        return self

    def __exit__(self, *error: object) -> None:
        self._db.close()
        self._owners.close()

    def ask(self, sql: str, parameters: Sequence[object] = ()) -> QueryAnswer:
        """Runs a query. Raises UsageError for text that is not a query, at once or while its rows
        are read.
        """
        with self._explained(sql):
            cursor = self._db.execute(sql, tuple(parameters))
        if cursor.description is None:
            raise UsageError("the query asks for nothing", hint="it begins with SELECT or WITH")
        return QueryAnswer(
            tuple(column[0] for column in cursor.description), self._stream(cursor, sql)
        )

    def _explained(self, sql: str) -> _ExplainedErrors:
        return _ExplainedErrors(self._hint(sql), self._over, self._home)

    def columns(self, view: str) -> tuple[str, ...]:
        return self.ask(f"SELECT * FROM {view} LIMIT 0").columns  # noqa: S608 - one of VIEWS

    def _stream(self, cursor: sqlite3.Cursor, sql: str) -> Iterator[tuple[Any, ...]]:
        with self._explained(sql):
            # `yield from` would close the cursor of a connection that is closed already.
            for row in cursor:  # noqa: UP028
                yield row

    def _hint(self, sql: str) -> Hint:
        """Returns the available names: the columns of the views in the query."""

        def hint() -> str:
            words = set(re.findall(r"\w+", sql.lower()))
            named = [view for view in VIEWS if view in words]
            return "; ".join(f"`{view}` has {', '.join(self.columns(view))}" for view in named)

        return hint

    def _attach(
        self,
        path: Path,
        name: str,
        schema: str,
        *,
        founded: bool,
    ) -> None:
        """Attaches a file of the store, or its empty tables while there is no store yet."""
        if not founded:
            self._db.execute("ATTACH ':memory:' AS " + name)
            for statement in queries.read_statements(schema):
                if statement.startswith("CREATE TABLE "):
                    self._db.execute(statement.replace("TABLE ", f"TABLE {name}.", 1))
            return
        try:
            self._db.execute(f"ATTACH ? AS {name}", (readonly_uri(path),))
            self._db.execute(f"PRAGMA {name}.schema_version").fetchone()
        except sqlite3.OperationalError:
            # A read-only disk cannot hold shared memory; reader.py does the same.
            self._db.execute(f"ATTACH ? AS {name}", (f"{readonly_uri(path)}&immutable=1",))

    def _lock_down(self) -> None:
        for setting in ("query_only = ON", f"hard_heap_limit = {HEAP_BYTES_MAX}"):
            self._db.execute(f"PRAGMA {setting}").fetchall()
        for function in ("json_each", "json_tree"):  # made when first used, which is denied below
            self._db.execute(f"SELECT 1 FROM {function}('[]')").fetchall()  # noqa: S608
        self._db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
        self._db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._db.set_authorizer(_authorize_action)
        self._db.set_progress_handler(lambda: int(self._over()), STEPS_PER_LOOK)


class _TaskOwners:
    """The inputs of a task's state beside its own row, read once an object."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._known: dict[int, tuple[str, bool, list[str]]] = {}

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def judged_by(self, task_state: TaskState) -> Callable[[int, int, str, int], str]:
        def judge(
            rid: int,
            state: int,
            reason: str,
            index: int,
        ) -> str:
            failed, over, _ = self._of(rid)
            return task_state(
                STATES[state],
                reason,
                index,
                failed,
                over=over,
            )

        return judge

    def find_desired_content(self, rid: int, index: int) -> str | None:
        """Returns the content of a task of the present spec; None while unknown."""
        contents = self._of(rid)[2]
        if contents:
            return contents[min(index, len(contents) - 1)]
        return None

    def _of(self, rid: int) -> tuple[str, bool, list[str]]:
        if rid not in self._known:
            self._db = self._db or connect_readonly(self._path)
            query = queries.read_queries("reader.sql")["standing"]
            rows = self._db.execute(query, (rid,)).fetchall() if self._db is not None else []
            failed, over, contents = rows[0] if rows else ("", True, None)
            self._known[rid] = (failed or "", bool(over), json.loads(contents or "[]"))
        return self._known[rid]


def _is_founded(path: Path) -> bool:
    """Returns whether the store exists. Raises StoreError for a file that is foreign, newer or
    older than this program.
    """
    connection = connect_readonly(path)
    if connection is None:
        return False
    connection.close()
    return True


def _authorize_action(
    action: int,
    what: str | None,
    detail: str | None,
    schema: str | None,
    view: str | None,
) -> int:
    """Authorizes each action of a statement; called by SQLite."""
    if action not in _READING:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION:
        if detail in _FUNCTIONS_OF_FILES:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK
    if action != sqlite3.SQLITE_READ:
        return sqlite3.SQLITE_OK
    # Without a column it is only counted, which SQLite does not ascribe to a view.
    raw = schema in ("state", "log") and view is None and detail
    if raw or (what or "").startswith("sqlite_"):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


class _ExplainedErrors:
    """Translates SQLite's errors into ours: a change that the user can make to the query, or a
    problem of the store.
    """

    def __init__(
        self,
        columns: Hint,
        over: Callable[[], bool],
        home: Path,
    ) -> None:
        self._home = home
        self._columns = columns
        self._over = over

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        _: object,
        error: BaseException | None,
        __: object,
    ) -> None:
        if isinstance(error, MemoryError):
            raise UsageError(
                f"the query needs more than {HEAP_BYTES_MAX >> 20} MiB of memory",
                hint="add a LIMIT, or group less",
            ) from error
        if str(error) == "interrupted" and not self._over():
            raise KeyboardInterrupt  # Ctrl-C in the handler that looks at the time ends a query too
        if isinstance(error, READ_FAILURES) and primary_code(error) in _OF_THE_STORE:
            raise explain_error(error, self._home / places.STATE_DB) from error
        if isinstance(error, (sqlite3.Error, sqlite3.Warning)):
            raise _explain_error(error, self._columns) from error


def _explain_error(error: Exception, columns: Hint) -> UsageError:
    message = str(error)
    views = f"the views are {', '.join(VIEWS)}; `fleetctl query --views` shows their columns"
    if message == "interrupted":
        return UsageError("the query took too long and was ended", hint="`--timeout` gives it more")
    if any(word in message for word in ("not authorized", "prohibited", "authorization denied")):
        return UsageError("the query may only read, and only the views", hint=views)
    if "one statement at a time" in message:
        return UsageError("the query is more than one statement", hint="write one SELECT")
    if 'near "index"' in message:
        return UsageError(
            f"the query is wrong: {message}", hint="the column is `idx`: `index` is a word of SQL"
        )
    return UsageError(
        f"the query is wrong: {message}",
        hint=(columns() if message.startswith("no such column") else "") or views,
    )


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
            raise _explain_condition_error(error) from error
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
    db.set_authorizer(_authorize_condition)
    db.set_progress_handler(lambda: int(next(looks, None) is None), _STEPS_PER_LOOK)


def _authorize_condition(
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


def _explain_condition_error(error: Exception) -> UsageError:
    message = str(error)
    if message == "interrupted":
        return UsageError("the condition takes too long", hint="compare columns with values")
    if "not authorized" in message or "prohibited" in message:
        return UsageError("the condition may only read tasks", hint=f"e.g. {SUCCEEDED}")
    columns = f"the columns are {', '.join(COLUMNS)}; a field of a result is `result ->> 'score'`"
    return UsageError(f"the condition is wrong: {message}", hint=columns)


def collect_facts(state_dir: Path) -> dict[str, object]:
    """Returns, by file of the store, its size in bytes, its versions and the rows of each table."""
    return {file: _describe_file(state_dir / file) for file in FILES}


def _describe_file(path: Path) -> dict[str, object]:
    if not path.exists():
        return {"exists": False}
    facts: dict[str, object] = {"exists": True, "bytes": path.stat().st_size}
    try:
        with closing(sqlite3.connect(readonly_uri(path), uri=True, timeout=1.0)) as store:
            for pragma in ("application_id", "user_version", "page_count", "journal_mode"):
                facts[pragma] = store.execute(f"PRAGMA {pragma}").fetchone()[0]
            facts["quick_check"] = store.execute("PRAGMA quick_check(5)").fetchone()[0]
            facts["rows"] = _count_rows(store)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        facts["error"] = str(error)
    return facts


def _count_rows(store: sqlite3.Connection) -> dict[str, int]:
    names = store.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    return {
        name: store.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608 - names from the schema
        for (name,) in names.fetchall()
    }

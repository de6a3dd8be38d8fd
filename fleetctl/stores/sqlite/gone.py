"""Stores deleted objects in SQLite: their records, and for how long. Part of the SQLite store; see
base.GoneStore.

A deletion moves one row; the object's runs, results and metrics stay where they are. They are
removed later in small steps, so that no tick of the controller waits for them.
"""

from __future__ import annotations

from fleetctl.stores.base import GoneStore
from fleetctl.stores.sqlite.events import drop_events, rename_events
from fleetctl.stores.sqlite.store_session import StoreSession

# The most rows that a step removes: some milliseconds.
STEP_RUNS_MAX = 500
STEP_METRICS_MAX = 10_000


class SqliteGone:
    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._sql = session.sql

    def forget(
        self,
        *,
        until_s: float,
        bytes_max: int,
        objects_max: int,
    ) -> bool:
        state = self._session.writing()
        oldest = state.execute(self._sql["oldest_gone"]).fetchone()
        if oldest is None:
            return False
        rid, uid, gone_at_s = oldest
        if gone_at_s > until_s:
            objects, size = state.execute(self._sql["sum_gone"]).fetchone()
            if objects <= objects_max and size <= bytes_max:
                return False
        parts = {
            "thin_metrics": STEP_METRICS_MAX,
            "thin_checkpoints": STEP_METRICS_MAX,
            "thin_calls": STEP_RUNS_MAX,
        }
        for query, most in (*parts.items(), ("thin_results", STEP_RUNS_MAX)):
            if state.execute(self._sql[query], (rid, most)).rowcount == most:
                return True
        if state.execute(self._sql["thin_runs"], (rid, STEP_RUNS_MAX)).rowcount == STEP_RUNS_MAX:
            return True
        state.execute(self._sql["forget_gone"], (rid,))
        self._session.event_writes.append(lambda events: drop_events(events, uid))
        return True


def bury_resource(
    session: StoreSession,
    uid: str,
    rid: int,
) -> None:
    """Moves the row from `resources` to `gone`. None of its runs may hold a sandbox any more; a run
    that is still recorded so is ended, as no pass would look after it again.
    """
    state = session.writing()
    sql = session.sql
    now_s = session.now_s()
    state.execute(sql["end_runs"], (now_s, rid))
    state.execute(sql["bury"], (now_s, rid))
    for query in ("drop_spec", "drop_resource"):
        state.execute(sql[query], (rid,))
    kind, namespace, name = state.execute(sql["gone_key"], (rid,)).fetchone()
    living = state.execute(sql["is_named"], (kind, namespace, name)).fetchone() is not None
    state.execute(sql["retitle_gone"], (kind, namespace, name, None if living else rid))
    session.rids.pop(uid, None)


def make_way(
    session: StoreSession,
    uid: str,
    kind: str,
    namespace: str,
    name: str,
) -> None:
    """Frees the name for a new object, and perhaps the uid of a deleted one: that of an adopted
    sandbox, whose files lie under it. The old records stay, under names that are not used.
    """
    state = session.writing()
    sql = session.sql
    clear_name(session, kind, namespace, name)
    known = state.execute(sql["gone_of"], (uid,)).fetchone()
    if known is None:
        return
    (rid,) = known
    past = f"{uid}~{rid}"
    state.execute(sql["rename_gone"], (past, rid))
    state.execute(sql["rename_runs"], (f"~{rid}", rid))
    session.event_writes.append(lambda events: rename_events(events, uid, past))


def clear_name(
    session: StoreSession,
    kind: str,
    namespace: str,
    name: str,
) -> None:
    """Renames deleted objects as a living object has this name: they are shown with their end."""
    session.writing().execute(session.sql["retitle_gone"], (kind, namespace, name, None))


_: type[GoneStore] = SqliteGone

"""Runs, results and metrics in SQLite, successes by content, and the times of requests for new
sandboxes.

The tables of runs are the busiest of the store: they take one statement for an intent, one for a
step of a run, and no look-up that a memo can save.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import nan

from fleetctl.common.errors import Conflict, NotFound
from fleetctl.controllers.model import LIVE_STATES, Metric, Run, RunState, SavedCheckpoint
from fleetctl.stores.base import (
    CACHE_BYTES_MAX,
    CACHE_ROWS_MAX,
    CachedSuccess,
    CacheStore,
    CreateStore,
    ReuseScope,
    RunStore,
)
from fleetctl.stores.queries import STATES
from fleetctl.stores.sqlite.store_session import Row, StoreSession

_CODES = {RunState(name): code for code, name in enumerate(STATES)}
_STATES = tuple(RunState(name) for name in STATES)
_MASKS: dict[frozenset[RunState], int] = {}  # at most one for each set that the engine names
_PAGE_RUNS = 1000
THIN_STEP_MAX = 10_000  # metrics: some milliseconds

_ENTRY_BYTES = 200  # of a row and its index, beside the texts that vary


class SqliteRuns:
    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._sql = session.sql

    def begin(self, runs: Sequence[Run]) -> None:
        state = self._session.writing()
        insert = self._sql["insert_run"]
        begun: list[tuple[str]] = []
        for run in runs:
            identity = (self._rid(run.uid), run.index, run.attempt, run.name, run.created_at_s)
            try:
                state.execute(insert, identity + self._columns(run))
            except sqlite3.IntegrityError as error:
                # All or none also for a caller that continues its transaction.
                state.executemany(self._sql["drop_run"], begun)
                unit = f"index `{run.index}`, attempt `{run.attempt}`"
                raise Conflict(f"run `{run.name}` ({unit}) exists already") from error
            begun.append((run.name,))

    def advance(
        self,
        run: Run,
        *,
        from_states: frozenset[RunState] = LIVE_STATES,
        result: str | None = None,
        metrics: Sequence[Metric] = (),
        saved: Sequence[SavedCheckpoint] = (),
    ) -> bool:
        state = self._session.writing()
        row = (*self._columns(run), run.name, _states_mask(from_states))
        if state.execute(self._sql["advance_run"], row).rowcount == 0:
            return False
        if result is None and not metrics and not saved:
            return True
        (run_id,) = state.execute(self._sql["run_id"], (run.name,)).fetchone()
        if result is not None:
            state.execute(self._sql["keep_result"], (run_id, result))
        if metrics:
            state.executemany(
                self._sql["keep_metric"],
                [(run_id, m.seq, m.step, m.name, m.value, m.at_s) for m in metrics],
            )
        if saved:
            state.executemany(
                self._sql["keep_checkpoint"],
                [(run_id, one.step, one.path, one.at_s, one.size, one.took_s) for one in saved],
            )
        return True

    def of(self, uid: str) -> Iterator[tuple[Run, str | None]]:
        found = self._session.read("rid_of", (uid,))
        if not found:
            return
        after: tuple[int, int] = (-1, 0)
        while page := self._session.read("runs_page", (found[0][0], *after, _PAGE_RUNS)):
            for row in page:
                run = _to_run(uid, row)
                yield run, row[-1]
            after = (run.index, run.attempt)

    def metrics_of(self, run: str, *, after: int = -1, limit: int = -1) -> Sequence[Metric]:
        found = self._session.read("metrics_of", (run, after, limit))
        return [_to_metric(row) for row in found]

    def last_values_of(self, run: str) -> Mapping[str, float]:
        return {name: value for name, value, _ in self._session.read("last_values", (run,))}

    def checkpoints_of(self, uid: str) -> Sequence[SavedCheckpoint]:
        found = self._session.read("rid_of", (uid,))
        rows = self._session.read("checkpoints_of", found[0]) if found else ()
        return [SavedCheckpoint(*row) for row in rows]

    def calls_usd_of(self, uid: str) -> float:
        ((usd,),) = self._session.read("calls_usd", (uid,))
        return float(usd)

    def thin(self, uid: str) -> bool:
        state = self._session.writing()
        done = state.execute(self._session.sql["thin_to_last"], (uid, THIN_STEP_MAX))
        return done.rowcount == THIN_STEP_MAX

    def last_step(self, run: str) -> int | None:
        ((step,),) = self._session.read("last_step", (run,))
        if step is None:
            return None
        return int(step)

    def _columns(self, run: Run) -> tuple[object, ...]:
        """Returns the columns that may change with a write; in the order that insert and update
        share.
        """
        name = run.name
        return (
            _CODES[run.state], self._intern(run.provider), self._intern(run.template_hash),
            run.sandbox_open, run.exit_code, run.journal_offset, run.started_at_s, run.ended_at_s,
            None if run.sandbox == name else run.sandbox, run.handle, run.reason, run.message,
            run.usd_per_s, self._intern(run.placed) if run.placed else None, run.usd,
            run.put_aside, self._intern(run.content) if run.content else None,
            run.resumed_step, run.saved_step, self._intern(run.queued) if run.queued else None,
            run.worth_s, run.worth_usd, run.params_hash, run.wandb or None, run.hint or None,
            run.params,
        )  # fmt: skip

    def _rid(self, uid: str) -> int:
        rids = self._session.rids
        if uid not in rids:
            found = self._session.read("rid_of", (uid,))
            if not found:
                raise NotFound(f"no resource has the uid `{uid}`")
            rids[uid] = found[0][0]
        return rids[uid]

    def _intern(self, word: str) -> int:
        words = self._session.words
        if word not in words:
            state = self._session.writing()
            state.execute(self._sql["insert_word"], (word,))
            words[word] = state.execute(self._sql["word_id"], (word,)).fetchone()[0]
        return words[word]


def _states_mask(states: frozenset[RunState]) -> int:
    if states not in _MASKS:
        _MASKS[states] = sum(1 << _CODES[state] for state in states)
    return _MASKS[states]


def _to_run(uid: str, row: Row) -> Run:
    (
        name, index, attempt, state, provider, sandbox, template_hash, params, params_hash,
        created_at_s, handle, started_at_s, ended_at_s, exit_code, reason, message, journal_offset,
        sandbox_open, usd_per_s, placed, usd, put_aside, content, wandb, resumed_step,
        saved_step, queued, worth_s, worth_usd, hint, _result,
    ) = row  # fmt: skip
    return Run(
        name, uid, index, attempt, _STATES[state], provider, name if sandbox is None else sandbox,
        template_hash, params, params_hash, created_at_s, handle, started_at_s, ended_at_s,
        exit_code, reason, message, journal_offset, bool(sandbox_open), usd_per_s,
        placed or "", usd, bool(put_aside), content or "", wandb or "", resumed_step, saved_step,
        worth_s, worth_usd, queued or "", hint or "",
    )  # fmt: skip


def _to_metric(row: Row) -> Metric:
    seq, step, name, value, at_s = row
    return Metric(
        seq,
        step,
        name,
        nan if value is None else value,
        at_s,
    )


_: type[RunStore] = SqliteRuns


class SqliteCache:
    """The successes by content. Entries are numbered and their bytes are added up as they come, so
    that the oldest are found without counting.
    """

    def __init__(
        self,
        session: StoreSession,
        *,
        rows_max: int = CACHE_ROWS_MAX,
        bytes_max: int = CACHE_BYTES_MAX,
    ) -> None:
        self._session = session
        self._sql = session.sql
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def remember(self, successes: Sequence[CachedSuccess]) -> None:
        if not successes:
            return
        state = self._session.writing()
        newest = state.execute(self._sql["newest_remembered"]).fetchone()
        total = newest[1] if newest is not None else 0
        for it in successes:
            total += _ENTRY_BYTES + len(it.result or "") + len(it.metrics)
            row = (
                it.template_key, it.unit_key, it.result, it.metrics, it.run, it.object, it.index,
                it.duration_s, it.usd, it.ended_at_s, total, it.owner,
            )  # fmt: skip
            entry = state.execute(self._sql["remember"], row).lastrowid
        assert entry is not None
        self._forget(entry - self._rows_max, total - self._bytes_max)

    def recall(self, template_key: str, among: ReuseScope) -> Collection[str]:
        rows = self._session.read("recall", (template_key, *_reuse_parameters(among)))
        return frozenset(row[0] for row in rows)

    def get(
        self,
        template_key: str,
        unit_key: str,
        among: ReuseScope,
    ) -> CachedSuccess | None:
        first = among.owners[0]
        rows = self._session.read(
            "remembered", (template_key, *_reuse_parameters(among), unit_key, first)
        )
        if rows:
            return CachedSuccess(*rows[0])
        return None

    def hand_on(self, owner: str, heir: str) -> None:
        state = self._session.writing()
        rows = state.execute(self._sql["remembered_of"], (owner,)).fetchall()
        self.remember([replace(CachedSuccess(*row), owner=heir) for row in rows])

    def forget(self, owner: str) -> None:
        self._session.writing().execute(self._sql["forget_successes_of"], (owner,))

    def put_aside(self, runs: Sequence[str]) -> None:
        state = self._session.writing()
        state.executemany(self._sql["forget_success"], [(run,) for run in runs])

    def _forget(self, entry: int, bytes_so_far: int) -> None:
        """Drops all up to this entry, and all whose bytes lie below."""
        state = self._session.writing()
        while oldest := state.execute(self._sql["oldest_remembered"]).fetchone():
            if oldest[0] > entry and oldest[1] > bytes_so_far:
                return
            state.execute(self._sql["drop_remembered"], oldest[:1])


def _reuse_parameters(among: ReuseScope) -> tuple[object, ...]:
    """Returns the parameters 2 to 4 of a question."""
    return (among.after_s, among.shared, json.dumps(among.owners))


__: type[CacheStore] = SqliteCache


class SqliteCreates:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def add(
        self,
        provider: str,
        at_s: float,
        *,
        forget_until_s: float,
    ) -> None:
        writing = self._session.writing()
        sql = self._session.sql
        writing.execute(sql["forget_creates"], (provider, forget_until_s))
        writing.execute(sql["add_create"], (provider, at_s))

    def times(self, provider: str) -> Sequence[float]:
        return [at_s for (at_s,) in self._session.read("creates", (provider,))]


___: type[CreateStore] = SqliteCreates

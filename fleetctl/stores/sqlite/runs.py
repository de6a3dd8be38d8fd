"""Runs, results and metrics in SQLite. Part of the SQLite store; see base.RunStore.

The busiest tables: one statement for an intent, one for a step of a run, and no look-up that a memo
can save.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from math import nan

from fleetctl.common.errors import Conflict, NotFound
from fleetctl.controllers.model import LIVE_STATES, Metric, Run, RunState, SavedCheckpoint
from fleetctl.stores.base import RunStore
from fleetctl.stores.codes import STATES
from fleetctl.stores.sqlite.store_session import Row, StoreSession

_CODES = {RunState(name): code for code, name in enumerate(STATES)}
_STATES = tuple(RunState(name) for name in STATES)
_MASKS: dict[frozenset[RunState], int] = {}  # at most one for each set that the engine names
_PAGE_RUNS = 1000
THIN_STEP_MAX = 10_000  # metrics: some milliseconds


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

    def metrics_of(self, run: str) -> Sequence[Metric]:
        return [_to_metric(row) for row in self._session.read("metrics_of", (run,))]

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
            _CODES[run.state], self._word(run.provider), self._word(run.template_hash),
            run.sandbox_open, run.exit_code, run.journal_offset, run.started_at_s, run.ended_at_s,
            None if run.sandbox == name else run.sandbox, run.handle, run.reason, run.message,
            run.usd_per_s, self._word(run.placed) if run.placed else None, run.usd,
            run.put_aside, self._word(run.content) if run.content else None,
            run.resumed_step, run.saved_step, self._word(run.queued) if run.queued else None,
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

    def _word(self, word: str) -> int:
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

"""Cuts the power of a store at any write: finished transactions must be there, and none by half.

Each history writes to a store as a controller does. SQLite's writes are recorded, and the power is
cut at every sync and at moments between. The store of each cut is opened as at a start. It must
hold the state after the last finished transaction, or after the one that was about to finish. The
next history continues from one of the cuts.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest import mock

from fleetctl.common import state_paths as places
from fleetctl.common.errors import FleetctlError
from fleetctl.controllers.model import Metric, Resource, Run, RunState
from fleetctl.stores import state_dir
from fleetctl.stores.base import EventRow, LedgerEntry
from fleetctl.stores.sqlite.store import SqliteStore, open_store
from tests.campaign.disk import Change, Disk, Sort
from tests.campaign.sqlite_writes import Recorder, recorded

LIVES = 3
TRANSACTIONS = 12  # of a life
# SQLite moves its log into the file after 1,000 pages; smaller logs show that more often.
LOG_PAGES = (4, 16, 1000)
FILLER_CHARS = (10, 10, 3_000, 30_000)
OBJECTS_MAX = 4
NOW_S = 1_000.0
# Where there is one, each of thousands of starts syncs in no time.
MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None

Files = dict[str, bytes]


class FixedClock:
    def now_s(self) -> float:
        return NOW_S


@dataclass(frozen=True, slots=True)
class Moment:
    """What was promised once `at` changes were made: how many transactions had ended, the store's
    id (empty before its first opening returned), the greatest epoch that was handed out.
    """

    at: int
    ended: int
    store_id: str
    epoch: int


@dataclass(slots=True)
class History:
    """states: a digest after each transaction, the first of an empty store. events: their messages,
    in order. moments: of the life that was recorded last, by `at`.
    """

    states: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)


def cut_power(seed: int, *, cuts: int) -> tuple[int, list[str]]:
    """(how often the power was cut, a sentence for each broken promise); ends with the first."""
    dice, history, files, done = Random(seed), History(), Files(), 0
    with TemporaryDirectory(prefix="fleetctl-cuts-", dir=MEMORY) as folder:
        for life in range(LIVES):
            changes = _live(Path(folder, f"life-{life}"), files, history, dice)
            disk, wanted = Disk(files), _choose(changes, dice, cuts // LIVES)
            for at, change in enumerate(changes):
                disk.take(change)
                for _ in range(wanted[at]):
                    files, done = disk.cut(dice), done + 1
                    sentence = _look(Path(folder, "cut"), files, history, at + 1)
                    if sentence:
                        return done, [f"seed {seed}, life {life}, change {at}: {sentence}"]
    return done, []


def _live(home: Path, files: Files, history: History, dice: Random) -> list[Change]:
    """What a controller does to the disk from its start to its end, which may be sudden."""
    _lay_out(home, files)
    before = history.moments[-1] if history.moments else Moment(0, 0, "", 0)
    with (
        recorded(home) as recorder,
        mock.patch.object(state_dir, "write_marker", _noting(recorder, home)),
    ):
        store = open_store(home, FixedClock())
        _take_up(store, history)
        ended = len(history.states) - 1
        history.moments = [
            Moment(0, ended, before.store_id, before.epoch),
            Moment(len(recorder.changes), ended, store.store_id, store.epoch),
        ]
        pages = dice.choice(LOG_PAGES)
        for database in (store._session.state, store._session._events):
            database.execute(f"PRAGMA wal_autocheckpoint = {pages}").fetchone()
        for _ in range(TRANSACTIONS):
            history.events.append(_transact(store, len(history.states), dice))
            history.states.append(_digest(store))
            at, ended = len(recorder.changes), len(history.states) - 1
            history.moments.append(Moment(at, ended, store.store_id, store.epoch))
        killed_at = len(recorder.changes)
        store.close()
    return recorder.changes[:killed_at] if dice.random() < 0.5 else recorder.changes


def _lay_out(home: Path, files: Files) -> None:
    for name, content in files.items():
        path = home / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content)


def _noting(recorder: Recorder, home: Path):  # type: ignore[no-untyped-def]
    write = state_dir.write_marker

    def noting(directory: Path, marker: state_dir.StoreMarker) -> None:
        write(directory, marker)
        if directory == home:
            data = (home / places.STORE_MARKER).read_bytes()
            recorder.changes.append(Change(Sort.PUT, places.STORE_MARKER, data=data))

    return noting


def _take_up(store: SqliteStore, history: History) -> None:
    """What the cut left is where this life goes on."""
    state = _digest(store)
    history.states = history.states[: history.states.index(state)] if history.states else []
    history.states.append(state)
    history.events = _events(store)


def _transact(store: SqliteStore, number: int, dice: Random) -> str:
    """One transaction of the sort that the engine makes; the message of its event."""
    uid, message = f"u{number}", f"transaction {number}"
    with store.transaction():
        living = store.resources.list()
        if len(living) < OBJECTS_MAX:
            row = Resource(uid, "BatchJob", uid, 1, 0, "{}", "{}", {}, {}, 5.0)
            store.resources.put(row, expected_version=None)
        else:
            row = dice.choice(living)
            status = json.dumps({"n": number})
            store.resources.put_status(row.uid, status, expected_version=row.version)
        name = f"fl-{number}"
        run = Run(name, row.uid, number, 1, RunState.RUNNING, "local", name, "hash", "{}", "p", 6.0)
        store.runs.begin([run])
        filler = "x" * dice.choice(FILLER_CHARS)
        metrics = [Metric(step, step, "loss", 1.0, 7.0) for step in range(dice.randrange(4))]
        store.runs.advance(run, result=json.dumps({"filler": filler}), metrics=metrics)
        store.ledger.add([LedgerEntry(number, {}, 1.0)])
        if len(living) == OBJECTS_MAX and dice.random() < 0.3:
            store.resources.delete(living[0].uid)
        if dice.random() < 0.3:
            store.shrink()
        store.events.record([EventRow(row.uid, float(number), "Normal", "Recorded", message)])
    return message


def _choose(changes: list[Change], dice: Random, count: int) -> Counter[int]:
    """At which changes the power is cut, and how often: at each sync first, then at any."""
    syncs = [at for at, it in enumerate(changes) if it.sort in (Sort.SYNC, Sort.PUT)]
    chosen = dice.sample(syncs, min(count, len(syncs)))
    return Counter([*chosen, *dice.choices(range(len(changes)), k=count - len(chosen))])


def _look(home: Path, files: Files, history: History, at: int) -> str:
    """Returns the fault of a start after a cut behind `at` changes; empty without a fault."""
    promised = history.moments[bisect_right(history.moments, at, key=lambda it: it.at) - 1]
    _lay_out(home, files)
    try:
        store = open_store(home, FixedClock())
        try:
            return _compare(store, history, promised)
        finally:
            store.close()
    except (FleetctlError, sqlite3.Error) as error:
        return f"it does not open or work: {error}"
    finally:
        shutil.rmtree(home)


def _compare(store: SqliteStore, history: History, promised: Moment) -> str:
    state, events, ended = _digest(store), _events(store), promised.ended
    if state not in history.states[ended : ended + 2] and history.states:
        known = history.states.index(state) if state in history.states else "none"
        return f"the state is that after transaction {known}, and {ended} had ended"
    if events != history.events[: len(events)]:
        return f"events are not the first ones of those that were written: {events}"
    if promised.store_id and store.store_id != promised.store_id:
        return "it is another store"
    if store.epoch <= promised.epoch:
        return f"epoch {store.epoch} is used again; {promised.epoch} was handed out"
    _transact(store, 1_000_000, Random(0))
    return "" if _digest(store) != state else "nothing can be written any more"


def _digest(store: SqliteStore) -> str:
    """Returns the digest of all rows but the one that counts openings."""
    database, seen = store._session.state, sha256()
    names = database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    for (name,) in sorted(names):
        if name != "store":
            rows = sorted(map(repr, database.execute(f"SELECT * FROM {name}")))
            seen.update("\n".join([name, *rows]).encode())
    return seen.hexdigest()


def _events(store: SqliteStore) -> list[str]:
    found = store._session._events.execute("SELECT message FROM events ORDER BY at_s")
    return [message for (message,) in found]

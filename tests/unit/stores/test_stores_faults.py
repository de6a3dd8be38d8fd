"""Killed writers, full and failing disks, many readers: what was promised is there, and no more."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import stores_writer
from stores_disks import on_a_small_disk

from fleetctl.common import state_paths as places
from fleetctl.common.errors import StoreError
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.sqlite.store import SqliteStore, open_store
from fleetctl.stores.sqlite_errors import DiskFull

KILLS = 20
POLLERS = 20


class FixedClock:
    def now_s(self) -> float:
        return 1_000.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[SqliteStore]:
    opened = open_store(home, FixedClock())
    yield opened
    opened.close()


def test_kill_9_at_any_moment_loses_nothing_that_was_promised(home: Path) -> None:
    dice, promised = random.Random(3), -1
    for _ in range(KILLS):
        writer = subprocess.Popen(
            [sys.executable, stores_writer.__file__, "write", str(home)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )
        assert writer.stdout is not None
        # Some promises in each life, however slow the disk is; then any moment.
        first = [writer.stdout.readline() for _ in range(dice.randint(1, 3))]
        time.sleep(dice.random() * 0.02)
        writer.kill()
        lines = [*first, *writer.stdout]
        writer.wait()
        # A line that was cut off by the kill promises nothing.
        promised = max([promised, *(int(line) for line in lines if line.endswith(b"\n"))])
        with Reader(home) as reader:
            stored = [row.index for row in reader.runs("u1")]
        assert stored == list(range(len(stored))) and len(stored) > promised
    assert promised > KILLS
    database = sqlite3.connect(home / places.STATE_DB)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert database.execute("SELECT count(*) FROM results").fetchone() == (len(stored),)
    database.close()


def test_a_full_disk_refuses_writes_serves_reads_and_heals_by_itself(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [sys.executable, stores_writer.__file__, "fill", str(disk)]
    ran = on_a_small_disk(disk, "8m", command)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert "is full; nothing was written" in document["error"]
    assert document["ballast_dropped"]
    assert document["readable"] == document["acknowledged"] > 0
    assert document["after_ballast"] == document["acknowledged"] + 1
    assert document["recovered"] and document["reopened"]


def test_a_writer_starts_and_records_on_a_disk_that_others_have_filled(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [sys.executable, stores_writer.__file__, "start", str(disk)]
    ran = on_a_small_disk(disk, "8m", command)
    assert ran.stdout.strip() == "[0, 1]", ran.stderr


def test_a_full_state_file_undoes_the_whole_transaction(home: Path, store: SqliteStore) -> None:
    stores_writer.record(store, 0)
    limit_pages(store, more=3)
    with pytest.raises(DiskFull):
        stores_writer.record(store, 1, filler="x" * 100_000)
    assert [r.index for r, _ in store.runs.of("u1")] == [0]
    assert not (home / places.BALLAST).exists()
    limit_pages(store, more=1_000_000)
    stores_writer.record(store, 1, filler="x" * 100_000)
    assert [r.index for r, _ in store.runs.of("u1")] == [0, 1]


def test_the_ballast_is_set_aside_again_once_there_is_room(home: Path) -> None:
    now_s = [1_000.0]

    class MovingClock:
        def now_s(self) -> float:
            return now_s[0]

    store = open_store(home, MovingClock())
    size = (home / places.BALLAST).stat().st_size
    limit_pages(store, more=3)
    with pytest.raises(DiskFull):
        stores_writer.record(store, 0, filler="x" * 100_000)
    limit_pages(store, more=1_000_000)
    stores_writer.record(store, 0)
    assert not (home / places.BALLAST).exists()
    now_s[0] += 3_600.0
    stores_writer.record(store, 1)
    assert (home / places.BALLAST).stat().st_size == size >= 1 << 20
    store.close()


def limit_pages(store: SqliteStore, *, more: int) -> None:
    """Let the state file grow by `more` pages and not one further, as a full disk does."""
    state = store._session.state
    pages = state.execute("PRAGMA page_count").fetchone()[0]
    state.execute(f"PRAGMA max_page_count = {pages + more}")


def test_lost_events_do_not_take_an_outcome_with_them(home: Path, store: SqliteStore) -> None:
    stores_writer.record(store, 0)
    events = store._session._events
    events.execute(f"PRAGMA max_page_count = {events.execute('PRAGMA page_count').fetchone()[0]}")
    for index in range(1, 200):
        stores_writer.record(store, index)
    assert [r.index for r, _ in store.runs.of("u1")] == list(range(200))
    with Reader(home) as reader:
        assert 0 < len(reader.events("u1")) < 200


def test_twenty_pollers_never_lock_out_the_writer_nor_each_other(
    home: Path, store: SqliteStore
) -> None:
    stores_writer.record(store, 0)
    over, failures, polls = threading.Event(), [], []

    def poll() -> None:
        try:
            with Reader(home) as reader:
                seen = 0
                while not over.is_set():
                    reader.data_version()
                    now = sum(1 for _ in reader.tasks("u1"))
                    assert now >= seen
                    seen = now
                    polls.append(1)
        except (StoreError, AssertionError) as error:
            failures.append(error)

    threads = [threading.Thread(target=poll) for _ in range(POLLERS)]
    for thread in threads:
        thread.start()
    for index in range(1, 15):
        stores_writer.record(store, index)
    over.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(polls) >= POLLERS
    assert [r.index for r, _ in store.runs.of("u1")] == list(range(15))


def test_one_file_descriptor_alone_can_write_the_state(home: Path, store: SqliteStore) -> None:
    stores_writer.record(store, 0)
    with Reader(home) as reader:
        assert len(reader.resources()) == 1
        assert access_modes(home / places.STATE_DB) == sorted([os.O_RDWR, os.O_RDONLY])
        assert access_modes(home / places.EVENTS_DB) == [os.O_RDWR]


def access_modes(path: Path) -> list[int]:
    modes = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}") != str(path):
                continue
        except FileNotFoundError:
            continue
        flags = Path(f"/proc/self/fdinfo/{fd}").read_text().split("flags:")[1].split()[0]
        modes.append(int(flags, 8) & os.O_ACCMODE)
    return sorted(modes)


def test_state_is_flushed_at_every_commit_and_readers_never_wait(store: SqliteStore) -> None:
    settings = [
        [
            database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous")
        ]
        for database in (store._session.state, store._session._events)
    ]
    full, normal = 2, 1
    assert settings == [["wal", full], ["wal", normal]]


def test_a_lock_held_by_another_program_is_an_error_that_passes(
    home: Path, store: SqliteStore
) -> None:
    stores_writer.record(store, 0)
    store._session.state.execute("PRAGMA busy_timeout = 50")
    browser = sqlite3.connect(home / places.STATE_DB, isolation_level=None)
    browser.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another program has locked"):
        stores_writer.record(store, 1)
    browser.execute("ROLLBACK")
    browser.close()
    stores_writer.record(store, 1)
    assert [r.index for r, _ in store.runs.of("u1")] == [0, 1]


def test_after_a_failing_disk_no_more_is_written_until_the_store_is_reopened(home: Path) -> None:
    store = open_store(home, FixedClock())
    stores_writer.record(store, 0)
    failing = sqlite3.OperationalError("disk I/O error")
    failing.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    with pytest.raises(StoreError, match="the disk failed"), store.transaction():
        raise failing
    with pytest.raises(StoreError, match="the disk failed"):
        stores_writer.record(store, 1)
    store.close()
    again = open_store(home, FixedClock())
    stores_writer.record(again, 1)
    assert [r.index for r, _ in again.runs.of("u1")] == [0, 1]
    again.close()

"""What the store refuses to open, and that it refuses before it changes a byte."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from stores_disks import on_a_read_only_disk

from fleetctl.common import state_paths as places
from fleetctl.common.errors import StoreError
from fleetctl.controllers.model import CACHED, Resource, Run, RunState
from fleetctl.stores import state_dir
from fleetctl.stores.base import CachedSuccess, CallSums, EventRow, ReuseScope
from fleetctl.stores.queries import SCHEMA_VERSION
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.sqlite.store import open_store


class FixedClock:
    def now_s(self) -> float:
        return 1_000.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose store holds one job with some runs and was closed in good order."""
    made = tmp_path / "home"
    store = open_store(made, FixedClock())
    with store.transaction():
        job = Resource("u1", "BatchJob", "chunks", 1, 0, '{"a":1}', "{}", {}, {}, 5.0)
        store.resources.put(job, expected_version=None)
        for index in range(200):
            name = f"fl-{index}"
            run = Run(
                name, "u1", index, 1, RunState.RUNNING, "local", name, "h" * 64, "{}", "p", 6.0
            )
            store.runs.begin([run])
            store.runs.advance(run, result='{"n": "' + "x" * 50 + '"}')
        store.events.record([EventRow("u1", 1.0, "Normal", "Started", "x")])
    store.close()
    return made


def contents(home: Path) -> dict[str, bytes]:
    """Every file that means something; the lock and SQLite's empty shared memory do not."""
    meaningless = ("lock", "-shm", "-wal")
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.is_file() and not path.name.endswith(meaningless)
    }


def refused(home: Path) -> StoreError:
    """The error of opening, after checking that nothing was written and that the lock is free."""
    before = contents(home)
    with pytest.raises(StoreError) as caught:
        open_store(home, FixedClock())
    assert contents(home) == before
    assert caught.value.hint
    with pytest.raises(StoreError, match=re.escape(str(caught.value))):
        open_store(home, FixedClock())
    return caught.value


def alter(path: Path, statement: str) -> None:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(statement)
    database.close()


# Versions and identity


@pytest.mark.parametrize("file", [places.STATE_DB, places.EVENTS_DB])
def test_a_newer_schema_is_refused_before_any_write(home: Path, file: str) -> None:
    alter(home / file, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    error = refused(home)
    assert f"has schema version `{SCHEMA_VERSION + 1}`" in str(error)
    assert f"up to `{SCHEMA_VERSION}`" in str(error)


def test_a_newer_schema_that_is_still_in_the_log_is_refused_and_the_log_left_alone(
    home: Path,
) -> None:
    path = home / places.STATE_DB
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    # A copy of the files while they are open is what a killed writer leaves behind.
    shutil.copytree(home, home.with_name("killed"))
    database.close()
    killed = home.with_name("killed")
    log = killed / f"{places.STATE_DB}-wal"
    before = log.read_bytes()
    assert before
    refused(killed)
    assert log.read_bytes() == before


def test_the_reader_refuses_a_newer_schema_and_a_foreign_file(home: Path) -> None:
    alter(home / places.STATE_DB, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with Reader(home) as reader, pytest.raises(StoreError, match="schema version"):
        reader.resources()
    alter(home / places.STATE_DB, "PRAGMA application_id = 7")
    with Reader(home) as reader, pytest.raises(StoreError, match="another program"):
        reader.resources()


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / places.STORE).mkdir(parents=True, mode=0o700)
    alter(home / places.STATE_DB, "CREATE TABLE theirs (x)")
    assert "another program" in str(refused(home))


def test_a_file_that_is_no_database_is_refused(home: Path) -> None:
    (home / places.STATE_DB).write_bytes(b"not a database, " * 1000)
    assert "is damaged" in str(refused(home))


def test_the_store_of_another_home_is_refused(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    open_store(other, FixedClock()).close()
    shutil.copy(other / places.STATE_DB, home / places.STATE_DB)
    error = refused(home)
    assert str(home / places.STORE_MARKER) in error.hint


@pytest.mark.parametrize("loss", ["file", "directory", "emptied"])
def test_a_store_that_went_away_is_missed_and_not_founded_anew(home: Path, loss: str) -> None:
    match loss:
        case "file":
            (home / places.STATE_DB).unlink()
        case "directory":
            shutil.rmtree(home / places.STORE)
            # Opening makes the directory for its lock; that is not a store.
            (home / places.STORE).mkdir(mode=0o700)
        case "emptied":
            (home / places.STATE_DB).write_bytes(b"")
    error = refused(home)
    assert "is gone" in str(error)
    (home / places.STORE_MARKER).unlink()
    open_store(home, FixedClock()).close()


def test_a_damaged_marker_still_says_that_a_store_existed(home: Path) -> None:
    (home / places.STORE_MARKER).write_bytes(b"\xff\x00")
    assert "put the right store back" in refused(home).hint


def test_a_store_without_a_marker_gets_one(home: Path) -> None:
    before = (home / places.STORE_MARKER).read_text().split()
    (home / places.STORE_MARKER).unlink()
    open_store(home, FixedClock()).close()
    after = (home / places.STORE_MARKER).read_text().split()
    assert after[0] == before[0] and int(after[1]) > int(before[1])


def test_an_older_copy_of_the_store_opens_with_an_epoch_that_was_never_used(home: Path) -> None:
    copy = (home / places.STATE_DB).read_bytes()
    for _ in range(3):
        store = open_store(home, FixedClock())
        store.close()
    (home / places.STATE_DB).write_bytes(copy)
    restored = open_store(home, FixedClock())
    assert restored.epoch > store.epoch
    restored.close()


def test_a_founding_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / places.STORE).mkdir(parents=True, mode=0o700)
    database = sqlite3.connect(home / places.STATE_DB)
    database.execute("PRAGMA journal_mode = WAL")
    database.close()
    with Reader(home) as reader:
        assert reader.resources() == []
    store = open_store(home, FixedClock())
    assert list(store.resources.list()) == []
    store.close()


# Damage


def test_every_damaged_page_structure_of_the_state_is_found_at_the_start(home: Path) -> None:
    whole = (home / places.STATE_DB).read_bytes()
    dice = random.Random(1)
    for page in range(0, len(whole), 4096):
        damaged = bytearray(whole)
        # The first bytes of a page say what it is and where its cells are.
        start = page + (100 if page == 0 else 0)
        for at in range(start, start + 12):
            damaged[at] ^= dice.randrange(1, 256)
        (home / places.STATE_DB).write_bytes(damaged)
        with pytest.raises(StoreError, match="is damaged"):
            open_store(home, FixedClock())
        assert (home / places.STATE_DB).read_bytes() == damaged


def test_a_cut_off_state_file_is_found_at_the_start(home: Path) -> None:
    whole = (home / places.STATE_DB).read_bytes()
    for pages in range(1, len(whole) // 4096):
        (home / places.STATE_DB).write_bytes(whole[: pages * 4096])
        assert "is damaged" in str(refused(home))


def test_flipped_bytes_are_found_or_end_in_an_answer_or_a_clear_error(
    home: Path,
) -> None:
    """SQLite keeps no checksums: a flip inside a text cannot be seen at the start."""
    whole = (home / places.STATE_DB).read_bytes()
    dice, found = random.Random(2), 0
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(8):
            damaged[dice.randrange(len(whole))] ^= dice.randrange(1, 256)
        (home / places.STATE_DB).write_bytes(damaged)
        (home / places.STORE_MARKER).unlink(missing_ok=True)
        try:
            store = open_store(home, FixedClock())
        except StoreError:
            found += 1
            continue
        # Whatever the flips hit, an answer is the store's or an error that names the file.
        with contextlib.suppress(StoreError):
            store.resources.list()
        with contextlib.suppress(StoreError):
            list(store.runs.of("u1"))
        store.close()
        for tail in ("-wal", "-shm"):
            (home / f"{places.STATE_DB}{tail}").unlink(missing_ok=True)
    assert found > 75  # pages of small tables are mostly empty


def test_a_damaged_history_of_events_is_set_aside_and_the_state_opens(home: Path) -> None:
    path = home / places.EVENTS_DB
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 8192)
    store = open_store(home, FixedClock())
    with store.transaction():
        store.events.record([EventRow("u1", 9.0, "Normal", "Again", "y")])
    assert [r.name for r in store.resources.list()] == ["chunks"]
    store.close()
    assert path.with_name("events.db.damaged").exists()
    with Reader(home) as reader:
        assert [event.reason for event in reader.events("u1")] == ["Again"]


# The directory


def test_a_second_writer_is_refused_and_told_who_holds_the_store(home: Path) -> None:
    first = open_store(home, FixedClock())
    with pytest.raises(StoreError, match=f"process `{os.getpid()}` holds") as caught:
        open_store(home, FixedClock())
    assert "fleetctl down" in caught.value.hint
    first.close()
    open_store(home, FixedClock()).close()


def test_someone_who_only_asks_for_the_holder_does_not_keep_a_writer_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(delay_s: float) -> None:
        slept.append(delay_s)
        if len(slept) == 500:  # five seconds, in which who asks stood still
            asking.close()

    with open(home / places.LOCK, "rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        monkeypatch.setattr(state_dir.time, "sleep", sleep)
        open_store(home, FixedClock()).close()
    assert len(slept) == 500


def test_the_lock_file_names_its_holder_until_that_lets_go_in_good_order(home: Path) -> None:
    store = open_store(home, FixedClock())
    assert (home / places.LOCK).read_text().split()[0] == str(os.getpid())
    store.close()
    assert (home / places.LOCK).read_bytes() == b""


def test_a_writer_whose_lock_file_was_removed_is_fenced_by_the_next_one(home: Path) -> None:
    first = open_store(home, FixedClock())
    (home / places.LOCK).unlink()
    second = open_store(home, FixedClock())
    with pytest.raises(StoreError, match="taken over"), first.transaction():
        first.resources.delete("u1")
    assert [r.uid for r in second.resources.list()] == ["u1"]
    second.close()
    first.close()


def test_the_lock_does_not_pass_to_programs_that_the_holder_starts(home: Path) -> None:
    store = open_store(home, FixedClock())
    holders = [
        fd
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
        and os.readlink(f"/proc/self/fd/{fd}") == str(home / places.LOCK)
    ]
    assert holders and not any(os.get_inheritable(int(fd)) for fd in holders)
    store.close()


def test_nobody_else_can_look_into_the_store(home: Path) -> None:
    (home / places.STORE).chmod(0o755)
    store = open_store(home, FixedClock())
    assert (home / places.STORE).stat().st_mode & 0o777 == 0o700
    for path in (home / places.STORE).glob("*.db*"):
        assert path.stat().st_mode & 0o077 == 0, path
    store.close()


def test_a_home_on_a_read_only_disk_is_refused_with_the_reason(home: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from fleetctl.common.clock import SystemClock\n"
        "from fleetctl.common.errors import StoreError\n"
        "from fleetctl.stores.sqlite.store import open_store\n"
        "try: open_store(Path(sys.argv[1]), SystemClock())\n"
        "except StoreError as error: print(error, error.hint, sep='\\n')\n"
    )
    ran = on_a_read_only_disk(home, [sys.executable, "-c", program, str(home)])
    assert f"`{home}` cannot be written: Read-only file system" in ran.stdout, ran.stderr
    assert "FLEETCTL_HOME" in ran.stdout


def test_a_home_that_is_a_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        open_store(tmp_path / "home", FixedClock())


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 22 0:40 / /mnt/nfs rw - nfs4 server:/export rw
31 30 254:1 / /mnt/nfs/local rw - xfs /dev/vdb rw
32 22 0:41 / /mnt/a\\040b rw shared:1 - fuse.sshfs host: rw
33 22 254:2 / /mnt/over rw - ext4 /dev/vdc rw
34 33 0:42 / /mnt/over rw - 9p share rw
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/home/me", "ext4"),
        ("/mnt/nfs", "nfs4"),
        ("/mnt/nfs/deep/down", "nfs4"),
        ("/mnt/nfs/local/x", "xfs"),
        ("/mnt/nfsx", "ext4"),
        ("/mnt/a b/x", "fuse.sshfs"),
        ("/mnt/over", "9p"),
    ],
)
def test_the_filesystem_is_that_of_the_innermost_newest_mount(directory: str, kind: str) -> None:
    assert state_dir.filesystem_of(Path(directory), MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "9p", "cifs", "fuse.sshfs", "fuseblk", "virtiofs"])
def test_a_shared_filesystem_is_refused_unless_the_user_insists(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"{MOUNTS}40 22 0:9 / {tmp_path} rw - {kind} x rw\n")
    monkeypatch.setattr(state_dir, "MOUNTINFO", mounts)
    with pytest.raises(StoreError, match=f"`{kind}` filesystem") as caught:
        open_store(tmp_path / "home", FixedClock())
    assert "FLEETCTL_UNSAFE_FS=1" in caught.value.hint
    assert not (tmp_path / "home" / places.STORE).exists()
    monkeypatch.setenv("FLEETCTL_UNSAFE_FS", "1")
    open_store(tmp_path / "home", FixedClock()).close()


# Upgrades


def before_hints(state: Path) -> None:
    """As a store was before version 11."""
    alter(state, "ALTER TABLE runs DROP COLUMN hint")
    events = state.with_name(Path(places.EVENTS_DB).name)
    alter(events, "ALTER TABLE events DROP COLUMN hint")
    alter(events, "PRAGMA user_version = 10")


def before_owners(state: Path) -> None:
    """As a store was before version 10."""
    before_hints(state)
    for column in ("worth_s", "worth_usd"):
        alter(state, f"ALTER TABLE runs DROP COLUMN {column}")
    for index in ("cache_keys", "cache_owners"):
        alter(state, f"DROP INDEX {index}")
    alter(state, "ALTER TABLE cache DROP COLUMN owner")
    alter(state, "CREATE UNIQUE INDEX cache_keys ON cache (template_key, unit_key)")


def before_queues_and_notices(state: Path) -> None:
    """As a store was before version 9."""
    before_owners(state)
    alter(state, "DROP TABLE notices")
    alter(state, "ALTER TABLE runs DROP COLUMN queued")


def before_calls(state: Path) -> None:
    """As a store was before version 8."""
    before_queues_and_notices(state)
    for table in ("calls", "asked"):
        alter(state, f"DROP TABLE {table}")


def before_checkpoints(state: Path) -> None:
    """As a store was before version 7."""
    before_calls(state)
    alter(state, "DROP TABLE checkpoints")
    for column in ("resumed_step", "saved_step"):
        alter(state, f"ALTER TABLE runs DROP COLUMN {column}")


def before_sleep(state: Path) -> None:
    """As a store was before version 5."""
    alter(state, "ALTER TABLE runs DROP COLUMN wandb")
    before_checkpoints(state)
    alter(state, "DROP INDEX resources_awake")
    alter(state, "ALTER TABLE resources DROP COLUMN wake_at_s")
    alter(state, "DROP INDEX runs_held")
    alter(state, "CREATE INDEX runs_live ON runs (rid) WHERE state <= 2")


def test_an_older_store_is_brought_up_to_date_and_keeps_its_rows(home: Path) -> None:
    state = home / places.STATE_DB
    for column in ("usd_per_s", "placed", "usd", "put_aside", "content"):
        alter(state, f"ALTER TABLE runs DROP COLUMN {column}")
    alter(state, "DROP INDEX resources_living")
    before_sleep(state)
    alter(state, "ALTER TABLE resources DROP COLUMN namespace")
    alter(
        state,
        "CREATE UNIQUE INDEX resources_living ON resources (kind, name) WHERE deleted_at_s IS NULL",
    )
    alter(state, "DROP TABLE ledger")
    alter(state, "DROP TABLE cache")
    alter(state, "DROP TABLE creates")
    alter(state, "DROP TABLE gone")
    for file in (state, home / places.EVENTS_DB):
        alter(file, "PRAGMA user_version = 1")
    with pytest.raises(StoreError, match="written by an older fleetctl"), Reader(home) as reader:
        reader.resources()
    store = open_store(home, FixedClock())
    runs = [run for run, _ in store.runs.of("u1")]
    assert store.sleep.awake(0.0) == ["u1"]
    assert store.ledger.entries() == []
    assert store.cache.recall("a template", ReuseScope(("u1",))) == frozenset()
    assert store.creates.times("modal") == []
    assert {run.saved_step for run in runs} == {None}
    assert store.runs.checkpoints_of("u1") == []
    assert store.calls.sum_of("e1") == CallSums()
    assert store.notices.waiting(after=0, count_max=1) == []
    store.close()
    assert [run.usd_per_s for run in runs] == [None] * 200
    with Reader(home) as reader:
        assert len(list(reader.runs("u1"))) == 200
        assert {row.namespace for row in reader.resources()} == {"default"}
        assert [event.reason for event in reader.events("u1")] == ["Started"]


def test_a_store_without_contents_takes_what_is_done_for_what_is_wished(home: Path) -> None:
    state = home / places.STATE_DB
    before_sleep(state)
    alter(state, "DROP TABLE gone")
    alter(state, "ALTER TABLE runs DROP COLUMN content")
    for file in (state, home / places.EVENTS_DB):
        alter(file, "PRAGMA user_version = 2")
    store = open_store(home, FixedClock())
    assert {run.content for run, _ in store.runs.of("u1")} == {""}
    store.close()


def test_what_was_over_before_an_upgrade_sleeps_after_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    store = open_store(home, FixedClock())
    over = {"phase": "Succeeded", "observedGeneration": 1}
    for name, status, spec in (
        ("over", over, {}),
        ("something is due", over, {"ttlSecondsAfterFinished": 60}),
        ("changed", {**over, "observedGeneration": 0}, {}),
        ("running", {**over, "phase": "Running"}, {}),
        ("unseen", None, {}),
    ):
        row = Resource(name, "BatchJob", name, 1, 0, json.dumps(spec), "", {}, {}, 5.0)
        with store.transaction():
            stored = store.resources.put(row, expected_version=None)
            if status is not None:
                text = json.dumps(status)
                store.resources.put_status(name, text, expected_version=stored.version)
    store.close()
    state = home / places.STATE_DB
    before_sleep(state)
    alter(state, "PRAGMA user_version = 4")
    store = open_store(home, FixedClock())
    assert store.sleep.awake(1e9) == ["something is due", "changed", "running", "unseen"]
    store.close()


def test_a_store_of_schema_3_gets_room_for_what_is_gone(home: Path) -> None:
    before_sleep(home / places.STATE_DB)
    alter(home / places.STATE_DB, "DROP TABLE gone")
    for file in (places.STATE_DB, places.EVENTS_DB):
        alter(home / file, "PRAGMA user_version = 3")
    store = open_store(home, FixedClock())
    with store.transaction():
        store.resources.delete("u1")
    store.close()
    with Reader(home) as reader:
        assert [name for _, name, _ in reader.gone("BatchJob", "chunks")] == ["chunks"]
        assert [event.reason for event in reader.events("u1")] == ["Started"]


def test_an_older_store_knows_whose_results_it_has(home: Path) -> None:
    """Both what can be reused, and what a reused one had taken."""
    store = open_store(home, FixedClock())
    (first, *_) = (run for run, _ in store.runs.of("u1"))
    name = "fl-" + "a" * 26
    result = CachedSuccess("t", "u", "{}", "{}", first.name, "batchjob/x", 0, 7.0, 0.5, 9.0, "u1")
    reused = replace(
        first, name=name, sandbox=name, index=9000, state=RunState.STARTING, reason=CACHED,
        message="the result of batchjob/x 0, run fl-" + "b" * 26,
    )  # fmt: skip
    other = replace(result, unit_key="v", run="fl-" + "b" * 26)
    with store.transaction():
        store.cache.remember([result, other])
        store.runs.begin([reused])
    store.close()
    before_owners(home / places.STATE_DB)
    alter(home / places.STATE_DB, "PRAGMA user_version = 9")
    store = open_store(home, FixedClock())
    assert store.cache.get("t", "u", ReuseScope(("u1",))) == result
    assert store.cache.get("t", "v", ReuseScope(("u1",))) is None
    assert store.cache.get("t", "v", ReuseScope(("u1",), shared=True)) == replace(other, owner="")
    known = next(run for run, _ in store.runs.of("u1") if run.name == name)
    assert (known.worth_s, known.worth_usd) == (7.0, 0.5)
    store.close()


def test_a_message_of_an_older_store_is_read_as_it_was_written(home: Path) -> None:
    """Before version 11 a hint was the end of its message."""
    store = open_store(home, FixedClock())
    (first, *_) = (run for run, _ in store.runs.of("u1"))
    joined = "no such module; hint: add it"
    with store.transaction():
        failed = replace(first, state=RunState.FAILED, message=joined)
        store.runs.advance(failed, from_states=frozenset({RunState.RUNNING}))
        store.events.record([EventRow("u1", 2.0, "Warning", "Failed", joined)])
    store.close()
    before_hints(home / places.STATE_DB)
    alter(home / places.STATE_DB, "PRAGMA user_version = 10")

    store = open_store(home, FixedClock())
    with store.transaction():
        event = EventRow("u1", 3.0, "Warning", "Failed", "no such module", hint="add it")
        store.events.record([event, event])
        told = replace(failed, message="no such module", hint="add it", reason="Error")
        store.runs.advance(told, from_states=frozenset({RunState.FAILED}))
    assert next(run for run, _ in store.runs.of("u1") if run.name == first.name) == told
    store.close()
    with Reader(home) as reader:
        events = [(it.message, it.hint or "", it.count) for it in reader.events("u1")]
        assert events[1:] == [(joined, "", 1), ("no such module", "add it", 2)]
        row = reader.run(first.name)
        assert row is not None and (row.message, row.hint) == ("no such module", "add it")


def test_a_file_in_place_of_the_state_directory_is_no_empty_store(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("not ours")
    with Reader(tmp_path / "home") as reader, pytest.raises(StoreError, match="it is a file"):
        reader.resources()
    assert (tmp_path / "home").read_text() == "not ours"

"""A backup is of one moment, also while a controller writes; what is put back is what it was."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from fleetctl.common import state_paths as places
from fleetctl.common.errors import NotFound, Refused, StoreError
from fleetctl.controllers.model import Resource
from fleetctl.stores import backup
from fleetctl.stores.base import EventRow
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.sqlite.store import open_store
from tests.unit.stores.stores_disks import on_a_small_disk

NOW_S = 1_000.0


class FixedClock:
    def now_s(self) -> float:
        return NOW_S


def put(home: Path, *names: str) -> str:
    store = open_store(home, FixedClock())
    with store.transaction():
        for name in names:
            row = Resource(name, "BatchJob", name, 1, 0, "{}", "{}", {}, {}, 5.0)
            store.resources.put(row, expected_version=None)
            store.events.record([EventRow(name, 1.0, "Normal", "Created", name)])
    store.close()
    return store.store_id


def names(home: Path) -> list[str]:
    with Reader(home) as reader:
        return [row.name for row in reader.resources()]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    put(tmp_path / "home", "a")
    return tmp_path / "home"


def test_what_is_put_back_is_what_was_copied(home: Path, tmp_path: Path) -> None:
    backup.write_backup(home, tmp_path / "b", now_s=NOW_S)
    store_id = put(home, "later")
    done = backup.restore_backup(home, tmp_path / "b", now_s=NOW_S)
    assert names(home) == ["a"]
    assert done.aside is not None and (done.aside / "state.db").exists()
    with Reader(home) as reader:
        assert [event.message for event in reader.events()] == ["a"]
    store = open_store(home, FixedClock())
    assert store.store_id == store_id and store.epoch == 3  # no epoch is used twice
    store.close()
    assert (home / places.RESTORED).exists()


@pytest.mark.parametrize("loss", ["damaged", "emptied", "removed", "directory"])
def test_a_lost_store_is_put_back(home: Path, tmp_path: Path, loss: str) -> None:
    backup.write_backup(home, tmp_path / "b", now_s=NOW_S)
    path = home / places.STATE_DB
    match loss:
        case "damaged":
            path.write_bytes(b"not a database" * 1000)
        case "emptied":
            path.write_bytes(b"")
        case "removed":
            path.unlink()
        case "directory":
            subprocess.run(["rm", "-r", str(home / places.STORE)], check=True)
    backup.restore_backup(home, tmp_path / "b", now_s=NOW_S)
    assert names(home) == ["a"]


def test_it_can_be_put_into_another_home_and_not_in_place_of_another_store(
    home: Path, tmp_path: Path
) -> None:
    backup.write_backup(home, tmp_path / "b", now_s=NOW_S)
    backup.restore_backup(tmp_path / "new", tmp_path / "b", now_s=NOW_S)
    assert names(tmp_path / "new") == ["a"]
    put(tmp_path / "other", "x")
    with pytest.raises(Refused, match="is a backup of store"):
        backup.restore_backup(tmp_path / "other", tmp_path / "b", now_s=NOW_S)
    assert names(tmp_path / "other") == ["x"]
    backup.restore_backup(tmp_path / "other", tmp_path / "b", now_s=NOW_S, replace=True)
    assert names(tmp_path / "other") == ["a"]


def test_nothing_is_put_back_while_a_controller_holds_the_store(home: Path, tmp_path: Path) -> None:
    backup.write_backup(home, tmp_path / "b", now_s=NOW_S)
    store = open_store(home, FixedClock())
    with pytest.raises(StoreError, match="one controller at a time"):
        backup.restore_backup(home, tmp_path / "b", now_s=NOW_S)
    store.close()


def test_a_file_that_is_not_whole_is_refused_and_changes_nothing(
    home: Path, tmp_path: Path
) -> None:
    file = tmp_path / "b"
    backup.write_backup(home, file, now_s=NOW_S)
    whole = file.read_bytes()
    before = (home / places.STATE_DB).read_bytes()
    with tarfile.open(file) as packed:
        members = [(it.offset_data, it.size) for it in packed.getmembers()]
    for begins, size in members[1:]:
        for at in (begins + 30, begins + size // 2, begins + size - 1):
            damaged = bytearray(whole)
            damaged[at] ^= 0xFF
            file.write_bytes(damaged)
            with pytest.raises(Refused, match="is damaged"):
                backup.restore_backup(home, file, now_s=NOW_S)
    for cut in (0, 100, len(whole) // 2):
        file.write_bytes(whole[:cut])
        with pytest.raises(Refused):
            backup.restore_backup(home, file, now_s=NOW_S)
    with pytest.raises(NotFound):
        backup.restore_backup(home, tmp_path / "nothing", now_s=NOW_S)
    assert (home / places.STATE_DB).read_bytes() == before


def test_a_backup_takes_the_name_of_an_older_one_and_of_nothing_else(
    home: Path, tmp_path: Path
) -> None:
    backup.write_backup(home, tmp_path / "b", now_s=NOW_S)
    put(home, "more")
    assert backup.write_backup(home, tmp_path / "b", now_s=NOW_S).objects == 2
    (tmp_path / "mine.txt").write_text("dear diary")
    with pytest.raises(Refused, match="is not a backup"):
        backup.write_backup(home, tmp_path / "mine.txt", now_s=NOW_S)
    assert (tmp_path / "mine.txt").read_text() == "dear diary"
    with pytest.raises(StoreError, match="cannot be written"):
        backup.write_backup(home, tmp_path / "no" / "b", now_s=NOW_S)
    with pytest.raises(NotFound, match="no store"):
        backup.write_backup(tmp_path / "empty", tmp_path / "c", now_s=NOW_S)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "home", "mine.txt"]


def test_a_damaged_store_is_not_copied(home: Path, tmp_path: Path) -> None:
    backup.write_backup(home, tmp_path / "b", now_s=NOW_S)
    path = home / places.STATE_DB
    pages = path.read_bytes()
    path.write_bytes(pages[:8192] + b"\xff" * (len(pages) - 8192))
    whole = (tmp_path / "b").read_bytes()
    with pytest.raises(StoreError, match="is damaged"):
        backup.write_backup(home, tmp_path / "b", now_s=NOW_S)
    assert (tmp_path / "b").read_bytes() == whole


def test_a_disk_without_room_for_a_backup_is_said_and_holds_none(
    home: Path, tmp_path: Path
) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from fleetctl.stores import backup\n"
        "from fleetctl.common.errors import StoreError\n"
        "home, disk = map(Path, sys.argv[1:])\n"
        "try: backup.write_backup(home, disk / 'b', now_s=1.0)\n"
        "except StoreError as error: print(error, list(disk.iterdir()))\n"
    )
    (tmp_path / "disk").mkdir()
    command = [sys.executable, "-c", program, str(home), str(tmp_path / "disk")]
    done = on_a_small_disk(tmp_path / "disk", "128k", command)
    assert "cannot be written: No space left on device []" in done.stdout, done.stderr


# One transaction writes a job, its event, and a label that says how many there are: a copy that
# is not of one moment has an event too many, or too few.
WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from fleetctl.controllers.model import Resource
from fleetctl.stores.base import EventRow
from fleetctl.stores.sqlite.store import open_store
class Clock:
    def now_s(self): return 1.0
store = open_store(Path(sys.argv[1]), Clock())
total = store.resources.get("BatchJob", "a")
for number in range(100_000):
    name = f"j{number}"
    with store.transaction():
        store.resources.put(Resource(name, "BatchJob", name, 1, 0, "{}", "{}", {}, {}, 1.0),
                            expected_version=None)
        total = store.resources.put(replace(total, labels={"many": str(number + 1)}),
                                    expected_version=total.version)
        store.events.record([EventRow(name, 1.0, "Normal", "Created", name)])
    if number == 20: print("busy", flush=True)
"""


def test_a_backup_under_load_is_of_one_moment(home: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(home)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "busy\n"
        seen = []
        for number in range(5):
            file = tmp_path / f"b{number}"
            backup.write_backup(home, file, now_s=NOW_S)
            seen.append(_moment(file, tmp_path / f"out{number}"))
        assert writer.poll() is None  # it wrote all the time
        writer.kill()
    for objects, said, unknown, missing in seen:
        assert objects == said + 1
        # Sentences follow their transaction: the last ones may be missing, as after a crash.
        assert unknown == 0 and missing <= 2
    assert [objects for objects, *_ in seen] == sorted({objects for objects, *_ in seen})


def _moment(file: Path, into: Path) -> tuple[int, int, int, int]:
    backup.check_backup(file, into)
    with closing(sqlite3.connect(into / "state.db")) as state:
        (objects,) = state.execute("SELECT count(*) FROM resources").fetchone()
        (labels,) = state.execute("SELECT labels FROM resources WHERE name = 'a'").fetchone()
        uids = {uid for (uid,) in state.execute("SELECT uid FROM resources")}
    with closing(sqlite3.connect(into / "events.db")) as events:
        told = {uid for (uid,) in events.execute("SELECT DISTINCT uid FROM events")}
    return objects, int(json.loads(labels)["many"]), len(told - uids), len(uids - told)

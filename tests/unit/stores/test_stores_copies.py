"""Backups in directories and behind URLs: there as a whole or not at all, and only our own go."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError, NotFound, Refused, StoreError
from fleetctl.common.install import install_hint
from fleetctl.controllers.model import Resource
from fleetctl.stores import backup, copies
from fleetctl.stores.copies import PARTIAL, RemoteDirectory, name_for, select_ours, select_surplus
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.sqlite.store import open_store

DAY_S = 86_400.0
URL = "memory://backups/fleet"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return founded(tmp_path / "home")


@pytest.fixture(autouse=True)
def nothing_there() -> Iterator[None]:
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    fsspec.filesystem("memory").dircache.clear()
    yield
    MemoryFileSystem.store.clear()


def founded(home: Path) -> Path:
    store = open_store(home, SystemClock())
    with store.transaction():
        row = Resource("a", "BatchJob", "a", 1, 0, "{}", "{}", {}, {}, 5.0)
        store.resources.put(row, expected_version=None)
    store.close()
    return home


def there(where: str | Path) -> list[str]:
    if isinstance(where, Path):
        return sorted(it.name for it in where.iterdir())
    return sorted(RemoteDirectory(where).names())


@pytest.mark.parametrize("remote", [False, True])
def test_what_lies_there_is_put_back_and_of_ours_the_newest_stay(
    home: Path, tmp_path: Path, remote: bool
) -> None:
    where = URL if remote else f"{tmp_path}/copies/"
    other = founded(tmp_path / "other")
    copies.write_copy(other, where, now_s=1.0)
    if remote:
        fsspec.filesystem("memory").pipe("/backups/fleet/notes.txt", b"mine")
    else:
        (tmp_path / "copies" / "notes.txt").write_text("mine")
    done = [copies.write_copy(home, where, now_s=number * DAY_S, keep=2) for number in range(1, 5)]
    assert [len(it.dropped) for it in done] == [0, 0, 1, 1]
    left = there(URL if remote else tmp_path / "copies")
    assert [it.at for it in select_ours(left, done[0].about.store_id)] == [
        "19700104T000000Z", "19700105T000000Z",
    ]  # fmt: skip
    assert "notes.txt" in left and len(left) == 4
    with pytest.raises(Refused, match="backups of 2 stores"), copies.fetch_copy(home, where):
        pass
    with copies.fetch_copy(home, done[-1].url) as file:
        back = backup.restore_backup(tmp_path / "new", file, now_s=5.0, replace=True)
    with Reader(tmp_path / "new") as reader:
        assert [row.name for row in reader.resources()] == ["a"]
    assert back.about.store_id == done[-1].about.store_id
    assert not [it for it in home.iterdir() if it.name.startswith(".backup-")]


@pytest.mark.parametrize("remote", [False, True])
def test_a_clock_that_was_ahead_costs_no_backup_that_is_new(
    home: Path, tmp_path: Path, remote: bool
) -> None:
    where = URL if remote else f"{tmp_path}/copies/"
    for number in range(3):  # the clock says 2050, and is then put right
        copies.write_copy(home, where, now_s=(80 * 365 + number) * DAY_S, keep=3)
    for number in range(1, 5):
        done = copies.write_copy(home, where, now_s=number * DAY_S, keep=3)
        left = there(URL if remote else tmp_path / "copies")
        assert done.url.rpartition("/")[2] in left
        assert len(left) == 3
    assert [it.at[:8] for it in select_ours(left)] == ["19700103", "19700104", "19700105"]


class Faulty(MemoryFileSystem):
    """A service with one fault. `fault` is told the verb and a path."""

    protocol = "faulty"
    cachable = False
    fault: Callable[[str, str], None] = staticmethod(lambda verb, path: None)
    short = 0  # bytes that it loses of what is written

    def put_file(self, lpath: str, rpath: str, **rest: Any) -> None:
        data = Path(lpath).read_bytes()
        path = self._strip_protocol(rpath)
        type(self).fault("put", path)
        self.pipe_file(path, data[: len(data) - self.short])
        type(self).fault("written", path)

    def rm_file(self, path: str) -> None:
        type(self).fault("remove", path)
        super().rm_file(path)

    def mv(self, path1: str, path2: str, **rest: Any) -> None:
        type(self).fault("move", path2)
        super().mv(path1, path2, **rest)


@pytest.fixture
def faulty() -> Iterator[type[Faulty]]:
    fsspec.register_implementation("faulty", Faulty, clobber=True)
    yield Faulty
    Faulty.fault = staticmethod(lambda verb, path: None)
    Faulty.short = 0


def test_a_backup_counts_where_older_ones_cannot_be_let_go_of(
    home: Path, faulty: type[Faulty]
) -> None:
    """Counted as failed it would be made again every hour, and nothing would ever go."""

    def fault(verb: str, path: str) -> None:
        if verb == "remove" and not path.endswith(PARTIAL):
            raise PermissionError("objects are locked")

    first = copies.write_copy(home, "faulty://backups/fleet", now_s=DAY_S, keep=1)
    faulty.fault = staticmethod(fault)
    done = copies.write_copy(home, "faulty://backups/fleet", now_s=2 * DAY_S, keep=1)
    assert "objects are locked" in done.remark and not done.dropped and not first.remark
    assert len(there("faulty://backups/fleet")) == 2


ENDPOINT_DOWN = ConnectionError("Could not connect to the endpoint URL")


@pytest.mark.parametrize(
    ("verb", "error", "words"),
    [
        ("put", OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        ("put", ENDPOINT_DOWN, "cannot be reached to write: Could not connect"),
        ("written", ENDPOINT_DOWN, "cannot be reached to write"),
        ("move", ENDPOINT_DOWN, "cannot be reached to write"),
        ("put", PermissionError("Access Denied"), "does not let us write: Access Denied"),
    ],
)
def test_a_fault_on_the_way_leaves_nothing_that_counts_and_lets_nothing_go(
    home: Path, faulty: type[Faulty], verb: str, error: Exception, words: str
) -> None:
    url = "faulty://backups"
    first = copies.write_copy(home, url, now_s=DAY_S, keep=1)

    def fault(seen: str, path: str) -> None:
        if seen == verb:
            raise error

    faulty.fault = staticmethod(fault)
    with pytest.raises(FleetctlError, match=words):
        copies.write_copy(home, url, now_s=2 * DAY_S, keep=1)
    faulty.fault = staticmethod(lambda verb, path: None)
    own = [it.name for it in select_ours(there(url), first.about.store_id)]
    assert own == [first.url.rpartition("/")[2]]
    # What was left on the way goes with a later one, and the newest are what count.
    last = copies.write_copy(home, url, now_s=9 * DAY_S, keep=1)
    assert there(url) == [last.url.rpartition("/")[2]]


def cut_short(home: Path, faulty: type[Faulty]) -> list[str]:
    """A service that says it has all of it, and has half. The names that then count."""
    faulty.short = 1_000
    with pytest.raises(FleetctlError):
        copies.write_copy(home, "faulty://backups", now_s=DAY_S)
    return [it.name for it in select_ours(there("faulty://backups"))]


def test_a_copy_that_is_cut_short_is_not_counted(home: Path, faulty: type[Faulty]) -> None:
    assert cut_short(home, faulty) == []


def test_a_backup_that_is_counted_before_it_is_whole_is_caught(
    home: Path, faulty: type[Faulty], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: written under its own name at once, and looked at afterwards."""

    def put(self: RemoteDirectory, file: Path, name: str) -> None:
        self._fs.put_file(str(file), f"{self._path}/{name}")
        self._must_be(f"{self._path}/{name}", file)

    monkeypatch.setattr(RemoteDirectory, "put", put)
    assert cut_short(home, faulty) != []


def test_the_disk_of_the_home_is_full(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(backup, "_copy_both", full)
    with pytest.raises(StoreError, match="No space left"):
        copies.write_copy(home, URL, now_s=DAY_S)
    assert there(URL) == []


@pytest.mark.parametrize(
    ("where", "words", "hint"),
    [
        ("s3://bucket/x", "Install s3fs", f"{install_hint('backup')} s3fs"),
        ("nowhere://x", "no protocol `nowhere`", "s3://bucket/backups"),
    ],
)
def test_what_no_library_reaches_is_refused_with_what_installs_it(
    home: Path, where: str, words: str, hint: str
) -> None:
    with pytest.raises(Refused, match=words) as refused:
        copies.write_copy(home, where, now_s=1.0)
    assert hint in refused.value.hint


def test_a_file_is_a_file_and_nothing_is_kept_count_of_there(home: Path, tmp_path: Path) -> None:
    done = copies.write_copy(home, f"file://{tmp_path}/one.backup", now_s=1.0)
    assert done.url == f"{tmp_path}/one.backup"
    with pytest.raises(Refused, match="is one file"):
        copies.write_copy(home, f"{tmp_path}/one.backup", now_s=1.0, keep=2)
    with pytest.raises(NotFound), copies.fetch_copy(home, f"{URL}/none.backup"):
        pass


def test_only_names_of_ours_and_of_this_store_are_too_many() -> None:
    own = [name_for("a" * 32, number * DAY_S) for number in range(3)]
    others = [name_for("b" * 32, 0.0), "fleet.backup", own[0] + ".old", own[2] + PARTIAL]
    assert select_surplus([*others, *reversed(own)], "a" * 32, 2, fresh=own[2]) == own[:1]


def test_what_a_killed_backup_left_is_tidied_up_a_day_later(home: Path, tmp_path: Path) -> None:
    top = tmp_path / "copies"
    for place, name in ((top, backup.ROOM), (home, copies.ROOM)):
        for age_s, end in ((2 * DAY_S, "old"), (60.0, "young")):
            left = place / f"{name}{end}"
            left.mkdir(parents=True)
            (left / "state.db").write_bytes(b"half")
            at_s = time.time() - age_s
            os.utime(left, (at_s, at_s))
    copies.write_copy(home, f"{top}/", now_s=1.0)
    copies.write_copy(home, URL, now_s=1.0)
    assert [it.name for it in top.iterdir() if it.name.startswith(".")] == [f"{backup.ROOM}young"]
    assert [it.name for it in home.iterdir() if it.name.startswith(".")] == [f"{copies.ROOM}young"]

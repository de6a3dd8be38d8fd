"""A store whose log lost its end: SQLite reads it without an error, and the loss is detected."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.common import state_paths as places
from fleetctl.controllers.model import Resource
from fleetctl.stores import backup
from fleetctl.stores.read.reader import Reader
from fleetctl.stores.sqlite.store import open_store
from fleetctl.stores.state_dir import changes_lost
from tests.unit.stores.test_stores_backup import NOW_S, FixedClock, names, put

MADE = 40


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """As a controller leaves it that is killed: all that it wrote is in the log."""
    put(tmp_path / "home", "first")
    store = open_store(tmp_path / "home", FixedClock())
    for number in range(MADE):
        with store.transaction():
            row = Resource(f"u{number}", "BatchJob", f"n{number}", 1, 0, "{}", "", {}, {}, 5.0)
            store.resources.put(row, expected_version=None)
    shutil.copytree(tmp_path / "home", tmp_path / "killed")
    store.close()
    return tmp_path / "killed"


def log_of(home: Path) -> Path:
    return home / f"{places.STATE_DB}-wal"


def cut(home: Path) -> None:
    data = log_of(home).read_bytes()
    log_of(home).write_bytes(data[: len(data) // 2])


def flipped(home: Path) -> None:
    data = bytearray(log_of(home).read_bytes())
    data[len(data) // 2] ^= 0xFF
    log_of(home).write_bytes(data)


def removed(home: Path) -> None:
    log_of(home).unlink()


@pytest.mark.parametrize("damage", [cut, flipped, removed])
def test_lost_changes_are_noticed_told_and_asked_for(
    home: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    damage(home)
    (home / f"{places.STATE_DB}-shm").unlink(missing_ok=True)
    with caplog.at_level(logging.ERROR):
        open_store(home, FixedClock()).close()
    assert "the newest changes of the store were lost" in caplog.text
    assert changes_lost(home)
    assert len(names(home)) < MADE + 1


def test_a_whole_log_is_taken_as_it_is(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        open_store(home, FixedClock()).close()
        open_store(home, FixedClock()).close()
    assert caplog.text == "" and not (home / places.RESTORED).exists()
    with Reader(home) as reader:
        assert len(list(reader.resources())) == MADE + 1


def test_an_older_backup_is_no_loss(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    backup.write_backup(home, home.parent / "b", now_s=NOW_S)
    put(home, "later")
    backup.restore_backup(home, home.parent / "b", now_s=NOW_S)
    with caplog.at_level(logging.ERROR):
        open_store(home, FixedClock()).close()
    assert caplog.text == "" and not changes_lost(home)

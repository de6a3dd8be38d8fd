"""Starting the controller from a client: its log, and what a person hears when it fails."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError
from fleetctl.common.state_paths import LOCK, LOG
from fleetctl.daemon.client import socket_client, spawn
from fleetctl.stores.sqlite.store import open_store
from tests.cli_controller import controller


def test_a_controller_that_cannot_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "state.db").write_bytes(b"not a database, and nobody's store" * 100)
    with pytest.raises(FleetctlError, match="did not become ready; its log ends with:") as caught:
        spawn.start_controller(tmp_path)
    assert str(caught.value).count("error: ") == 1  # it was tried twice, and said so each time
    assert (tmp_path / LOG).read_text().count("error: ") == 2
    assert str(tmp_path / LOG) in caught.value.hint


def test_a_home_that_cannot_be_made_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FleetctlError, match="cannot keep its state") as caught:
        spawn.start_controller(tmp_path / "file" / "home")
    assert "FLEETCTL_HOME" in caught.value.hint


def test_one_that_is_ready_is_not_started_again(tmp_path: Path) -> None:
    with controller(tmp_path, lambda _: b'{"ok":true,"pid":7,"ready":true}\n'):
        assert spawn.start_controller(tmp_path)["pid"] == 7
    assert not (tmp_path / LOG).exists()


def test_one_that_is_on_its_way_is_waited_for(tmp_path: Path) -> None:
    answers = [b'{"ok":true,"pid":7,"ready":false}\n', b'{"ok":true,"pid":7,"ready":true}\n']
    with controller(tmp_path, lambda _: answers.pop(0)) as asked:
        assert spawn.start_controller(tmp_path)["ready"]
    assert len(asked) == 2
    assert not (tmp_path / LOG).exists()


def test_one_that_ends_while_it_is_asked_is_no_error(tmp_path: Path) -> None:
    answers = [b"", b"", b'{"ok":true,"pid":7,"ready":true}\n']
    with controller(tmp_path, lambda _: answers.pop(0)):
        assert spawn.start_controller(tmp_path)["pid"] == 7
    assert not (tmp_path / LOG).exists()


def test_one_that_is_too_busy_to_answer_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = threading.Event()

    def respond(_line: bytes) -> bytes:
        busy.wait(3.0)  # far more than PING_WAIT_S, also where the asker gets no CPU for a while
        busy.set()
        return b'{"ok":true,"pid":7,"ready":true}\n'

    monkeypatch.setattr(socket_client, "PING_WAIT_S", 0.1)
    with controller(tmp_path, respond) as asked:
        assert spawn.start_controller(tmp_path)["pid"] == 7
    assert len(asked) > 1
    assert not (tmp_path / LOG).exists()


def test_a_full_log_is_kept_once_and_a_new_one_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawn, "LOG_BYTES_MAX", 10)
    (tmp_path / LOG).write_text("longer than ten bytes")
    monkeypatch.setattr(spawn, "READY_WAIT_S", 0.0)
    spawn._open_log(tmp_path).close()
    assert (tmp_path / LOG).read_text() == ""
    assert (tmp_path / f"{LOG}.1").read_text() == "longer than ten bytes"
    assert (tmp_path / LOG).stat().st_mode & 0o077 == 0


def test_the_holder_of_the_lock_is_the_kernels_word_and_not_the_files(tmp_path: Path) -> None:
    assert spawn.find_holder_pid(tmp_path) is None
    store = open_store(tmp_path, SystemClock())
    assert spawn.find_holder_pid(tmp_path) == os.getpid()
    assert not spawn.has_ended_orderly(tmp_path)
    store.close()
    assert spawn.find_holder_pid(tmp_path) is None
    assert spawn.has_ended_orderly(tmp_path)
    (tmp_path / LOCK).write_text(f"{os.getpid()} left by one that was killed\n")
    assert spawn.find_holder_pid(tmp_path) is None
    assert not spawn.has_ended_orderly(tmp_path)

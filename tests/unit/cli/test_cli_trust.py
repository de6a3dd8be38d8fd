"""Whose a state directory and a socket are, before anything is sent there or kept in it."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import StoreError
from fleetctl.common.state_paths import CONTROLLER, SOCKET, STORE_MARKER
from fleetctl.daemon.client import spawn
from fleetctl.daemon.client.socket_client import send_request
from fleetctl.stores.interpreters import InterpreterRun, InterpreterRuns
from fleetctl.stores.sqlite.store import open_store
from tests.cli_controller import controller
from tests.unit.cli.ending import end

STRANGER = 65534


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes another user than the caller the owner of the path."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, STRANGER)
    else:
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)


def test_nothing_is_sent_to_the_home_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    with controller(home, lambda _: b'{"needEnv":["PATH"]}\n') as asked:
        give_away(home, monkeypatch)
        with pytest.raises(StoreError, match="belongs to user"):
            spawn.request_with_env(home, {"verb": "apply"})
    assert asked == []


def test_no_state_is_made_in_the_home_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    give_away(home, monkeypatch)
    begun = InterpreterRun("x", "", 0, "local", {})
    for use in (
        lambda: spawn.start_controller(home),
        lambda: open_store(home, SystemClock()),
        lambda: InterpreterRuns(home).begin(begun),
    ):
        with pytest.raises(StoreError, match="belongs to user"):
            use()
    assert list(home.iterdir()) == []


def test_a_home_that_every_user_may_write_to_is_refused(tmp_path: Path) -> None:
    with controller(tmp_path / "home", lambda _: b'{"ok":true}\n') as asked:
        (tmp_path / "home").chmod(0o777)
        with pytest.raises(StoreError, match="every user of this machine may write") as caught:
            send_request(tmp_path / "home", {"verb": "ping"})
        (tmp_path / "home").chmod(0o755)
        assert "chmod go-w" in caught.value.hint
        assert asked == []


LISTENER = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
listener.listen()
print("ready", flush=True)
connection, _ = listener.accept()
print(connection.recv(100), flush=True)
"""


def test_nothing_is_sent_to_another_user_who_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory with a sticky bit, such as /tmp, others may make files as well."""
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o1777)
    for one in (tmp_path, *tmp_path.parents[:3]):
        one.chmod(one.stat().st_mode | stat.S_IXOTH)
    us = os.geteuid()
    words = [sys.executable, "-c", LISTENER, SOCKET, str(STRANGER if us == 0 else us)]
    listener = subprocess.Popen(words, cwd=home, stdout=subprocess.PIPE, text=True)
    try:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "ready\n"
        if us != 0:
            home.rename(tmp_path / "theirs")
            monkeypatch.setattr(os, "geteuid", lambda: us + 1)
            monkeypatch.setattr(
                "fleetctl.daemon.client.socket_client.refuse_foreign", lambda _: None
            )
            home = tmp_path / "theirs"
        with pytest.raises(StoreError, match="another user listens"):
            send_request(home, {"verb": "ping"})
        assert listener.stdout.readline() == "b''\n"
    finally:
        listener.kill()
        listener.wait()


def test_a_controller_makes_nothing_that_every_user_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    before = os.umask(0)
    try:
        spawn.start_controller(home)
    finally:
        os.umask(before)
    try:
        modes = {it.name: it.stat().st_mode for it in home.rglob("*") if not it.is_symlink()}
        assert {CONTROLLER, STORE_MARKER, SOCKET} <= set(modes)
        assert [name for name, mode in modes.items() if mode & (stat.S_IWGRP | stat.S_IWOTH)] == []
        assert stat.S_ISSOCK(modes[SOCKET]) and socket.AF_UNIX
    finally:
        end(home)

"""Where shared connections to hosts have their sockets: nowhere that another user could listen."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetctl.common import state_paths
from fleetctl.providers.machines import openssh
from fleetctl.providers.machines.openssh import SshTarget, sockets_in, ssh_command

TARGET = SshTarget("a", "a.example")


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of all users, with a short path, and a program `ssh`."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        monkeypatch.setattr(openssh.tempfile, "gettempdir", lambda: directory)
        monkeypatch.setattr(openssh, "find_ssh", lambda: "ssh")
        yield Path(directory)


def shares(sockets: Path) -> bool:
    return "ControlMaster=auto" in ssh_command(TARGET, ["true"], sockets=sockets)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A directory whose path is too long for a socket."""
    return tmp_path / ("deep" * 20)


def test_a_short_home_has_them(temporary: Path) -> None:
    assert sockets_in(temporary / "records") == temporary / "records" / "ssh"
    assert shares(temporary / "records" / "ssh")


def test_for_a_long_one_they_are_where_only_this_user_may_enter(
    temporary: Path, records: Path
) -> None:
    first, again = sockets_in(records), sockets_in(records)
    assert first == again
    assert (first.parent, first.stat().st_mode & 0o777) == (temporary, 0o700)
    assert shares(first)


@pytest.mark.parametrize("trap", ["everybody's", "link", "another's", "file"])
def test_where_another_user_may_listen_connections_are_not_shared(
    temporary: Path, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    place = temporary / f"fleetctl-ssh-{os.geteuid()}"
    if trap == "link":
        (tmp_path / "there").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "there")
    elif trap == "file":
        place.touch()
    else:
        place.mkdir(mode=0o700)
    if trap == "everybody's":
        place.chmod(0o777)
    if trap == "another's":
        ours = os.geteuid()
        monkeypatch.setattr(state_paths, "os", SimpleNamespace(geteuid=lambda: ours + 1))
    sockets = sockets_in(records)
    assert sockets == records / "ssh"
    assert not shares(sockets)

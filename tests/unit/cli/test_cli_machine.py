"""What `doctor` says of this machine, asked of the real one and of a server with a wrong clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from fleetctl.cli.system import machine
from fleetctl.cli.system.machine import check_machine, fits_limits
from fleetctl.controllers.model import Resource
from fleetctl.stores.sqlite.store import open_store


class ClockAhead:
    def now_s(self) -> float:
        return time.time() + 7200


@contextmanager
def server(*, off_s: float) -> Iterator[str]:
    """A server whose clock is off by so much, and which refuses all that it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(401)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return formatdate(time.time() + off_s, usegmt=True)

        def log_message(self, *_args: object) -> None:
            pass

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join(10)


def found(place: Path) -> dict[str, tuple[bool, str, str]]:
    return {f"{one.topic} {one.what}": (one.ok, one.says, one.fix) for one in check_machine(place)}


def test_this_machine_is_told_with_a_command_for_what_is_not_well(tmp_path: Path) -> None:
    told = found(tmp_path / "not" / "there")
    assert {
        "python version", "sqlite version", "disk room", "disk filesystem", "clock store",
        "files limit", "clock monotonic", "kernel namespaces", "kernel landlock", "kernel cgroups",
    } <= set(told)  # fmt: skip
    assert told["python version"][0] and told["sqlite version"][0]
    assert [name for name, (ok, _, fix) in told.items() if not ok and not fix] == []
    assert not (tmp_path / "not").exists()


def test_a_clock_behind_what_the_store_has_seen_is_told(tmp_path: Path) -> None:
    store = open_store(tmp_path / "home", ClockAhead())
    with store.transaction():
        row = Resource("u", "Volume", "x", 1, 0, "{}", "", {}, {}, time.time() + 7200)
        store.resources.put(row, expected_version=None)
    store.close()
    ok, says, fix = found(tmp_path / "home")["clock store"]
    assert (ok, fix) == (False, "sudo timedatectl set-ntp true")
    assert says.endswith("behind what the store has seen")


@pytest.mark.parametrize(("off_s", "ok"), [(0.0, True), (3600.0, False), (-3600.0, False)])
def test_a_clock_is_held_to_that_of_a_provider_whose_key_is_there(
    off_s: float, ok: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "ASK_S", 60.0)  # the server is a thread of ours, and may be late
    with server(off_s=off_s) as url:
        assert "clock server" not in found(tmp_path)  # no key, no call
        monkeypatch.setenv("DAYTONA_API_KEY", "hush")
        monkeypatch.setenv("DAYTONA_API_URL", url)
        fine, says, _ = found(tmp_path)["clock server"]
    assert fine is ok
    assert ("behind" if off_s > 0 else "ahead of" if off_s else "agrees") in says


def test_a_server_that_is_away_says_nothing_of_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYTONA_API_KEY", "hush")
    monkeypatch.setenv("DAYTONA_API_URL", "http://127.0.0.1:1")
    assert "clock server" not in found(tmp_path)


@pytest.mark.parametrize(
    ("version", "limits", "fine"),
    [
        ("1.6.4", ">=1.6,<2", True), ("2.0", ">=1.6,<2", False), ("1.5.9", ">=1.6", False),
        ("1.6.0", "==1.6", True), ("1.6.4", "==1.6.*", True), ("1.7", "~=1.6.2", False),
        ("1.6.9", "~=1.6.2", True), ("1.0", "", True), ("1.0.0rc1", ">=1", True),
    ],
)  # fmt: skip
def test_a_package_is_held_to_what_fleetctl_was_made_for(
    version: str, limits: str, fine: bool
) -> None:
    assert fits_limits(version, limits) is fine


@pytest.mark.parametrize(
    ("tool", "fix"),
    [("grubby", "sudo grubby --update-kernel=ALL --args=x=1"),
     ("update-grub", "add x=1 to GRUB_CMDLINE_LINUX in /etc/default/grub; sudo update-grub"),
     ("", "boot with x=1")],
)  # fmt: skip
def test_what_the_kernel_is_to_boot_with_is_said_with_the_tool_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, fix: str
) -> None:
    if tool:
        (tmp_path / tool).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine._boot_with("x=1") == fix


def test_a_low_limit_of_open_files_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.resource, "getrlimit", lambda _: (1024, 1024))
    fine, says, fix = found(tmp_path)["files limit"]
    assert (fine, says.partition(",")[0]) == (False, "at most 1024 open at once")
    assert "--nofile=65536" in fix

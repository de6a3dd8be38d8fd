"""A controller that hangs, one whose socket was lost, and how `down --force` knows whom it ends."""

from __future__ import annotations

import fcntl
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.system import controller
from fleetctl.cli.system.doctor import _check_controller
from fleetctl.common.state_paths import LOCK, SOCKET
from fleetctl.daemon.client import lock_holder, socket_client, spawn
from fleetctl.daemon.client.lock_holder import (
    ControllerHung,
    is_same,
    kernel_says,
    read_lock_holder,
    read_pulse,
)
from fleetctl.daemon.client.socket_client import send_request
from tests.unit.cli.ending import end

JOB = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {name: never}
spec: {completions: 1, suspend: true, template: {script: "true"}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    made = tmp_path / "home"
    monkeypatch.setenv("FLEETCTL_HOME", str(made))
    spawn.start_controller(made)
    yield made
    end(made)


def run(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


def test_a_controller_that_hangs_is_told_by_every_verb_and_ended_by_force(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_holder, "STOPPED_S", 0.2)
    (tmp_path / "job.yaml").write_text(JOB)
    assert run("apply", "-f", str(tmp_path / "job.yaml"))[0] == 0
    pid = spawn.find_holder_pid(home)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        code, _, talk = run("apply", "-f", str(tmp_path / "job.yaml"))
        assert code == 1 and f"pid {pid}) hangs: it is stopped by a signal" in talk
        assert "fleetctl down --force" in talk and f"kill -CONT {pid}" in talk
        code, out, talk = run("status")
        assert code == 1 and f"pid {pid}, hangs" in out
        assert "down --force" in talk
        code, _, talk = run("wait", "job/never", "--timeout", "0.1s")
        assert code == 124 and "hangs: it is stopped by a signal, and nothing moves on" in talk
        assert run("down")[0] == 1 and spawn.find_holder_pid(home) == pid
        found = _check_controller(home)
        assert not found.ok and "hangs" in found.says and "--force" in found.fix
        with pytest.raises(ControllerHung):
            spawn.start_controller(home)
        # Six verbs, each within its ten seconds; this is against a hang, as machines are busy.
        assert time.monotonic() - began_s < 300
        code, out, _ = run("down", "--force")
        assert code == 0 and f"(pid {pid}) ended by force; running tasks go on" in out
        assert read_lock_holder(home) is None and spawn.has_ended_orderly(home)
    finally:
        if spawn.find_holder_pid(home) == pid:
            os.kill(pid, signal.SIGCONT)
    assert spawn.start_controller(home)["pid"] != pid


def test_one_that_sleeps_and_answers_nothing_hangs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not stopped by anybody: it waits for something that never comes."""
    for name, span_s in (("STOPPED_S", 0.1), ("PING_AFTER_S", 0.2), ("HANGS_AFTER_S", 0.6)):
        monkeypatch.setattr(lock_holder, name, span_s)
    monkeypatch.setattr(socket_client, "SLICE_S", 0.1)
    (tmp_path / LOCK).parent.mkdir()
    program = (
        "import fcntl, os, socket, sys\n"
        "lock = open(sys.argv[1], 'w'); lock.write(str(os.getpid())); lock.flush()\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "listener = socket.socket(socket.AF_UNIX); os.chdir(sys.argv[2])\n"
        "listener.bind('controller.sock'); listener.listen(); print('there', flush=True); input()\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path / LOCK), str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as asleep:
        assert asleep.stdout is not None and asleep.stdout.readline() == b"there\n"
        for verb in ("apply", "ping"):
            with pytest.raises(ControllerHung, match=rf"pid {asleep.pid}\) hangs: .* does no work"):
                send_request(tmp_path, {"verb": verb})
        asleep.communicate(b"\n")


def test_a_socket_that_is_lost_is_made_anew_and_force_is_gentle_where_it_can_be(
    home: Path, tmp_path: Path
) -> None:
    pid = spawn.find_holder_pid(home)
    (home / SOCKET).unlink()
    (tmp_path / "job.yaml").write_text(JOB)
    code, out, talk = run("apply", "-f", str(tmp_path / "job.yaml"))
    assert code == 0 and "batchjob/never created" in out, talk
    assert send_request(home, {"verb": "ping"})["pid"] == pid
    # One that answers is ended in order, with --force too.
    assert run("down", "--force")[1] == "controller stopped; running tasks go on\n"
    assert spawn.find_holder_pid(home) is None and run("down", "--force")[0] == 0


@pytest.mark.parametrize("lie", ["pid", "begun", "boot"])
def test_force_ends_nobody_whom_the_lock_does_not_name_for_sure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    """We hold the lock; the process that its line names is another one, or one of another time."""
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    (tmp_path / LOCK).parent.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        words = {"pid": str(other.pid), "boot": "another", "begun": "1"}
        seen = read_pulse(other.pid)
        assert seen is not None
        if lie != "begun":
            words["begun"] = seen.begun
        if lie != "boot":
            words["boot"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        with (tmp_path / LOCK).open("w") as lock:
            lock.write(f"{words['pid']} {words['boot']} {words['begun']}\n")
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = read_lock_holder(tmp_path)
            assert held is not None and held.pid == other.pid
            assert is_same(held, seen) == (lie == "pid")
            assert kernel_says(tmp_path, other.pid) is False
            assert kernel_says(tmp_path, os.getpid()) is True
            code, _, talk = run("down", "--force")
            assert code == 3 and "nothing was ended" in talk
            assert other.poll() is None
        other.communicate(b"\n")


def test_a_controller_that_is_busy_for_ever_is_ended_by_force_in_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "BUSY_S", 3.0)
    holder = spawn.find_holder_pid(home)
    assert holder is not None
    end(home)
    busy = subprocess.Popen([sys.executable, "-c", BUSY, str(home)], stdout=subprocess.PIPE)
    assert busy.stdout is not None and busy.stdout.readline()
    try:
        code, out, talk = run("down", "--force")
        assert code == 0 and f"(pid {busy.pid}) ended by force" in out
        assert "is busy and does not answer; it is ended by force in 3 s" in talk
    finally:
        busy.kill()
        busy.wait()


BUSY = """
import socket, sys
from pathlib import Path
from fleetctl.common.state_paths import SOCKET
from fleetctl.stores import state_dir
home = Path(sys.argv[1])
state_dir.prepare_directory(home)
lock = state_dir.lock_store(home)
listener = socket.socket(socket.AF_UNIX)
(home / SOCKET).unlink(missing_ok=True)
listener.bind(str(home / SOCKET))
listener.listen()
print("ready", flush=True)
while True:
    pass
"""

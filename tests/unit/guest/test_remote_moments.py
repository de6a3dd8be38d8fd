"""Following for a moment only, being woken on arrival, and a guest that its image compiled."""

from __future__ import annotations

import marshal
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any
from uuid import uuid4

from fleetctl.guest.remote.verbs import MOMENT_LOG_BYTES_MAX
from fleetctl.guest.ship.assemble import quick_table, recompile_source, remote_source
from fleetctl.guest.ship.library import order_argument
from tests.unit.guest.remote_world import FOR_EVER_S, Attached, Box, wait_for


def goes_on(box: Box) -> str:
    """A script that goes on until `let_go`."""
    return f"echo begun; while [ ! -e {box.directory}/go ]; do sleep 0.02; done; echo over"


def let_go(box: Box) -> None:
    (box.directory / "go").touch()


def for_a_moment(box: Box, run: str, text: str, for_s: str) -> Attached:
    order = box.order(run=run, argv=["sh", "-c", text])
    argv = ["attach", "--run", run, "--journal", "0", "--log", "0", "--for", for_s]
    return Attached(box.verb(*argv, "--order", order_argument(order, posix=box.posix)))


def test_who_follows_for_a_moment_leaves_in_peace_and_the_run_goes_on(python_box: Box) -> None:
    run = f"run-{uuid4().hex}"
    # What is told within the moment is for the machine to say, and may be nothing.
    first = for_a_moment(python_box, run, goes_on(python_box), "0.3").rest()
    assert first.code == 0
    assert "ended" not in first.kinds
    let_go(python_box)
    rest = python_box.attach(run=run, journal=len(first.journal), log=len(first.log)).rest()
    assert rest.ended["ok"]
    assert first.log + rest.log[len(first.log) :] == b"begun\nover\n"


def test_a_run_that_ends_within_the_moment_is_told_whole(python_box: Box) -> None:
    story = for_a_moment(python_box, f"run-{uuid4().hex}", "echo done", str(FOR_EVER_S)).rest()
    assert (story.code, story.log, story.kinds[-1]) == (0, b"done\n", "eof")


def test_a_moment_is_over_when_much_was_said_and_nothing_of_it_is_lost(python_box: Box) -> None:
    run, bytes_said = f"run-{uuid4().hex}", 6 * 1024 * 1024
    text = f"head -c {bytes_said} /dev/zero | tr '\\0' x"
    first = for_a_moment(python_box, run, text, str(FOR_EVER_S)).rest()
    assert first.code == 0
    assert MOMENT_LOG_BYTES_MAX <= len(first.log) < MOMENT_LOG_BYTES_MAX + 1024 * 1024
    assert "ended" not in first.kinds
    rest = python_box.attach(run=run, journal=len(first.journal), log=len(first.log)).rest()
    assert rest.ended["ok"]
    assert len(rest.log) == bytes_said


def test_the_guest_in_shell_begins_a_run_and_leaves_at_once(posix_box: Box) -> None:
    run = f"run-{uuid4().hex}"
    story = for_a_moment(posix_box, run, goes_on(posix_box), "0").rest()
    assert (story.code, story.kinds) == (0, [])
    let_go(posix_box)
    assert posix_box.attach(run=run).rest().log == b"begun\nover\n"


def test_whoever_comes_to_the_supervisor_is_told_to_look(python_box: Box) -> None:
    run = f"run-{uuid4().hex}"
    for_a_moment(python_box, run, goes_on(python_box), "0.1").rest()
    # It listens before it begins the run, which may be after the moment.
    wait_for((python_box.directory / "runs" / f"{run}.jsonl").exists)
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(FOR_EVER_S)
        line.connect(str(python_box.directory / "sock"))
        assert line.recv(1) == b"."
    let_go(python_box)
    assert python_box.attach(run=run).rest().ended["ok"]


def test_a_request_counts_whose_asker_has_gone(python_box: Box) -> None:
    run = f"run-{uuid4().hex}"
    attached = python_box.attach(python_box.order(run=run, argv=["sleep", "600"]))
    attached.until(lambda story: "started" in story.kinds)
    os.kill(python_box.supervisor, signal.SIGSTOP)
    python_box.stop(grace_s=5.0, run=run)
    os.kill(python_box.supervisor, signal.SIGCONT)
    assert attached.rest().ended["reason"] == "Stopped"


def test_a_guest_that_is_compiled_where_it_runs_is_the_one_that_is_compiled_here(
    tmp_path: Path,
) -> None:
    guest, program = tmp_path / "guest.py", tmp_path / "recompile.py"
    guest.write_text(remote_source(compiled=False))
    program.write_text(recompile_source())
    subprocess.run([sys.executable, "-I", str(program), str(guest)], check=True)
    theirs, ours = ((tmp_path / "guest.bin").read_bytes(), quick_table())
    assert theirs.partition(b"\n")[0] == ours.partition(b"\n")[0]
    assert codes(theirs) == codes(ours)
    assert len(remote_source(compiled=False)) < len(remote_source()) / 2


def codes(table: bytes) -> dict[str, CodeType]:
    """By name of module."""
    names: dict[str, Any] = {"__name__": "guest"}
    exec(marshal.loads(table.partition(b"\n")[2]), names)
    assert "fleetctl.guest.remote.process.worker" in names["UNPACKED"]
    return {name: marshal.loads(code) for name, code in names["UNPACKED"].items()}

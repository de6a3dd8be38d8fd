"""Reading output with no controller: what the CLI does."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetctl.common.errors import FleetctlError
from fleetctl.guest.journal.logfile import ROOM_BYTES, LogFile, Marks
from fleetctl.providers.paths import runs_dir
from fleetctl.providers.remote.runs.segments import Segments
from fleetctl.providers.rundir.run_log_reader import RunLogReader


def test_what_was_never_there_is_empty(tmp_path: Path) -> None:
    assert RunLogReader(runs_dir(tmp_path, "local", "uid-1"), "run-1").read(0) == (b"", 0)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", ".hidden", "x" * 300, "a\nb"])
def test_a_name_cannot_lead_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(FleetctlError, match="cannot be the name"):
        RunLogReader(runs_dir(tmp_path, "local", "uid-1"), name)
    with pytest.raises(FleetctlError, match="cannot be the name"):
        runs_dir(tmp_path, "local", name)
    with pytest.raises(FleetctlError, match="cannot be the name"):
        runs_dir(tmp_path, name, "uid-1")


def test_a_log_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    runs = runs_dir(tmp_path, "local", "uid-1")
    runs.mkdir(parents=True)
    (runs / "run-1.log").symlink_to("/etc/passwd")
    assert RunLogReader(runs, "run-1").read(0) == (b"", 0)


def test_offsets_mean_the_same_bytes_whatever_was_dropped(tmp_path: Path) -> None:
    runs = runs_dir(tmp_path, "local", "uid-1")
    runs.mkdir(parents=True)
    directory = os.open(runs, os.O_RDONLY)
    log = LogFile(directory, "run-1", 4096)
    text = b"".join(b"%07d\n" % number for number in range(2000))
    for start in range(0, len(text), 100):
        log.write(text[start : start + 100])
    log.close()
    reader = RunLogReader(runs, "run-1")
    assert reader.size() == len(text)
    assert reader.read(8)[0].startswith(b"0000001\n")
    data, offset = reader.read(1024)
    assert b"bytes of output were dropped" in data
    assert text[offset:].startswith(reader.read(offset)[0])
    assert reader.read(len(text) - 8) == (text[-8:], len(text))
    assert sum(path.stat().st_size for path in runs.iterdir()) <= 4096


def test_a_disk_that_was_full_for_a_while_costs_what_came_meanwhile_and_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = runs_dir(tmp_path, "local", "uid-1")
    runs.mkdir(parents=True)
    now, full = [1000.0], [False]
    monkeypatch.setattr("fleetctl.guest.journal.logfile.time.time", lambda: now[0])
    write = os.write

    def limited(handle: int, data: bytes) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, "full")
        return write(handle, data)

    monkeypatch.setattr("fleetctl.guest.journal.logfile.os.write", limited)
    room = [0]
    monkeypatch.setattr(
        "fleetctl.guest.journal.logfile.os.fstatvfs",
        lambda _: SimpleNamespace(f_bavail=room[0], f_frsize=1),
    )
    log = LogFile(os.open(runs, os.O_RDONLY), "run-1", 4096)
    log.write(b"before\n")
    full[0] = True
    log.write(b"lost\n")
    full[0] = False  # and little room, that others need
    now[0] += 5.0
    log.write(b"too soon\n")
    now[0] += 5.0
    room[0] = ROOM_BYTES
    log.write(b"after\n")
    full[0] = True
    for _ in range(9):  # more often than there are segments
        now[0] += 5.0
        log.write(b"the end\n")
    log.close()
    reader, found, offset = RunLogReader(runs, "run-1"), b"", 0
    while (piece := reader.read(offset))[0]:
        found, offset = found + piece[0], piece[1]
    assert found == (
        b"before\n\n[fleetctl: 14 bytes of output were dropped here]\n"
        b"after\n\n[fleetctl: 72 bytes of output were dropped here]\n"
    )
    assert len(list(runs.glob("*.log"))) == 3


def test_what_is_said_later_is_dated_and_a_short_run_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("fleetctl.guest.journal.logfile.time.time", lambda: now[0])
    runs = runs_dir(tmp_path, "local", "uid-1")
    runs.mkdir(parents=True)
    directory = os.open(runs, os.O_RDONLY)
    log = LogFile(directory, "run-1", 4096)
    log.write(b"at once\n")
    assert os.listdir(runs) == ["run-1.log"]
    for now[0], said in ((1060.25, b"later\n"), (1060.5, b"and\n"), (1062.0, b"last\n")):
        log.write(said)
    log.close()
    os.close(directory)
    assert RunLogReader(runs, "run-1").times() == [(8, 1060.25), (18, 1062.0)]


def test_a_remote_runs_output_is_dated_by_its_coming_also_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("fleetctl.guest.journal.logfile.time.time", lambda: now[0])
    Segments(tmp_path, "run-1", fresh=True).write(0, b"at once\n")
    now[0] = 5000.0
    Segments(tmp_path, "run-1").write(8, b"after a restart\n")
    assert RunLogReader(tmp_path, "run-1").times() == [(8, 5000.0)]


def test_days_of_output_make_few_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("fleetctl.guest.journal.logfile.time.time", lambda: now[0])
    marks = Marks(str(tmp_path / "run-1.times"))
    for at in range(0, 2 * 86400, 2):
        now[0] = float(at)
        marks.note(at)
    assert 1_000 < len(RunLogReader(tmp_path, "run-1").times()) < 4_000

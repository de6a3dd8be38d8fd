"""Reading output with no controller: what the CLI does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetctl.errors import FleetctlError
from fleetctl.guest.logfile import LogFile
from fleetctl.providers.rundir.logs import LogReader
from fleetctl.providers.rundir.places import runs_dir


def test_what_was_never_there_is_empty(tmp_path: Path) -> None:
    assert LogReader(runs_dir(tmp_path, "local", "uid-1"), "run-1").read(0) == (b"", 0)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", ".hidden", "x" * 300, "a\nb"])
def test_a_name_cannot_lead_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(FleetctlError, match="cannot be the name"):
        LogReader(runs_dir(tmp_path, "local", "uid-1"), name)
    with pytest.raises(FleetctlError, match="cannot be the name"):
        runs_dir(tmp_path, "local", name)
    with pytest.raises(FleetctlError, match="cannot be the name"):
        runs_dir(tmp_path, name, "uid-1")


def test_a_log_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    runs = runs_dir(tmp_path, "local", "uid-1")
    runs.mkdir(parents=True)
    (runs / "run-1.log").symlink_to("/etc/passwd")
    assert LogReader(runs, "run-1").read(0) == (b"", 0)


def test_offsets_mean_the_same_bytes_whatever_was_dropped(tmp_path: Path) -> None:
    runs = runs_dir(tmp_path, "local", "uid-1")
    runs.mkdir(parents=True)
    directory = os.open(runs, os.O_RDONLY)
    log = LogFile(directory, "run-1", 4096)
    text = b"".join(b"%07d\n" % number for number in range(2000))
    for start in range(0, len(text), 100):
        log.write(text[start : start + 100])
    log.close()
    reader = LogReader(runs, "run-1")
    assert reader.size() == len(text)
    assert reader.read(8)[0].startswith(b"0000001\n")
    data, offset = reader.read(1024)
    assert b"bytes of output were dropped" in data
    assert text[offset:].startswith(reader.read(offset)[0])
    assert reader.read(len(text) - 8) == (text[-8:], len(text))
    assert sum(path.stat().st_size for path in runs.iterdir()) <= 4096

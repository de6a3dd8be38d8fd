"""No process of a run slips through a look at all of them, whatever it does meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.guest.remote.process import tree
from fleetctl.guest.remote.process.tree import Tree

ROOT = Path(__file__).parents[3]


@pytest.fixture
def orphan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A process that carries the mark of run-0, and nothing else tells it."""
    monkeypatch.chdir(tmp_path)
    marks = {"FLEETCTL_RUN": "run-0", "FLEETCTL_PARAMS": f"{tmp_path}/files/params.json"}
    process = subprocess.Popen(
        ["sh", "-c", "echo; read line"],
        env={**os.environ, **marks},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()  # it has its environment; a busy machine takes long to give it one
    yield process.pid
    process.kill()
    process.communicate()


def test_one_that_is_born_after_the_others_were_listed_is_found(
    orphan: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tree._list_processes
    lists = iter([[pid for pid in listed() if pid != orphan]])
    monkeypatch.setattr(tree, "_list_processes", lambda: next(lists, None) or listed())
    assert Tree(-1, ["run-0"]).living() == [orphan]


def test_one_that_becomes_another_program_meanwhile_is_found(
    orphan: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no environment then, for a moment."""
    read, moments = tree._read_environment, iter([b"", b""])
    monkeypatch.setattr(
        tree,
        "_read_environment",
        lambda pid: next(moments, read(pid)) if pid == orphan else read(pid),
    )
    assert Tree(-1, ["run-0"]).living() == [orphan]


def test_one_that_has_ended_is_none_and_of_another_run_neither(orphan: int) -> None:
    assert Tree(-1, ["run-1", "run-"]).living() == []
    os.kill(orphan, 9)
    os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
    assert Tree(-1, ["run-0"]).living() == []


def _uptime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_process_that_has_just_begun_kills_all_and_reads_no_older_ones(
    orphan: int, tmp_path: Path
) -> None:
    read = tmp_path / "read"
    code = (
        "import sys\n"
        "from fleetctl.guest.remote.process import tree\n"
        "reads = tree._read_environment\n"
        f"out = open({str(read)!r}, 'w')\n"
        "tree._read_environment = lambda pid: print(pid, file=out, flush=True) or reads(pid)\n"
        f"found = tree.Tree(-1, ['run-0'], since_s={_uptime_s() - 1})\n"
        "sys.exit(0 if found.kill(within_s=60) else 1)\n"
    )
    words = [sys.executable, "-c", code]
    subprocess.run(words, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    looked_at = read.read_text().split()
    assert str(orphan) in looked_at
    assert "1" not in looked_at
    assert Tree(-1, ["run-0"]).living() == []


def test_a_process_that_cannot_tell_who_is_older_reads_all() -> None:
    assert tree._oldest_start(0.0) == 0.0
    assert tree._oldest_start(_uptime_s() + 1) == 0.0  # later than our own beginning

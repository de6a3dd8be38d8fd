"""No process of a run slips through a look at all of them, whatever it does meanwhile."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.guest.remote.process import tree
from fleetctl.guest.remote.process.tree import Tree


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

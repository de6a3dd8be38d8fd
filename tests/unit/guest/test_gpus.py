"""Samples of a run's GPUs: what its driver's program says, told rarely, and never in the way."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fleetctl.controllers.model import GpuUsage
from fleetctl.guest.journal.record import Journal
from fleetctl.guest.supervision import pace
from fleetctl.guest.supervision.pace import Gpus, sample_of
from fleetctl.providers.rundir.run_journal import parse_journal

ENDED = {"ok": True}


class World:
    """A machine whose `nvidia-smi` says what stands in a file."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.says, self.now_s = top / "says", 0.0
        self.runs = top / "runs"
        self.runs.mkdir()
        program = top / "nvidia-smi"
        program.write_text(f"#!/bin/sh\necho asked >> {top}/asked\ncat {self.says}\n")
        program.chmod(0o755)
        self.asked = top / "asked"
        monkeypatch.setenv("PATH", f"{top}:{os.environ['PATH']}")
        self.journal = Journal(os.open(self.runs, os.O_RDONLY), "run")
        self.gpus = Gpus([0, 1], clock=lambda: self.now_s)

    def after(self, seconds: float, *lines: str) -> GpuUsage | None:
        """The newest sample that is told, once the driver was asked again and has answered."""
        self.says.write_text("".join(f"{line}\n" for line in lines))
        self.now_s += seconds
        self.gpus.take(self.journal)
        while self.gpus._process is not None:
            self.gpus.take(self.journal)
            time.sleep(0.005)
        return parse_journal((self.runs / "run.jsonl").read_bytes()).usage


def test_a_sample_is_of_the_runs_devices_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    seen = world.after(0.0, "0, 90, 40000, 81920", "1, 70, 20000, 81920", "2, 5, 1, 81920")
    assert seen == GpuUsage(2, 80.0, 60000, 163840, None)


def test_what_hardly_changes_is_told_once_a_minute_and_a_change_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    steady = "0, 90, 40000, 81920"
    world.after(0.0, steady)
    for _ in range(3):
        world.after(15.0, "0, 92, 40100, 81920")
    assert len((world.runs / "run.jsonl").read_text().splitlines()) == 1
    world.after(15.0, steady)
    assert len((world.runs / "run.jsonl").read_text().splitlines()) == 2
    seen = world.after(15.0, "0, 10, 40000, 81920")
    assert seen is not None and seen.percent == 10
    assert len(world.asked.read_text().splitlines()) == 6


def test_steps_a_second_are_those_between_two_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.journal.metric(10, {"loss": 1.0}, 0.0)
    world.after(0.0, "0, 90, 1, 10")
    world.journal.metric(70, {"loss": 1.0}, 0.0)
    seen = world.after(30.0, "0, 10, 1, 10")
    assert seen is not None and seen.steps_per_s == 2.0


def test_a_driver_that_hangs_is_not_asked_again_and_one_that_is_missing_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    monkeypatch.setattr(pace, "QUERY", ("sleep", "600"))
    world.gpus.take(world.journal)
    process = world.gpus._process
    for _ in range(3):
        world.now_s += 60.0
        world.gpus.take(world.journal)
    assert world.gpus._process is None and process.wait() < 0
    monkeypatch.setattr(pace, "QUERY", (str(tmp_path / "nothing"),))
    missing = Gpus(None, clock=lambda: world.now_s)
    for _ in range(2):
        assert not missing.take(world.journal)
    assert missing.conclude("line", ENDED, world.journal) == "line"
    assert (world.runs / "run.jsonl").read_bytes() == b""


def test_an_answer_that_says_nothing_of_a_device_is_none() -> None:
    assert sample_of(b"No devices were found\n0, [N/A], 1, 10\n", None) == []

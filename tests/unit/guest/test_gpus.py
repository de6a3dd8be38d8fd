"""Samples of a run's machine: what the driver's program says of its GPUs, and what its processes
use; told rarely, and never in the way.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetctl.controllers.model import GpuUsage
from fleetctl.guest.journal.record import Journal
from fleetctl.guest.supervision import pace
from fleetctl.guest.supervision.pace import Gpus, Load, sample_of
from fleetctl.guest.supervision.processes import read_stat
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


def test_samples_are_numbered_apart_from_what_the_program_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    world.journal.metric(3, {"loss": 1.0}, 0.0)
    world.after(0.0, "0, 90, 40000, 81920")
    world.journal.note("load", {"cpu": 187.5, "memory_mib": 300.0})
    world.journal.metric(4, {"system/cpu.percent": 1.0}, 0.0)
    read = parse_journal((world.runs / "run.jsonl").read_bytes())
    assert [(it.name, it.seq) for it in read.metrics if not it.sampled] == [
        ("loss", 0), ("system/cpu.percent", 1),
    ]  # fmt: skip
    sampled = [it for it in read.metrics if it.sampled]
    assert [(it.name, it.value) for it in sampled] == [
        ("system/gpu.0.percent", 90.0), ("system/gpu.0.memory_mib", 40000.0),
        ("system/cpu.percent", 187.5), ("system/memory_mib", 300.0),
    ]  # fmt: skip
    assert sorted(it.seq for it in sampled) == [it.seq for it in sampled]
    assert len({it.seq for it in read.metrics}) == 6 and read.garbage_lines == 0


def test_a_long_run_is_sampled_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch)
    monkeypatch.setattr(pace, "SAMPLES_MAX", 2)
    for used in range(6):
        world.after(15.0 * 2 ** (used // 2), f"0, {used * 10}, 40000, 81920")
    taken = len((world.runs / "run.jsonl").read_text().splitlines())
    world.after(15.0, "0, 90, 40000, 81920")
    assert taken == 6 and world.gpus._interval.every_s == pace.EVERY_S * 8
    assert len((world.runs / "run.jsonl").read_text().splitlines()) == taken


class Busy:
    """A process that uses a core, and 50 MiB."""

    def __enter__(self) -> int:
        code = "held = b'x' * (50 << 20)\nprint('held', flush=True)\nwhile True: pass"
        words = [sys.executable, "-S", "-c", code]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self.process.stdout is not None and self.process.stdout.readline() == b"held\n"
        return self.process.pid

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_the_load_of_a_run_is_that_of_its_processes(tmp_path: Path) -> None:
    journal = Journal(os.open(tmp_path, os.O_RDONLY), "run")
    now_s = 100.0
    load = Load(100.0, clock=lambda: now_s)
    assert not load.is_due()
    with Busy() as pid:
        while read_cpu_s(pid) < 0.5:
            time.sleep(0.01)
        now_s = 115.0
        assert load.is_due() and load.take([pid, 2**22 + 1], journal)
        spent_s = read_cpu_s(pid)
        now_s = 130.0
        changed = load.take([pid], journal)
    values = [it.value for it in parse_journal((tmp_path / "run.jsonl").read_bytes()).metrics]
    assert 0.5 / 15 * 99 <= values[0] <= spent_s / 15 * 101
    assert values[1] >= 50 and len(values) == (4 if changed else 2)
    now_s = 200.0
    assert load.take([], journal)  # they have ended: nothing is used, and never less
    assert parse_journal((tmp_path / "run.jsonl").read_bytes()).metrics[-2].value == 0.0


def read_cpu_s(pid: int) -> float:
    fields = read_stat(pid)
    assert fields is not None
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

"""The share of a core that sampling a run takes: its processes from /proc, and its GPUs by
`nvidia-smi`, each 15 s, by the guest's own code over real processes.

The clock of the samples is ours, so that ten minutes of them take half a minute. A program in the
place of `nvidia-smi` costs a start and a reply of 8 devices; the driver's own time comes on top.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetctl.guest.journal.record import Journal
from fleetctl.guest.remote.process.tree import Tree
from fleetctl.guest.supervision.pace import EVERY_S, Gpus, Load
from fleetctl.guest.supervision.processes import list_processes
from tests.bench.harness import Figure

SAMPLES = 40
WORKERS, DEVICES = 8, 8
POLL_S = 0.04  # for a second of the samples' clock: their program has ten of these to reply
SHARE_MAX = 0.01
SMI = f"#!/bin/sh\nfor at in {' '.join(map(str, range(DEVICES)))}; do\n"
SMI += '  echo "$at, $((at * 9 % 100)), 40960, 81920"\ndone\n'
TREE = f"for at in $(seq {WORKERS}); do sleep 600 & done; wait"


class SteppedClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def read(self) -> float:
        return self.now_s


def figures() -> list[Figure]:
    with _run() as (leader, journal):
        load_s, known = _measure_load(leader, journal)
        gpu_s = _measure_gpus(journal)
    share = (load_s + gpu_s) / EVERY_S
    what = (
        f"sampling a run of {WORKERS} processes and {DEVICES} GPUs each {EVERY_S:g} s:"
        f" CPU of a sample of processes among {known} of the machine, and of GPUs; share of a core"
    )
    measured = f"{load_s * 1000:.1f} + {gpu_s * 1000:.1f} ms; {share:.2%}"
    return [Figure(what, measured, f"{SHARE_MAX:.0%}", share <= SHARE_MAX)]


def _measure_load(leader: int, journal: Journal) -> tuple[float, int]:
    """Returns (CPU seconds of a sample, number of processes that were looked through)."""
    clock = SteppedClock()
    load = Load(clock.now_s, clock.read)
    tree = Tree(leader, ["bench-0"])
    assert len(tree.living()) == WORKERS + 1

    def sample() -> None:
        clock.now_s += EVERY_S
        assert load.is_due()
        load.take(tree.living(), journal)

    return _spend_cpu_s(sample) / SAMPLES, len(list_processes())


def _measure_gpus(journal: Journal) -> float:
    """Returns the CPU seconds of a sample, with its reader's looks in between."""
    clock = SteppedClock()
    gpus = Gpus(None, clock.read)
    reports = 0

    def sample() -> None:
        nonlocal reports
        for _ in range(int(EVERY_S)):
            clock.now_s += 1.0
            reports += gpus.take(journal)
            time.sleep(POLL_S)

    spent_s = _spend_cpu_s(sample) / SAMPLES
    gpus.take(journal, whole=True)
    assert reports >= SAMPLES * EVERY_S / 60 / 2, "the stand-in for nvidia-smi did not reply"
    return spent_s


def _spend_cpu_s(act: Callable[[], None]) -> float:
    """Returns the CPU seconds of this process and of its ended children over all samples."""
    act()
    before_s = _read_cpu_s()
    for _ in range(SAMPLES):
        act()
    return _read_cpu_s() - before_s


def _read_cpu_s() -> float:
    used = [resource.getrusage(it) for it in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(it.ru_utime + it.ru_stime for it in used)


@contextmanager
def _run() -> Iterator[tuple[int, Journal]]:
    """Yields (process id of the leader of a run, a journal), with `nvidia-smi` on the path."""
    path = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as place:
        program = Path(place) / "nvidia-smi"
        program.write_text(SMI)
        program.chmod(0o755)
        leader = subprocess.Popen(["sh", "-c", TREE], start_new_session=True)
        handle = os.open(place, os.O_RDONLY)
        os.environ["PATH"] = f"{place}:{path}"
        try:
            while len(Tree(leader.pid, ["bench-0"]).living()) <= WORKERS:
                time.sleep(POLL_S)
            yield leader.pid, Journal(handle, "bench-0")
        finally:
            os.environ["PATH"] = path
            os.killpg(leader.pid, 9)
            leader.wait()
            os.close(handle)

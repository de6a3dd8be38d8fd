"""Lists and deletes logs of runs on this machine.

An empty `<run>.past`, made by one rename, replaces a log that is past retention: screens show that
there was a log, and a crash half-way leaves no partial log.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from fleetctl.providers.paths import RUNS, jobs_dir, providers_in
from fleetctl.providers.rundir.run_log_reader import PAST, past_path

# journals stay: they record that a run has begun, and how it ended
_LOGS = (".log", ".times", PAST)
BLOCK_BYTES = 512


class RunFiles(NamedTuple):
    """Files of one run: the output on all nodes and of its services, or its outputs. key:
    `provider/uid/run`.
    """

    key: str
    uid: str
    run: str
    bytes: int
    written_s: float


def logs_in(home: Path) -> Iterator[RunFiles]:
    """Yields the logs of all providers. Blocks: it looks at each file."""
    for provider in providers_in(home):
        jobs = jobs_dir(home, provider)
        for uid in sorted(os.listdir(jobs)) if jobs.is_dir() else ():
            yield from _logs_of(jobs / uid / RUNS, f"{provider}/{uid}", uid)


def _logs_of(
    runs: Path,
    place: str,
    uid: str,
) -> Iterator[RunFiles]:
    sizes: dict[str, int] = {}
    times: dict[str, float] = {}
    try:
        entries = os.scandir(runs)
    except OSError:
        return
    with entries:
        for entry in entries:
            if not entry.name.endswith(_LOGS):
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if entry.name.endswith(PAST) and not found.st_size:
                continue
            run = entry.name.partition(".")[0]
            sizes[run] = sizes.get(run, 0) + found.st_blocks * BLOCK_BYTES
            times[run] = max(times.get(run, 0.0), found.st_mtime)
    for run, size in sizes.items():
        yield RunFiles(
            f"{place}/{run}",
            uid,
            run,
            size,
            times[run],
        )


def let_go(home: Path, keys: Collection[str]) -> int:
    """Deletes these logs and returns their number. keys: as in RunFiles. Raises OSError, after
    deleting some.
    """
    by_place: dict[str, set[str]] = {}
    for key in keys:
        place, _, run = key.rpartition("/")
        by_place.setdefault(place, set()).add(run)
    for place, wanted in by_place.items():
        provider, _, uid = place.partition("/")
        runs = jobs_dir(home, provider) / uid / RUNS
        if not runs.is_dir():
            continue  # its object went meanwhile
        for run in wanted:
            _mark_past(runs, run)
        for name in os.listdir(runs):
            if name.endswith(_LOGS[:2]) and name.partition(".")[0] in wanted:
                (runs / name).unlink(missing_ok=True)
    return len(keys)


def _mark_past(runs: Path, run: str) -> None:
    """Marks a log as past: it is gone, and its existence is recorded."""
    past = past_path(runs, run)
    try:
        (runs / f"{run}.log").rename(past)
    except FileNotFoundError:
        past.touch(mode=0o600)  # only of another node, or of a service
    os.truncate(past, 0)

"""Logs of runs on this machine: which there are, and how one is let go of.

In place of a log that is past retention there is an empty `<run>.past`, made by one rename: screens
tell that there was one, and a crash in the midst leaves no log that is half there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from fleetctl.providers.paths import RUNS, jobs_dir, providers_in
from fleetctl.providers.rundir.logs import PAST, past_path

_LOGS = (".log", ".times", PAST)  # journals stay: they tell that a run has begun, and how it ended
BLOCK_BYTES = 512


class Log(NamedTuple):
    """All that one run printed, on all nodes and of its services. key: `provider/uid/run`."""

    key: str
    uid: str
    run: str
    bytes: int
    written_s: float


def logs_in(home: Path) -> Iterator[Log]:
    """Of all providers. Blocks: it looks at each file."""
    for provider in providers_in(home):
        jobs = jobs_dir(home, provider)
        for uid in sorted(os.listdir(jobs)) if jobs.is_dir() else ():
            yield from _logs_of(jobs / uid / RUNS, f"{provider}/{uid}", uid)


def _logs_of(runs: Path, place: str, uid: str) -> Iterator[Log]:
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
        yield Log(f"{place}/{run}", uid, run, size, times[run])


def let_go(home: Path, keys: Collection[str]) -> int:
    """Let go of these logs; how many went. keys: as in Log. Raises OSError, having let go of
    some.
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
            _mark(runs, run)
        for name in os.listdir(runs):
            if name.endswith(_LOGS[:2]) and name.partition(".")[0] in wanted:
                (runs / name).unlink(missing_ok=True)
    return len(keys)


def _mark(runs: Path, run: str) -> None:
    """From here on there is no log, and it is known that there was one."""
    past = past_path(runs, run)
    try:
        (runs / f"{run}.log").rename(past)
    except FileNotFoundError:
        past.touch(mode=0o600)  # only of another node, or of a service
    os.truncate(past, 0)

"""Lists and deletes the logs of runs, and the outputs that are kept of them, on this machine.

Contents that several runs share, in one object or in several, are counted for the newest of these
runs, and go with the last one that needs them. An empty `<run>.past`, made by one rename, replaces
a log that is past retention: screens show that there was a log, and a crash half-way leaves no
partial log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fleetctl.guest.outputs.pack import BLOBS, pack_name
from fleetctl.providers.paths import RUNS, jobs_dir, providers_in
from fleetctl.providers.rundir.kept_outputs import blobs_named, release_all, release_contents
from fleetctl.providers.rundir.run_log_reader import PAST, past_path

PACK = pack_name("")
UNFINISHED = (f"{PACK}.new", f"{PACK}.part")  # of a keeping that may be under way
# A content without a pack may belong to one that is being written.
YOUNG_S = 24 * 3600.0

# The files of a log. Journals stay: they record that a run has begun, and how it ended.
_LOGS = (".log", ".times", PAST)
BLOCK_BYTES = 512


def outputs_in(home: Path) -> Iterator[RunFiles]:
    """Yields the outputs of all providers. Blocks: it reads the index of each pack."""
    for provider in providers_in(home):
        jobs = jobs_dir(home, provider)
        packs = [
            (_read_written_s(pack), uid, pack)
            for uid in (sorted(os.listdir(jobs)) if jobs.is_dir() else ())
            for pack in _packs_in(jobs / uid / RUNS)
        ]
        packs.sort(reverse=True)
        yield from _measure_packs(provider, [(uid, pack) for _, uid, pack in packs])


def _measure_packs(provider: str, packs: Iterable[tuple[str, Path]]) -> Iterator[RunFiles]:
    """Yields the size of each object's outputs; shared contents count once. packs: with the
    objects that have them, the newest first.
    """
    counted: set[int] = set()  # numbers of files: a content has one, by however many names
    for uid, pack in packs:
        try:
            looks = pack.stat(follow_symlinks=False)
        except OSError:
            continue  # it went meanwhile
        size = looks.st_blocks * BLOCK_BYTES
        for name in _blobs_of(pack):
            number, taken = _size_of(pack.parent / BLOBS / name)
            size += 0 if number in counted else taken
            counted.add(number)
        run = pack.name.removesuffix(PACK)
        yield RunFiles(
            f"{provider}/{uid}/{run}",
            uid,
            run,
            size,
            looks.st_mtime,
        )


def let_go(home: Path, keys: Collection[str]) -> int:
    """Deletes the outputs of these runs and returns their number. keys: as in RunFiles. Raises
    OSError, after deleting some.
    """
    places: dict[Path, set[str]] = {}
    for key in keys:
        provider, uid, run = key.split("/", 2)
        places.setdefault(jobs_dir(home, provider) / uid / RUNS, set()).add(run)
    for runs, wanted in places.items():
        for run in wanted:
            (runs / pack_name(run)).unlink(missing_ok=True)
        _delete_unneeded(runs)
    return len(keys)


def release_shared(home: Path) -> None:
    """Deletes contents that no object keeps any more, such as those of objects that a crash cut
    off from their end. Blocks.
    """
    for provider in providers_in(home):
        release_all(jobs_dir(home, provider).parent)


def _delete_unneeded(runs: Path) -> None:
    """Deletes contents that no pack needs, and what a keeping that died left."""
    blobs = runs / BLOBS
    old_s = time.time() - YOUNG_S
    needed = {name for pack in _packs_in(runs) for name in _blobs_of(pack)}
    left = [it for it in blobs.iterdir() if it.name not in needed] if blobs.is_dir() else []
    left += [it for it in _entries_in(runs) if it.name.endswith(UNFINISHED)]
    gone = []
    for path in left:
        if _read_written_s(path) < old_s:
            path.unlink(missing_ok=True)
            gone.append(path.name)
    release_contents(runs.parents[2], gone)


def _packs_in(runs: Path) -> list[Path]:
    return [it for it in _entries_in(runs) if it.name.endswith(PACK)]


def _entries_in(runs: Path) -> list[Path]:
    if runs.is_dir():
        return list(runs.iterdir())
    return []


def _blobs_of(pack: Path) -> set[str]:
    try:
        return blobs_named(pack)
    except (FileNotFoundError, ValueError):
        return set()  # what cannot be read needs no content


def _size_of(path: Path) -> tuple[int, int]:
    """Returns (the number of the file, its bytes on the disk); zeros where it is gone."""
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return 0, 0
    return found.st_ino, found.st_blocks * BLOCK_BYTES


def _read_written_s(path: Path) -> float:
    try:
        return path.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


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


def delete_logs(home: Path, keys: Collection[str]) -> int:
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

"""The names of mirrors' files: kept through a loss of power when a flush returns, at one sync for
many.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.providers.remote.runs.run_mirror import RunMirror, mark_begun
from fleetctl.providers.remote.runs.segments import Listings
from tests.unit.providers.remote import frames

RUNS = 3
STEPS = st.lists(
    st.tuples(st.integers(0, RUNS - 1), st.sampled_from(["anew", "begin", "line", "log", "flush"])),
    max_size=30,
)


@contextmanager
def disk(directory: Path) -> Iterator[list[set[str]]]:
    """The names that each sync of the directory kept."""
    kept: list[set[str]] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        real(handle)
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            kept.append({path.name for path in directory.iterdir()})

    with patch.object(os, "fsync", fsync):
        yield kept


@given(STEPS)
def test_the_files_of_a_flushed_run_are_among_the_kept_names(steps: list[tuple[int, str]]) -> None:
    with tempfile.TemporaryDirectory() as place, disk(Path(place)) as kept:
        runs, listings = Path(place), Listings()
        listing = listings.of(runs)
        mirrors = [RunMirror(runs, f"run-{number}", listing=listing) for number in range(RUNS)]
        for number, step in steps:
            mirror = mirrors[number]
            match step:
                case "anew":
                    mirrors[number] = RunMirror(runs, f"run-{number}", listing=listing)
                case "begin":
                    first = mark_begun(runs, f"run-{number}")
                    mirrors[number] = RunMirror(runs, f"run-{number}", listing=listing, fresh=first)
                case "line":
                    mirror.feed(frames.started())
                case "log":
                    mirror.feed(frames.output(mirror.log_at, b"words"))
                case _:
                    mirror.flush()
                    written = {
                        path.name
                        for path in runs.glob(f"run-{number}.*")
                        if path.stat().st_size  # an empty one says nothing that could be lost
                    }
                    assert written <= set().union(*kept)


def test_one_sync_keeps_the_names_of_all_runs_that_began_before_it(tmp_path: Path) -> None:
    listings = Listings()
    with disk(tmp_path) as kept:
        mirrors = [RunMirror(tmp_path, f"run-{n}", listing=listings.of(tmp_path)) for n in range(5)]
        for mirror in mirrors:
            mirror.feed(frames.stream(frames.started() + frames.ended(), b"words"))
        for mirror in mirrors:
            mirror.flush()
        assert len(kept) == 1


def test_who_was_marked_before_another_ended_needs_no_sync_of_the_names(tmp_path: Path) -> None:
    listing = Listings().of(tmp_path)
    with disk(tmp_path) as kept:
        for number in range(5):
            assert mark_begun(tmp_path, f"run-{number}")
        mirrors = [RunMirror(tmp_path, f"run-{n}", listing=listing, fresh=True) for n in range(5)]
        for mirror in mirrors:
            mirror.feed(frames.started() + frames.ended())
            mirror.flush()
        assert len(kept) == 1

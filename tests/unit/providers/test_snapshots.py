"""Directories as they were when objects were applied, and digests that are not read twice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fleetctl.providers.sources import source_snapshots
from fleetctl.providers.sources.revision import FileStats, of_copy, of_project
from fleetctl.providers.sources.source_snapshots import EVERYTHING, Snapshots, list_differing

LONG_AGO_S = 1_000_000_000


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "lib").mkdir(parents=True)
    for name in ("train.py", "lib/model.py", "notes.log"):
        (made / name).write_text(name)
    (made / ".gitignore").write_text("*.log\n")
    return made


def test_a_snapshot_holds_what_was_looked_at_under_the_name_of_the_directory(
    project: Path, tmp_path: Path
) -> None:
    kept = Snapshots(tmp_path / "home")
    seen = kept.look(project, ())
    held = kept.keep(project, (), seen)
    copy = kept.path_of(held.revision, "project")
    assert copy is not None and copy.name == "project"
    assert held.revision == seen.revision == of_project(copy, EVERYTHING).revision
    assert sorted(held.files) == [".gitignore", "lib/model.py", "train.py"]
    (project / "train.py").write_text("edited since")
    assert (copy / "train.py").read_text() == "train.py"


@pytest.mark.parametrize("home", [".fleetctl", "lib/state [1]"])
def test_a_state_directory_in_the_project_is_no_part_of_it(project: Path, home: str) -> None:
    kept = Snapshots(project / home)
    seen = kept.look(project, ())
    held = kept.keep(project, ("!*",), kept.look(project, ("!*",)))
    assert not any(it.startswith(home) for it in {*seen.files, *held.files})
    assert "train.py" in held.files
    (project / home / "sources" / "more").write_text("by a task")
    assert kept.look(project, ()).revision == seen.revision


def test_what_was_taken_counts_and_not_what_was_looked_at_before(
    project: Path, tmp_path: Path
) -> None:
    """A planted bug: the revision of one look beside the copy of another."""
    kept = Snapshots(tmp_path / "home")
    seen = kept.look(project, ())
    (project / "train.py").write_text("saved between the look and the copy")
    held = kept.keep(project, (), seen)
    copy = kept.path_of(held.revision, "project")
    assert copy is not None
    assert held.revision != seen.revision
    assert of_copy(copy).revision == held.revision
    assert kept.path_of(seen.revision, "project") is None


def test_a_look_tells_which_files_differ(project: Path, tmp_path: Path) -> None:
    kept = Snapshots(tmp_path / "home")
    held = kept.keep(project, (), kept.look(project, ()))
    (project / "train.py").write_text("other")
    (project / "new.py").write_text("new")
    (project / "lib" / "model.py").unlink()
    (project / "ignored.log").write_text("new")
    now = kept.look(project, ())
    old = kept.files_of(held.revision, "project")
    assert list_differing(old, now.files) == ["lib/model.py", "new.py", "train.py"]


def test_old_snapshots_that_no_object_names_go(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Snapshots(tmp_path / "home")
    first = kept.keep(project, (), kept.look(project, ()))
    (project / "train.py").write_text("second")
    second = kept.keep(project, (), kept.look(project, ()))
    kept.sweep([])
    assert kept.path_of(first.revision, "project") is not None  # an apply may be about to name it
    monkeypatch.setattr(source_snapshots, "YOUNG_S", -1.0)
    kept.sweep([(second.revision, "project")])
    assert kept.path_of(first.revision, "project") is None
    assert kept.path_of(second.revision, "project") is not None
    assert kept.look(project, ()).revision == second.revision  # what was read stays known


def test_a_file_that_nobody_touched_is_read_once(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "stats.json"
    for path in (project / "train.py", project / "lib" / "model.py", project / ".gitignore"):
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    # The change of the times is itself a change, which is only old once a while has passed.
    later_ns = time.time_ns() + 60_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later_ns)
    first = FileStats(place)
    before = of_project(project, (), first)
    first.keep()
    # What is remembered is believed: another digest in it would be told.
    place.write_text(place.read_text().replace(before.files["train.py"].split()[-1], "remembered"))
    assert of_project(project, (), FileStats(place)).files["train.py"] == "file - remembered"
    (project / "train.py").write_text("edited")
    assert of_project(project, (), FileStats(place)).files["train.py"] != "file - remembered"
    assert of_project(project, (), FileStats(place)).files["lib/model.py"].startswith("file - ")


def test_a_file_that_was_saved_just_now_is_read_again(project: Path, tmp_path: Path) -> None:
    """Two saves within one tick of the disk's clock look the same."""
    place = tmp_path / "stats.json"
    stats = FileStats(place)
    before = of_project(project, (), stats)
    stats.keep()
    known = (project / "train.py").stat()
    (project / "train.py").write_text("eight ch"[:8])
    os.utime(project / "train.py", ns=(known.st_atime_ns, known.st_mtime_ns))
    assert of_project(project, (), FileStats(place)).revision != before.revision


def test_a_memory_that_cannot_be_read_or_kept_costs_time_alone(
    project: Path, tmp_path: Path
) -> None:
    place = tmp_path / "stats.json"
    place.write_text("no json")
    stats = FileStats(place / "below a file")
    assert of_project(project, (), FileStats(place)) == of_project(project, (), stats)
    stats.keep()

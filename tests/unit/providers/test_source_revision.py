"""One text for what a directory holds: equal for equal trees, and for a copy of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.providers.sources import revision
from fleetctl.providers.sources.archive import freeze_source
from fleetctl.providers.sources.archive import read_frozen_revision as revision_of_frozen
from fleetctl.providers.sources.revision import of_copy, of_project
from fleetctl.providers.sources.tree_copy import CopyRules, copy_tree
from fleetctl.specs.blocks.template import Source


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """With all that a tree can have: ignore files, links, and what comes back in."""
    made = tmp_path / "project"
    for name in ("a.py", "lib/b.py", "out/keep.txt", "out/drop.txt", ".git/config", "x.log"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(name)
    (made / "empty").mkdir()
    (made / ".dockerignore").write_text("out\n!out/keep.txt\n")
    (made / "inside").symlink_to("lib/b.py")
    (made / "outside").symlink_to("/etc/passwd")
    return made


def source(project: Path, *exclude: str) -> Source:
    return Source(path=str(project), exclude=exclude)


def of_source(source: Source) -> str:
    assert source.path is not None
    return of_project(Path(source.path), source.exclude).revision


def test_a_copy_holds_what_the_directory_held(project: Path, tmp_path: Path) -> None:
    copy_tree(project, tmp_path / "copy", CopyRules.of_project(("*.log",)))
    told = of_source(source(project, "*.log"))
    assert told.startswith("sha256:")
    assert of_copy(tmp_path / "copy").revision == told
    assert of_source(source(project)) != told


@pytest.mark.parametrize("name", ["a.py", "lib/b.py", "out/keep.txt"])
def test_every_file_that_a_copy_has_counts(project: Path, name: str) -> None:
    before = of_source(source(project))
    (project / name).write_text("other")
    assert of_source(source(project)) != before


def test_names_links_modes_and_directories_count(project: Path) -> None:
    seen = {of_source(source(project))}
    (project / "a.py").chmod(0o755)
    seen.add(of_source(source(project)))
    (project / "a.py").rename(project / "c.py")
    seen.add(of_source(source(project)))
    (project / "inside").unlink()
    seen.add(of_source(source(project)))
    (project / "empty").rmdir()
    seen.add(of_source(source(project)))
    assert len(seen) == 5


@pytest.mark.parametrize("name", [".git/config", "__pycache__/a.pyc"])
def test_what_stays_out_of_a_copy_does_not_count(project: Path, name: str) -> None:
    before = of_source(source(project))
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("other")
    assert of_source(source(project)) == before


def test_what_is_too_large_or_not_there_is_not_known(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert of_source(source(tmp_path / "nowhere")) == ""
    monkeypatch.setattr(revision, "BYTES_MAX", 10)
    assert of_source(source(project)) == ""


def test_the_copy_of_a_resource_is_known_as_it_was_taken(project: Path, tmp_path: Path) -> None:
    job, told = tmp_path / "job", of_source(source(project))
    assert revision_of_frozen(source(project), job) == ""
    freeze_source(source(project), job)
    (project / "a.py").write_text("edited since")
    assert revision_of_frozen(source(project), job) == told

"""Copies of a project's directory: its ignore files, the manifest's patterns, and links."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused
from fleetctl.providers.sources import tree_copy
from fleetctl.providers.sources.tree_copy import CopyRules, copy_tree


def made(directory: Path, *names: str) -> Path:
    """A project with these files."""
    for name in names:
        path = directory / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return directory / "project"


def taken(project: Path, *patterns: str) -> list[str]:
    """The files of a copy, relative and sorted."""
    target = project.parent / "copy"
    copy_tree(project, target, CopyRules.of_project(patterns))
    found = (path for path in target.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(str(path.relative_to(target)) for path in found)


def test_what_gitignore_names_stays_out_at_every_depth(tmp_path: Path) -> None:
    project = made(tmp_path, "a.py", "big.bin", "deep/er/big.bin", "deep/a.py", "out/x")
    (project / ".gitignore").write_text("*.bin\n/out/\n")
    assert taken(project) == [".gitignore", "a.py", "deep/a.py"]


def test_a_gitignore_further_down_speaks_of_its_own_directory(tmp_path: Path) -> None:
    project = made(tmp_path, "data/x", "lib/data/x", "lib/deep/keep.log", "lib/no.log")
    (project / ".gitignore").write_text("*.log\n")
    (project / "lib" / ".gitignore").write_text("/data\n!keep.log\n")
    assert taken(project) == [".gitignore", "data/x", "lib/.gitignore", "lib/deep/keep.log"]


def test_the_manifest_has_the_last_word(tmp_path: Path) -> None:
    project = made(tmp_path, "weights.bin", "other.bin", "notes.md")
    (project / ".gitignore").write_text("*.bin\n")
    assert taken(project, "!weights.bin", "*.md") == [".gitignore", "weights.bin"]


def test_a_dockerignore_begins_at_the_top(tmp_path: Path) -> None:
    project = made(tmp_path, "logs/x", "sub/logs/x", "a.tmp", "sub/a.tmp", "sub/deep/b.tmp")
    (project / ".dockerignore").write_text("# what images do not need\nlogs\n**/b.tmp\n./a.tmp\n")
    assert taken(project) == [".dockerignore", "sub/a.tmp", "sub/logs/x"]


def test_a_dockerignore_may_take_back_what_lies_in_a_directory_that_is_out(tmp_path: Path) -> None:
    project = made(tmp_path, "src/a.py", "src/deep/b.py", "other/c.py", ".git/config")
    (project / ".dockerignore").write_text("**\n!src/**\n")
    assert taken(project) == ["src/a.py", "src/deep/b.py"]


def test_docker_takes_back_file_by_file_and_the_rest_of_the_directory_stays_out(
    tmp_path: Path,
) -> None:
    names = ("out/drop.txt", "out/keep.txt", "out/deep/drop.txt", "out/deep/keep.txt", "a.py")
    project = made(tmp_path, *names)
    (project / ".dockerignore").write_text("out\n!out/keep.txt\n!out/deep/keep.*\n")
    assert taken(project) == [".dockerignore", "a.py", "out/deep/keep.txt", "out/keep.txt"]


def test_git_takes_nothing_back_from_a_directory_that_is_out(tmp_path: Path) -> None:
    names = ("out/drop.txt", "out/keep.txt", "logs/drop.txt", "logs/keep.txt", "a.py")
    project = made(tmp_path, *names)
    (project / ".gitignore").write_text("out\n!out/keep.txt\nlogs/*\n!logs/keep.txt\n")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    listing = ["git", "-C", str(project), "ls-files", "--others", "--exclude-standard"]
    said = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()
    assert taken(project) == said == [".gitignore", "a.py", "logs/keep.txt"]


def test_what_docker_takes_back_does_not_open_what_git_leaves_out(tmp_path: Path) -> None:
    project = made(tmp_path, "data/x", "data/keep.txt", "out/x", "out/keep.txt", "a.py")
    (project / ".gitignore").write_text("data/\n")
    (project / ".dockerignore").write_text("out\n!**/keep.txt\n")
    (project / "out" / ".gitignore").write_text("*\n!.gitignore\n!keep.txt\n")
    assert taken(project) == [".dockerignore", ".gitignore", "a.py", "out/keep.txt"]


def test_a_directory_that_the_manifest_takes_back_comes_with_its_content(tmp_path: Path) -> None:
    project = made(tmp_path, "out/x", "out/deep/y", "out/a.tmp", "other/z")
    (project / ".dockerignore").write_text("*\n**/*.tmp\n")
    assert taken(project, "!/out") == ["out/deep/y", "out/x"]


def test_a_checkout_is_taken_whole_but_for_the_manifests_patterns(tmp_path: Path) -> None:
    project = made(tmp_path, "a.bin", "node_modules/x", "docs/y")
    (project / ".gitignore").write_text("*.bin\n")
    copy_tree(project, tmp_path / "copy", CopyRules.of_checkout(("docs/",)))
    names = sorted(path.name for path in (tmp_path / "copy").iterdir())
    assert names == [".gitignore", "a.bin", "node_modules"]


def test_links_that_lead_out_are_neither_followed_nor_copied(tmp_path: Path) -> None:
    project = made(tmp_path, "a.py")
    (tmp_path / "secret").write_text("s")
    (project / "inside").symlink_to("a.py")
    (project / "up").symlink_to("../secret")
    (project / "absolute").symlink_to(tmp_path / "secret")
    (project / "directory").symlink_to("..")
    assert taken(project) == ["a.py", "inside"]
    assert (tmp_path / "copy" / "inside").is_symlink()


def test_an_ignore_file_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    project = made(tmp_path, "a.py")
    (tmp_path / "elsewhere").write_text("*.py\n")
    (project / ".gitignore").symlink_to("../elsewhere")
    assert taken(project) == ["a.py"]


def test_too_large_a_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_copy, "BYTES_MAX", 10)
    project = made(tmp_path, "twelve-bytes", "b")
    with pytest.raises(Refused, match="has more than"):
        taken(project)

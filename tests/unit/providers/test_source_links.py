"""Links of a source: which a copy has, which are named because it has them not, and which are
followed where the manifest says so.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused
from fleetctl.manifest.files.fence import fence_directory
from fleetctl.providers.sources.revision import of_copy, of_project
from fleetctl.providers.sources.tree_copy import CopyRules, copy_tree


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """With links inside and out, and beside it what they lead to."""
    made, outside = tmp_path / "project", tmp_path / "outside"
    for name in ("lib/b.py", "empty/.keep"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(name)
    (outside / "deep").mkdir(parents=True)
    (outside / "train.bin").write_text("data")
    (outside / "deep" / "link.bin").symlink_to("../train.bin")
    (made / "inside").symlink_to("lib/b.py")
    (made / "lib" / "up").symlink_to("..")
    (made / "dangling").symlink_to("nowhere")
    (made / "data").symlink_to("../outside")
    (made / "one.bin").symlink_to(outside / "train.bin")
    (made / "gone").symlink_to("../gone")
    return made


def held(tree: Path) -> dict[str, str]:
    found = {}
    for directory, names, files in os.walk(tree):
        for name in (*names, *files):
            path = Path(directory, name)
            relative = str(path.relative_to(tree))
            if path.is_symlink():
                found[relative] = f"-> {path.readlink()}"
            elif path.is_file():
                found[relative] = path.read_text()
    return found


def test_links_that_lead_out_are_named_and_the_others_are_copied(
    project: Path, tmp_path: Path
) -> None:
    seen = of_project(project, ())
    assert sorted(seen.outside) == ["data", "gone", "one.bin"]
    copy_tree(project, tmp_path / "copy", CopyRules.of_project(()))
    found = held(tmp_path / "copy")
    assert {name: it for name, it in found.items() if it.startswith("->")} == {
        "inside": "-> lib/b.py",
        "lib/up": "-> ..",
        "dangling": "-> nowhere",
    }
    assert of_copy(tmp_path / "copy").revision == seen.revision


def test_followed_links_are_what_they_lead_to_wherever_that_lies(
    project: Path, tmp_path: Path
) -> None:
    seen = of_project(project, (), follow=True)
    assert seen.outside == ("gone",)
    copy_tree(project, tmp_path / "copy", CopyRules.of_project((), follow=True))
    found = held(tmp_path / "copy")
    assert found["one.bin"] == found["data/train.bin"] == found["data/deep/link.bin"] == "data"
    assert found["inside"] == "-> lib/b.py"
    assert of_copy(tmp_path / "copy").revision == seen.revision
    (tmp_path / "outside" / "train.bin").write_text("other")
    assert of_project(project, (), follow=True).revision != seen.revision


@pytest.mark.parametrize("target", ["../..", "../../outside/back"])
def test_a_link_to_what_holds_it_is_refused_with_its_name(
    project: Path, tmp_path: Path, target: str
) -> None:
    (tmp_path / "outside" / "back").mkdir()
    (tmp_path / "outside" / "back" / "again").symlink_to(tmp_path / "outside" / "back")
    (project / "lib" / "round").symlink_to(target)
    with pytest.raises(Refused, match=r"lib/round.*leads to a directory that holds it"):
        of_project(project, ("data",), follow=True)


def test_nothing_is_followed_out_of_a_repository(project: Path) -> None:
    with fence_directory(project), pytest.raises(Refused, match="leads out of the repository"):
        of_project(project, (), follow=True)


def test_what_nobody_may_read_is_named(project: Path, tmp_path: Path) -> None:
    def unreadable(path: Path) -> None:
        # A link in /proc that even root may not read says the same as a file without the mode.
        path.symlink_to("/proc/1/mem") if os.geteuid() == 0 else path.touch(mode=0)

    (project / "secret").mkdir()
    unreadable(project / "secret" / "x.yaml")
    seen = of_project(project, (), follow=True)
    assert seen.revision == "" and seen.problem.startswith("`secret/x.yaml` cannot be read")

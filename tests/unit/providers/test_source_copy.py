"""A used copy of a source serves the next task: whatever a task did to it, it is equal again."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.providers.local.supervisor.run.cleaning import (
    lay_source,
    learn_source,
    restore_source,
)

Edit = Callable[[Path], object]


def make_origin(path: Path) -> None:
    (path / "lib" / "deep").mkdir(parents=True)
    (path / "empty").mkdir()
    (path / "main.py").write_text("print(1)\n")
    (path / "lib" / "util.py").write_text("x = 1\n")
    (path / "lib" / "deep" / "data.bin").write_bytes(bytes(range(256)) * 40)
    (path / "run.sh").write_text("#!/bin/sh\n")
    (path / "run.sh").chmod(0o755)
    (path / "link").symlink_to("main.py")
    for it in (*path.rglob("*"), path):
        os.utime(it, (10**9, 10**9), follow_symlinks=False)


def looks_of(path: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for it in sorted((path, *path.rglob("*"))):
        looks = it.lstat()
        content: object = None
        if it.is_symlink():
            content = it.readlink()
        elif it.is_file():
            content = it.read_bytes()
        times = None if it.is_symlink() else looks.st_mtime_ns
        found[str(it.relative_to(path))] = (stat.filemode(looks.st_mode), times, content)
    return found


def edit_in_place(copy: Path) -> None:
    """Writes other bytes of the same length and puts the old times back."""
    path = copy / "main.py"
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"print(2)\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_a_directory(copy: Path) -> None:
    (copy / "main.py").unlink()
    (copy / "main.py").mkdir()
    (copy / "main.py" / "x").write_text("y")


def close_a_directory(copy: Path) -> None:
    (copy / "lib" / "deep").chmod(0)


EDITS: dict[str, Edit] = {
    "nothing": lambda _: None,
    "appends": lambda copy: (copy / "main.py").open("a").write("more"),
    "in place": edit_in_place,
    "removes": lambda copy: (copy / "lib" / "util.py").unlink(),
    "removes a directory": lambda copy: shutil.rmtree(copy / "lib"),
    "adds": lambda copy: (copy / "out").mkdir(),
    "caches": lambda copy: (copy / "lib" / "__pycache__").mkdir(),
    "mode": lambda copy: (copy / "run.sh").chmod(0o600),
    "link": lambda copy: ((copy / "link").unlink(), (copy / "link").symlink_to("/etc/hostname")),
    "link for a file": lambda copy: (
        (copy / "main.py").unlink(),
        (copy / "main.py").symlink_to("run.sh"),
    ),
    "directory for a file": replace_by_a_directory,
    "closes": close_a_directory,
    "second name": lambda copy: (copy.parent / "kept").hardlink_to(copy / "main.py"),
    "renames": lambda copy: (copy / "lib").rename(copy / "library"),
}


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("edit", EDITS, ids=lambda it: it.replace(" ", "-"))
def test_a_copy_is_equal_again_whatever_a_task_did(
    tmp_path: Path, edit: str, learned: bool
) -> None:
    origin, copy = tmp_path / "origin", tmp_path / "copy"
    make_origin(origin)
    if learned:
        learn_source(str(origin))
    lay_source(str(origin), str(copy))
    assert looks_of(copy) == looks_of(origin)
    given_ns = time.time_ns()
    EDITS[edit](copy)
    restore_source(str(origin), str(copy), given_ns)
    assert looks_of(copy) == looks_of(origin)


def test_a_file_with_another_name_elsewhere_is_another_file_afterwards(tmp_path: Path) -> None:
    origin, copy = tmp_path / "origin", tmp_path / "copy"
    make_origin(origin)
    lay_source(str(origin), str(copy))
    (tmp_path / "kept").hardlink_to(copy / "main.py")
    restore_source(str(origin), str(copy), time.time_ns())
    (tmp_path / "kept").write_text("of an earlier task")
    assert (copy / "main.py").read_text() == "print(1)\n"


def test_a_link_that_a_task_puts_for_the_source_leads_nowhere(tmp_path: Path) -> None:
    origin, copy, outside = tmp_path / "origin", tmp_path / "copy", tmp_path / "outside"
    make_origin(origin)
    outside.mkdir()
    (outside / "precious").write_text("kept")
    lay_source(str(origin), str(copy))
    shutil.rmtree(copy / "lib")
    (copy / "lib").symlink_to(outside)
    restore_source(str(origin), str(copy), 0)
    assert looks_of(copy) == looks_of(origin)
    assert (outside / "precious").read_text() == "kept"


def test_a_link_in_place_of_the_whole_copy_is_not_followed(tmp_path: Path) -> None:
    origin, copy, outside = tmp_path / "origin", tmp_path / "copy", tmp_path / "outside"
    make_origin(origin)
    outside.mkdir()
    (outside / "precious").write_text("kept")
    copy.symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        restore_source(str(origin), str(copy), 0)
    assert (outside / "precious").read_text() == "kept"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(EDITS)), max_size=6), st.booleans(), st.booleans())
def test_edits_in_any_order_are_undone(edits: list[str], known: bool, learned: bool) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        origin, copy = Path(name) / "origin", Path(name) / "copy"
        make_origin(origin)
        wanted = looks_of(origin)
        if learned:
            learn_source(str(origin))
        lay_source(str(origin), str(copy))
        for edit in edits:
            given_ns = time.time_ns() if known else 0
            try:
                EDITS[edit](copy)
            except (OSError, ValueError):
                continue  # an earlier edit has taken what it needs
            restore_source(str(origin), str(copy), given_ns)
            (Path(name) / "kept").unlink(missing_ok=True)
        assert looks_of(copy) == wanted == looks_of(origin)

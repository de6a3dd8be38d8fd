"""Archives out of a sandbox, also of one that means ill."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from fleetctl.cli.access.cp_run import RunPlace, run_place
from fleetctl.cli.access.tar import Into, unpack, upload_place
from fleetctl.common.errors import UsageError


def archive(*entries: tuple[str, bytes | None], link: str = "") -> io.BytesIO:
    """Files with a content and directories without; last a symlink named `link` to `/etc`."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            entry.mode, entry.size = 0o4755, len(content or b"")
            made.addfile(entry, io.BytesIO(content or b""))
        if link:
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc"
            made.addfile(entry)
    file.seek(0)
    return file


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil"])
def test_an_archive_cannot_write_outside(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(UsageError, match="outside"):
        unpack(archive((name, b"x")), str(target), contents=False)
    assert list(tmp_path.rglob("evil")) == []


def test_links_are_left_out_and_special_bits_are_dropped(tmp_path: Path) -> None:
    moved = unpack(
        archive(("a", None), ("a/run", b"x"), link="a/etc"), str(tmp_path), contents=False
    )
    assert moved == (1, 1, ("a/etc",))
    assert (tmp_path / "a/run").stat().st_mode & 0o7777 == 0o755
    assert not (tmp_path / "a/etc").exists()


def test_a_torn_archive_is_an_error_and_not_a_traceback(tmp_path: Path) -> None:
    whole = archive(("a", b"x" * 5000)).getvalue()
    with pytest.raises(UsageError):
        unpack(io.BytesIO(whole[:2000]), str(tmp_path), contents=False)
    with pytest.raises(UsageError):
        unpack(io.BytesIO(b"no tar"), str(tmp_path), contents=False)


@pytest.mark.parametrize(
    ("target", "sort", "into"),
    [
        ("/data", "directory", Into("/data", "src")),
        ("/data", "missing", Into("/", "data")),
        ("new", "missing", Into(".", "new")),
        (".", "directory", Into(".", "src")),
        ("/a/b", "missing", Into("/a", "b")),
    ],
)
def test_a_directory_goes_into_one_that_is_there_and_becomes_one_that_is_not(
    tmp_path: Path, target: str, sort: str, into: Into
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    assert upload_place(source, "src", target, sort) == into


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("job/x:3/a/b", RunPlace("job/x", 3, "a/b")),
        ("job/x:3//tmp/a", RunPlace("job/x", 3, "/tmp/a")),
        ("job/x:3", RunPlace("job/x", 3, ".")),
        ("sweep/x:/tmp/a", RunPlace("sweep/x", None, "/tmp/a")),
        ("job/x:a.txt", RunPlace("job/x", None, "a.txt")),
        ("volume/x:/a", None),
        ("./job/x:1", None),
        ("job/x", None),
        ("a", None),
    ],
)
def test_a_place_in_a_task_is_told_from_a_path(text: str, place: RunPlace | None) -> None:
    assert run_place(text) == place

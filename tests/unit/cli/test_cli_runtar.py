"""Archives out of a sandbox, also of one that means ill."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from fleetctl.cli.access.cp_run import RunPath, parse_run_path
from fleetctl.cli.access.tar import ArchiveTarget, pack_archive, resolve_upload, unpack_archive
from fleetctl.common.errors import Refused, UsageError


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
        unpack_archive(archive((name, b"x")), str(target), contents=False)
    assert list(tmp_path.rglob("evil")) == []


def test_a_directory_whose_parents_were_not_sent_is_made_with_them(tmp_path: Path) -> None:
    unpack_archive(archive(("top", None), ("top/a/b", None)), str(tmp_path), contents=False)
    assert (tmp_path / "top/a/b").is_dir()


def test_links_are_left_out_and_special_bits_are_dropped(tmp_path: Path) -> None:
    moved = unpack_archive(
        archive(("a", None), ("a/run", b"x"), link="a/etc"), str(tmp_path), contents=False
    )
    assert moved == (1, 1, ("a/etc",))
    assert (tmp_path / "a/run").stat().st_mode & 0o7777 == 0o755
    assert not (tmp_path / "a/etc").exists()


def test_a_torn_archive_is_an_error_and_not_a_traceback(tmp_path: Path) -> None:
    whole = archive(("a", b"x" * 5000)).getvalue()
    with pytest.raises(UsageError):
        unpack_archive(io.BytesIO(whole[:2000]), str(tmp_path), contents=False)
    with pytest.raises(UsageError):
        unpack_archive(io.BytesIO(b"no tar"), str(tmp_path), contents=False)


@pytest.mark.parametrize(
    ("target", "sort", "into"),
    [
        ("/data", "directory", ArchiveTarget("/data", "src")),
        ("/data", "missing", ArchiveTarget("/", "data")),
        ("new", "missing", ArchiveTarget(".", "new")),
        (".", "directory", ArchiveTarget(".", "src")),
        ("/a/b", "missing", ArchiveTarget("/a", "b")),
    ],
)
def test_a_directory_goes_into_one_that_is_there_and_becomes_one_that_is_not(
    tmp_path: Path, target: str, sort: str, into: ArchiveTarget
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    assert resolve_upload(source, "src", target, sort) == into


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("job/x:3/a/b", RunPath("job/x", 3, "a/b")),
        ("job/x:3//tmp/a", RunPath("job/x", 3, "/tmp/a")),
        ("job/x:3", RunPath("job/x", 3, ".")),
        ("sweep/x:/tmp/a", RunPath("sweep/x", None, "/tmp/a")),
        ("job/x:a.txt", RunPath("job/x", None, "a.txt")),
        ("volume/x:/a", None),
        ("./job/x:1", None),
        ("job/x", None),
        ("a", None),
    ],
)
def test_a_place_in_a_task_is_told_from_a_path(text: str, place: RunPath | None) -> None:
    assert parse_run_path(text) == place


def sparse(size: int) -> io.BytesIO:
    """A file of one letter and a hole, as `tar --sparse` packs it: some hundred bytes."""
    entry = tarfile.TarInfo("a")
    entry.size = 512
    header = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:410] = b"%011o\0%011o\0" % (0, 512)
    header[483:495] = b"%011o\0" % size
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    return io.BytesIO(bytes(header) + b"x" * 512 + bytes(1024))


def test_an_archive_writes_no_more_than_was_sent(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="with holes in it"):
        unpack_archive(sparse(3 << 30), str(tmp_path / "a"), contents=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "entries",
    [
        [("a", None), ("a/b", b"x"), ("a/b", None)],
        [("a", None), ("a/b", b"x"), ("a/b/c", b"y")],
        [("a", None), ("a/b", b"x"), ("a/b/c", None)],
        [("a", None), ("a/b", None), ("a/b", b"x")],
        [("a", None), ("a/" + "b/" * 900 + "c", b"x")],
        [("a", None), ("a/" + "b/" * 40_000 + "c", b"x")],
        [("a", None), ("a/" + "b" * 5000, b"x")],
        [("a", None), ("a/" + "b" * 5000, None)],
        [("a" * 5000, b"x")],
    ],
)
def test_what_cannot_be_a_tree_of_files_is_refused_in_words(
    tmp_path: Path, entries: list[tuple[str, bytes | None]]
) -> None:
    with pytest.raises(UsageError) as caught:
        unpack_archive(archive(*entries), str(tmp_path), contents=False)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("link", "target", "contents"),
    [("top", ".", False), ("top/sub", ".", False), ("sub", ".", True), ("new/sub", "new", True)],
)
@pytest.mark.parametrize("sent", [("top/sub", None), ("top/sub/a", b"theirs")])
def test_an_archive_is_not_unpacked_through_a_link_of_the_users_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    link: str,
    target: str,
    contents: bool,
    sent: tuple[str, bytes | None],
) -> None:
    mine, here = tmp_path / "mine", tmp_path / "here"
    mine.mkdir()
    (here / link).parent.mkdir(parents=True)
    (here / link).symlink_to(mine)
    monkeypatch.chdir(here)
    name = sent[0].removeprefix("top/") if contents else sent[0]
    with pytest.raises(Refused, match="nothing is copied through links"):
        unpack_archive(archive((name, sent[1])), target, contents=contents)
    assert list(mine.iterdir()) == []


def test_what_a_task_left_is_not_read_through_its_links(tmp_path: Path) -> None:
    secret, left = tmp_path / "secret", tmp_path / "left"
    secret.write_text("mine")
    left.mkdir()
    (left / "a").write_text("theirs")
    (left / "inside").symlink_to("a")
    (left / "outside").symlink_to(secret)
    file = io.BytesIO()
    packed = pack_archive(left, "left", file, within=left)
    assert packed.skipped == (str(left / "outside"),)
    file.seek(0)
    with tarfile.open(fileobj=file) as made:
        assert made.getnames() == ["left", "left/a", "left/inside"]

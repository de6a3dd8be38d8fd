"""Digests of files of this machine: of those that are named and small enough, within limits."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from fleetctl.providers.machines.shipped.file_digests import (
    TooMuchContent,
    TooSlowContent,
    digests_of,
)

LIMITS = {"file_bytes": 5, "files": 3, "bytes": 10, "seconds": 60}


def write_files(top: Path, files: dict[str, bytes]) -> list[tuple[str, int]]:
    for path, content in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(content)
    return [(path, len(content)) for path, content in files.items()]


def test_named_files_up_to_the_limit_have_their_digests(tmp_path: Path) -> None:
    files = {"a.txt": b"12345", "in/b.txt": b"", "c.txt": b"123456", "d.md": b"1"}
    found = digests_of(str(tmp_path), write_files(tmp_path, files), names="*.txt", limits=LIMITS)
    assert found == {path: sha256(files[path]).hexdigest() for path in ("a.txt", "in/b.txt")}


@pytest.mark.parametrize(("name", "value"), [("files", 1), ("bytes", 2)])
def test_more_than_the_limit_is_not_read(tmp_path: Path, name: str, value: int) -> None:
    files = write_files(tmp_path, {"a": b"12", "b": b"3"})
    digests_of(str(tmp_path), files, names="*", limits=LIMITS)
    with pytest.raises(TooMuchContent):
        digests_of(str(tmp_path), files, names="*", limits=LIMITS | {name: value})


def test_reading_ends_at_its_deadline(tmp_path: Path) -> None:
    files = write_files(tmp_path, {"a": b"12"})
    with pytest.raises(TooSlowContent):
        digests_of(str(tmp_path), files, names="*", limits=LIMITS | {"seconds": -1})


def test_a_link_that_replaced_a_file_is_not_followed(tmp_path: Path) -> None:
    files = write_files(tmp_path, {"a": b"12"})
    (tmp_path / "a").unlink()
    (tmp_path / "a").symlink_to("/etc/hostname")
    with pytest.raises(OSError, match="symbolic links"):
        digests_of(str(tmp_path), files, names="*", limits=LIMITS)

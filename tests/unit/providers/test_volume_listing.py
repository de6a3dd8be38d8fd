"""The command that lists a volume in the sandbox that shows it, as a shell of this machine runs it:
one command a look, whatever the names and however many files.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from fleetctl.common.errors import NotFound, Refused, Unavailable
from fleetctl.providers.remote import volume_listing
from fleetctl.providers.remote.volume_listing import (
    check_exit,
    list_command,
    parse_listing,
)

FILES = {
    "a.txt": b"one\n",
    "b.md": b"not wanted",
    "in/it's $HOME `x`.txt": b"",
    "in/line\nbreak.txt": b"two",
    "in/-n.txt": b"three",
    "in/back\\slash.txt": b"four",
    "in/deep/é[1]*.txt": b"five",
    "in/deep/= .txt": b"six",
    "in/.hidden.txt": b"seven",
}


@pytest.fixture
def top(tmp_path: Path) -> Path:
    place = tmp_path / "volume"
    for path, content in FILES.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
    (place / "link.txt").symlink_to("a.txt")
    return place


def run_command(command: str, path: str = "") -> tuple[int, str]:
    environ = {"PATH": f"{path}:/usr/bin:/bin", "LANG": "C.UTF-8"}
    done = subprocess.run(["sh", "-c", command], capture_output=True, env=environ, timeout=60)
    return done.returncode, done.stdout.decode()


def test_one_command_lists_all_files_with_their_contents(top: Path) -> None:
    code, output = run_command(list_command(str(top), "", recursive=True, contents="*.txt"))
    found = parse_listing(output, "")
    files = {it.path: it for it in found if not it.is_directory}
    assert code == 0
    assert {path: it.size for path, it in files.items()} == {
        path: len(content) for path, content in FILES.items()
    }
    wanted = {path: sha256(content).hexdigest() for path, content in FILES.items()}
    assert {path: it.digest for path, it in files.items()} == wanted | {"b.md": ""}
    assert {it.path for it in found if it.is_directory} == {"in", "in/deep"}
    assert [it.modified_at_s for it in found] == [
        pytest.approx((top / it.path).stat().st_mtime, abs=0.001) for it in found
    ]


def test_a_directory_and_a_file_are_listed_alone(top: Path) -> None:
    _, output = run_command(list_command(str(top), "in", recursive=False, contents="*"))
    below = {it.path: it.digest for it in parse_listing(output, "in")}
    assert below == {"in/deep": ""} | {
        path: sha256(content).hexdigest()
        for path, content in FILES.items()
        if path.startswith("in/") and path.count("/") == 1
    }
    _, output = run_command(list_command(str(top), "a.txt", recursive=False, contents="a.txt"))
    ((path, *_, digest),) = parse_listing(output, "a.txt")
    assert (path, digest) == ("a.txt", sha256(b"one\n").hexdigest())


def test_a_look_without_contents_reads_no_file(top: Path, tmp_path: Path) -> None:
    fake_program(tmp_path, "sha256sum", "exit 1")
    code, output = run_command(
        list_command(str(top), "", recursive=True, contents=""), str(tmp_path / "bin")
    )
    assert code == 0
    assert {it.digest for it in parse_listing(output, "")} == {""}


def test_an_empty_volume_has_no_entries(tmp_path: Path) -> None:
    code, output = run_command(list_command(str(tmp_path), "", recursive=True, contents="*"))
    assert (code, parse_listing(output, "")) == (0, [])


def test_a_file_above_the_limit_is_listed_and_not_read(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_listing, "CONTENT_BYTES_MAX", 2048)
    for name, size in (("fits.txt", 2048), ("large.txt", 2049)):
        (top / name).write_bytes(b"x" * size)
    code, output = run_command(list_command(str(top), "", recursive=False, contents="*.txt"))
    digests = {it.path: bool(it.digest) for it in parse_listing(output, "")}
    assert code == 0
    assert (digests["fits.txt"], digests["large.txt"]) == (True, False)


@pytest.mark.parametrize(
    ("limits", "program", "error", "words"),
    [
        ({"CONTENTS_FILES_MAX": 7}, "", Refused, "would have to be read"),
        ({"CONTENTS_BYTES_MAX": 27}, "", Refused, "would have to be read"),
        ({"CONTENTS_READ_S": 1}, "sleep 60", Unavailable, "could not be read within"),
        ({}, "exit 1", Unavailable, "cannot be read, or was removed"),
    ],
    ids=["files", "bytes", "time", "unread"],
)
def test_a_look_ends_with_a_reason_at_each_limit(
    top: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: Mapping[str, int],
    program: str,
    error: type[Exception],
    words: str,
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(volume_listing, name, value)
    if program:
        fake_program(tmp_path, "sha256sum", program)
    command = list_command(str(top), "", recursive=True, contents="*.txt")
    code, _ = run_command(command, str(tmp_path / "bin"))
    with pytest.raises(error, match=words):
        check_exit(code, "", volume="texts", path="")


def test_a_look_within_the_limits_passes(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_listing, "CONTENTS_FILES_MAX", 8)
    monkeypatch.setattr(volume_listing, "CONTENTS_BYTES_MAX", 28)
    code, _ = run_command(list_command(str(top), "", recursive=True, contents="*.txt"))
    assert code == 0
    check_exit(code, "", volume="texts", path="")


def test_a_path_that_is_not_there_is_not_found(top: Path) -> None:
    code, _ = run_command(list_command(str(top), "no where", recursive=True, contents="*"))
    with pytest.raises(NotFound):
        check_exit(code, "", volume="texts", path="no where")


def test_a_failed_command_is_refused_with_its_own_words() -> None:
    with pytest.raises(Refused, match="volume/texts: rm: no rights"):
        check_exit(1, "rm:\n no rights\n", volume="texts", path="")


def fake_program(directory: Path, name: str, body: str) -> None:
    place = directory / "bin" / name
    place.parent.mkdir()
    place.write_text(f"#!/bin/sh\n{body}\n")
    place.chmod(0o755)

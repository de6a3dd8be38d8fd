"""The helpers of Python tasks: looking at text, files on a volume, buffers."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from fleetctl.guest.task.helpers import (
    Buffers,
    Storage,
    chunk_by_headers,
    chunk_by_json_keys,
    chunk_by_size,
    chunk_by_timestamps,
    grep,
    peek,
)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    (tmp_path / "volume").mkdir()
    return Storage("/data", str(tmp_path / "volume"))


def test_peek_shows_a_piece() -> None:
    assert peek("abcdef", 2, 3) == "cde"
    assert peek("x" * 5000) == "x" * 2000


def test_grep_is_literal_and_takes_any_case() -> None:
    assert grep("a.c\nabc\nA.C", "a.C") == ["a.c", "A.C"]


def test_grep_joins_hits_whose_surroundings_touch() -> None:
    assert grep("1\nhit\n3\nhit\n5\n6\n7\nhit", "hit", context=1) == ["1\nhit\n3\nhit\n5", "7\nhit"]


def test_chunks_by_size_overlap_and_end() -> None:
    assert chunk_by_size("abcdefg", 3, 1) == ["abc", "cde", "efg"]
    assert chunk_by_size("abcdef", 3, 0) == ["abc", "def"]
    assert chunk_by_size("", 3, 1) == []


@pytest.mark.parametrize(("size", "overlap"), [(3, 3), (3, 4), (0, 0), (3, -1)])
def test_an_overlap_that_would_never_end_is_an_error(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="overlap"):
        chunk_by_size("abc", size, overlap)


def test_chunks_by_headers() -> None:
    text = "intro\n# One\na\nb\n## Two\n#### not a header\n"
    assert chunk_by_headers(text) == [
        {"header": "", "body": "intro"},
        {"header": "# One", "body": "a\nb"},
        {"header": "## Two", "body": "#### not a header"},
    ]


def test_chunks_by_timestamps() -> None:
    chunks = chunk_by_timestamps("2024-01-02T03:04 start\n more\n2024-01-03 end\n")
    assert [(one["timestamp"], one["start_pos"]) for one in chunks] == [
        ("2024-01-02T03:04", 0),
        ("2024-01-03", 29),
    ]
    assert chunks[0]["content"] == "2024-01-02T03:04 start\nmore"


def test_chunks_by_json_keys() -> None:
    assert chunk_by_json_keys('{"a": [1], "b": "x"}') == [
        {"key": "a", "content": "[\n  1\n]", "value_type": "list"},
        {"key": "b", "content": '"x"', "value_type": "str"},
    ]
    with pytest.raises(ValueError, match="list"):
        chunk_by_json_keys("[1]")


def test_a_saved_file_is_told_by_its_full_path_and_read_back(storage: Storage) -> None:
    assert (
        storage.save_to_volume("results/chunk_0.json", "[2, 4, 6]") == "/data/results/chunk_0.json"
    )
    assert storage.load_from_volume("results/chunk_0.json") == "[2, 4, 6]"
    assert storage.load_from_volume("/data/results/chunk_0.json") == "[2, 4, 6]"


def test_a_file_that_is_not_there_is_said_in_brackets(storage: Storage) -> None:
    assert storage.load_from_volume("nope.txt") == "[file not found: /data/nope.txt]"


def test_without_a_volume_nothing_is_raised() -> None:
    storage = Storage()
    assert storage.save_to_volume("x", "y") == "[no volume mounted at /data]"
    assert storage.load_from_volume("x") == "[no volume mounted at /data]"
    assert storage.workspace_list() == "[no volume mounted at /data]"


@pytest.mark.parametrize(
    "path", ["../escape", "/etc/passwd", "a/../../escape", "link/x", "/database/x"]
)
def test_no_path_leaves_the_volume(storage: Storage, tmp_path: Path, path: str) -> None:
    (tmp_path / "volume" / "link").symlink_to(tmp_path)
    assert storage.save_to_volume(path, "x").startswith("[error: ")
    assert storage.load_from_volume(path).startswith("[error: ")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["volume"]


def test_the_workspace_is_a_folder_of_the_volume(storage: Storage, tmp_path: Path) -> None:
    assert storage.workspace_write("notes/a.txt", "one") == "/data/workspace/notes/a.txt"
    storage.workspace_append("notes/a.txt", " two")
    assert storage.workspace_read("notes/a.txt") == "one two"
    assert storage.workspace_list() == ["notes/a.txt"]
    assert storage.workspace_list("*.json") == []
    assert storage.workspace_write("../a", "x").startswith("[error: ")
    assert (tmp_path / "volume" / "workspace" / "notes" / "a.txt").read_text() == "one two"


def test_writers_at_once_leave_one_of_their_texts(storage: Storage) -> None:
    texts = [letter * 200_000 for letter in "abcd"]
    writers = [threading.Thread(target=storage.save_to_volume, args=("f", text)) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert storage.load_from_volume("f") in texts


def test_buffers_are_lists_and_given_out_as_copies() -> None:
    buffers = Buffers()
    buffers.add_buffer("a", 1)
    buffers.add_buffer("a", 2)
    buffers.get_buffer("a").append(3)
    assert buffers.get_buffer("a") == [1, 2]
    buffers.clear_buffer("a")
    assert buffers.get_buffer("a") == []
    buffers.add_buffer("b", 1)
    buffers.clear_buffer()
    assert buffers.get_buffer("b") == []


def test_a_volume_that_cannot_rename_or_append_keeps_whole_files(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Daytona's; tests/servers/test_daytona_objects.py has it from the kernel."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "replace", refuse)
    assert storage.save_to_volume("a/b.txt", "one") == "/data/a/b.txt"
    assert storage.save_to_volume("a/b.txt", "two") == "/data/a/b.txt"
    assert [one.name for one in (tmp_path / "volume" / "a").iterdir()] == ["b.txt"]
    assert storage.load_from_volume("a/b.txt") == "two"


def test_a_directory_that_goes_with_a_file_of_another_task_does_not_fail_a_save(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mounted bucket has a directory while a file is in it. Whenever this task has seen to its
    directory, another one removes the last file of it: here, an empty one is gone.
    """
    directory, rounds = tmp_path / "volume" / "a", [3]

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def make(name: str, exist_ok: bool) -> None:
        directory.mkdir(parents=True, exist_ok=exist_ok)
        if rounds[0] and not any(directory.iterdir()):
            rounds[0] -= 1
            directory.rmdir()

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(os, "makedirs", make)
    assert storage.save_to_volume("a/b.txt", "one") == "/data/a/b.txt"
    assert [one.name for one in directory.iterdir()] == ["b.txt"]
    assert (storage.load_from_volume("a/b.txt"), rounds) == ("one", [0])


def test_what_a_volume_does_not_keep_is_raised(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "volume" / "taken").mkdir(parents=True)
    with pytest.raises(OSError, match=r"/data/taken is not saved: Is a directory"):
        storage.save_to_volume("taken", "x")
    assert [one.name for one in (tmp_path / "volume").iterdir()] == ["taken"]


def test_a_text_that_is_not_saved_is_told_of(tmp_path: Path) -> None:
    parts: list[str] = []
    Storage("/data", str(tmp_path), parts.append).save_to_volume("../x", "y")
    Storage(remark=parts.append).save_to_volume("x", "y")
    assert parts == [
        "`../x` is not saved: [error: ../x is outside of /data]",
        "`x` is not saved: [no volume mounted at /data]",
    ]

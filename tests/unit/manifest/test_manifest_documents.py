from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from fleetctl.manifest import Document, ManifestErrors, load_manifests, read_documents
from fleetctl.manifest.files.documents import FILE_BYTES_MAX

VOLUME = "apiVersion: fleetctl.dev/v1alpha1\nkind: Volume\nmetadata: {name: NAME}\n"


def write(path: Path, name: str) -> Path:
    path.write_text(VOLUME.replace("NAME", name), encoding="utf-8")
    return path


def refused(paths: list[str]) -> list[str]:
    with pytest.raises(ManifestErrors) as caught:
        load_manifests(read_documents(paths))
    return [str(it) for it in caught.value.problems]


def test_a_file_is_read_with_the_directory_that_it_lies_in(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", "a")
    assert read_documents([str(path)]) == [
        Document(str(path), path.read_text(encoding="utf-8"), str(tmp_path))
    ]


def test_a_relative_path_keeps_its_name_and_gets_an_absolute_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.yaml", "a")
    monkeypatch.chdir(tmp_path)
    (document,) = read_documents(["a.yaml"])
    assert (document.path, document.dir) == ("a.yaml", str(tmp_path))


def test_a_directory_gives_its_manifests_sorted_without_hidden_and_other_files(
    tmp_path: Path,
) -> None:
    for name in ("b.yml", "a.yaml", "c.json", ".d.yaml", "e.txt", "f.yaml.bak"):
        write(tmp_path / name, "x")
    (tmp_path / "deeper.yaml").mkdir()
    found = [Path(it.path).name for it in read_documents([str(tmp_path)])]
    assert found == ["a.yaml", "b.yml", "c.json"]


def test_directories_below_are_read_only_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "nightly").mkdir(parents=True)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("jobs/b.yaml", "jobs/nightly/a.yaml", "node_modules/c.yaml", ".git/d.yaml"):
        write(tmp_path / name, "x")
    (tmp_path / "jobs" / "loop").symlink_to(tmp_path)
    found = read_documents([str(tmp_path)], recursive=True)
    assert [str(Path(it.path).relative_to(tmp_path)) for it in found] == [
        "jobs/b.yaml",
        "jobs/nightly/a.yaml",
    ]
    assert found[1].dir == str(tmp_path / "jobs" / "nightly")
    (alone,) = read_documents([str(tmp_path)])
    assert (alone.refused[:19], alone.hint) == (
        "the directory holds",
        "-R also reads the directories below",
    )


def test_a_directory_may_be_empty_where_that_is_a_wish(tmp_path: Path) -> None:
    assert read_documents([str(tmp_path)], may_be_empty=True) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("package.json", '{\n  "name": "x",\n  "version": "1"\n}'),
        ("docker-compose.yml", "services:\n  web:\n    image: nginx\n    kind: of\n"),
        ("sweep.yaml", "method: grid\nparameters: {x: {value: 1}}\n"),
    ],
)
def test_files_of_other_tools_in_a_directory_are_left_out(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    write(tmp_path / "ours.yaml", "ours")
    foreign: list[Document] = []
    found = read_documents([str(tmp_path)], foreign=foreign)
    assert [Path(it.path).name for it in found] == ["ours.yaml"]
    assert [it.path for it in foreign] == [str(tmp_path / name)]
    # Named itself it is meant, and its errors are told.
    assert [it.path for it in read_documents([str(tmp_path / name)])] == [str(tmp_path / name)]


@pytest.mark.parametrize(
    "text",
    [
        "kind: BatchJb\nmetadata: {name: x}\n",
        "apiVersion: v1\nknd: Volume\n",
        '{"apiVersion": "v1", "metadata": {}}',
        "# nothing but a word\n---\n'kind': Volume\n",
        "",
        "{\n  kind: Volume\n}",
    ],
)
def test_what_is_meant_as_a_manifest_is_never_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    assert [it.text for it in read_documents([str(tmp_path)])] == [text]


def test_standard_input_is_named_by_a_dash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (document,) = read_documents(["-"], stdin=io.BytesIO(b"a: 1"))
    assert (document.path, document.text, document.dir) == ("-", "a: 1", str(tmp_path))


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + VOLUME.replace("NAME", "a").encode())
    assert [it.name for it in load_manifests(read_documents([str(path)]))] == ["a"]


def test_what_is_not_utf_8_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\nb: \xff\xfe\n")
    assert refused([str(path)]) == [f"{path}: byte 4 of line 2 is not UTF-8"]
    path.write_bytes("a: 1".encode("utf-16"))
    assert refused([str(path)]) == [f"{path}: byte 1 of line 1 is not UTF-8; it looks like UTF-16"]


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    with path.open("wb") as stream:
        stream.truncate(200 * 1024**3)  # sparse: reading it would take all memory
    assert refused([str(path)]) == [f"{path}: the file is larger than 8 MiB"]
    with path.open("wb") as stream:
        stream.truncate(FILE_BYTES_MAX)
    assert "U+0000" in refused([str(path)])[0]


def test_endless_input_is_refused_after_the_limit() -> None:
    (read,) = read_documents(["/dev/zero"], stdin=io.BytesIO())  # a person named it
    assert read.refused == "the file is larger than 8 MiB"
    said = "/dev/zero: the file cannot be read: it is no regular file"
    assert refused(["/dev/zero"]) == [said]


def test_files_that_cannot_be_read_are_told_beside_other_mistakes(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("kind: Nope\n", encoding="utf-8")
    missing = tmp_path / "missing.yaml"
    said = refused([str(missing), str(empty), "a\0b", str(wrong)])
    assert said[0] == f"{missing}: there is no such file"
    assert said[1] == f"{empty}: the directory holds no .yaml, .yml or .json file"
    assert said[2] == "a\\u0000b: the file cannot be read: its name is not valid"
    assert len(said) > 3


def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", "a")
    path.chmod(0)
    if os.access(path, os.R_OK):  # root reads everything; a loop of links is refused to it as well
        path.unlink()
        path.symlink_to(path)
    (said,) = refused([str(path)])
    assert said.startswith(f"{path}: the file cannot be read: ")


def test_the_same_file_twice_declares_its_resources_twice(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", "a")
    (said,) = refused([str(path), str(path)])
    assert said == f"{path}:1:1: volume/a is declared twice, first at {path}:1"

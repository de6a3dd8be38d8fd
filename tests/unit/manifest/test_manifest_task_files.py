"""`tasks.fromFiles`: which files it finds, and what it refuses, with what was looked at."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.manifest.files import task_files
from fleetctl.specs.blocks.file_tasks import FileTasks, suffix_of
from fleetctl.specs.kinds.batchjob import BatchJobSpec


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in ("texts/a.txt", "texts/b.md", "texts/sub/deep/c.txt", "texts/.hidden/d.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "texts" / ".e.txt").write_text("hidden")
    return tmp_path


def load(here: Path, tasks: str) -> FileTasks:
    (manifest,) = load_manifests([document(here, tasks)])
    assert isinstance(manifest.spec, BatchJobSpec)
    assert manifest.spec.tasks is not None
    assert manifest.spec.tasks.files is not None
    return manifest.spec.tasks.files


def document(here: Path, tasks: str) -> Document:
    text = f"kind: BatchJob\nname: x\nscript: work\ntasks: {{{tasks}}}\n"
    return Document("job.yaml", text, str(here))


def problem(here: Path, tasks: str) -> str:
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([document(here, tasks)])
    (found,) = caught.value.problems
    return f"{found} | {found.hint}"


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("texts/*.txt", ["a.txt"]),
        ("texts/**/*.txt", ["a.txt", "sub/deep/c.txt"]),
        ("texts/**", ["a.txt", "b.md", "sub/deep/c.txt"]),
        ("./texts/**/**/*", ["a.txt", "b.md", "sub/deep/c.txt"]),
        ("**/deep/*", ["texts/sub/deep/c.txt"]),
        ("texts/*/*/c.txt", ["sub/deep/c.txt"]),
        ("texts/[ab].*", ["a.txt", "b.md"]),
        ("texts/?.md", ["b.md"]),
        ("texts/a.txt", ["a.txt"]),
        ("texts/.*.txt", [".e.txt"]),
        ("texts/.hidden/*", ["d.txt"]),
    ],
)
def test_a_glob_finds_files_below_its_fixed_part(here: Path, glob: str, found: list[str]) -> None:
    assert [it.path for it in load(here, f'fromFiles: "{glob}"').found] == found


def test_a_file_has_its_content_and_size(here: Path) -> None:
    (one,) = load(here, 'fromFiles: "texts/*.txt"').found
    assert (one.sha256, one.bytes) == (sha256(b"texts/a.txt").hexdigest(), 11)


def test_a_manifest_is_no_file_of_its_own_tasks(here: Path) -> None:
    (here / "job.yaml").write_text("")
    (here / "other.yaml").write_text("")
    assert [it.path for it in load(here, 'fromFiles: "*.yaml"').found] == ["other.yaml"]


def test_a_task_sees_the_end_of_a_name_and_the_name_where_that_is_asked_for(here: Path) -> None:
    plain = load(here, 'fromFiles: "texts/**/*.txt"').params(1)
    named = load(here, 'fromFiles: {glob: "texts/**/*.txt", names: true}').params(1)
    assert plain["file"]["name"] == "file.txt"  # type: ignore[index,call-overload]
    assert named["file"]["name"] == "sub/deep/c.txt"  # type: ignore[index,call-overload]


def test_chunks_have_their_files_in_order_and_the_last_the_rest(here: Path) -> None:
    files = load(here, 'fromFiles: "texts/**", chunk: 2')
    names = [[it["name"] for it in files.params(at)["files"]] for at in range(files.count())]  # type: ignore[union-attr,index,call-overload]
    assert names == [["1.txt", "2.md"], ["1.txt"]]


@pytest.mark.parametrize(
    ("path", "suffix"),
    [
        ("a.txt", ".txt"),
        ("a/b.c/d", ""),
        ("x.tar.gz", ".tar.gz"),
        ("v1.2.pdf", ".pdf"),
        (".bashrc", ""),
        ("a.verylongsuffix", ""),
        ("a.b c", ""),
        ("a.", ""),
    ],
)
def test_the_end_of_a_name(path: str, suffix: str) -> None:
    assert suffix_of(path) == suffix


def test_a_glob_without_a_file_is_refused_with_what_was_looked_at(here: Path) -> None:
    found = problem(here, 'fromFiles: "texts/*.pdf"')
    assert found.startswith("job.yaml:4:")
    assert "`texts/*.pdf`; no file matches" in found
    assert "5 names in and below `texts` were looked at, such as `.e.txt`" in found


def test_a_missing_directory_is_named_with_one_that_is_near(here: Path) -> None:
    found = problem(here, 'fromFiles: {glob: "textz/*.txt"}')
    assert "there is no directory `textz`" in found
    assert "did you mean `texts`?" in found


def test_files_that_are_too_many_or_too_large_are_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_files, "FILE_BYTES_MAX", 10)
    assert "`a.txt` is larger than 0 MiB" in problem(here, 'fromFiles: "texts/*.txt"')
    monkeypatch.setattr(task_files, "ALL_BYTES_MAX", 3)
    monkeypatch.setattr(task_files, "FILE_BYTES_MAX", 100)
    assert "hold more than 0 GiB in all" in problem(here, 'fromFiles: "texts/*.txt"')
    monkeypatch.setattr(task_files, "FILES_MAX", 2)
    assert "more than 2 files match it" in problem(here, 'fromFiles: "texts/**"')
    monkeypatch.setattr(task_files, "NAMES_MAX", 2)
    assert "more than 2 names would have to be looked at" in problem(here, 'fromFiles: "**/x"')


def test_names_that_are_no_utf8_or_hold_line_breaks_are_carried_unless_tasks_see_them(
    here: Path,
) -> None:
    for name in (b"l1\xe9.txt", b"two\nlines.txt", b" space .txt"):
        Path(os.fsdecode(os.fsencode(here) + b"/texts/" + name)).write_text("x")
    files = load(here, 'fromFiles: "texts/*.txt", chunk: 10')
    assert [it.path for it in files.found] == [
        " space .txt",
        "a.txt",
        "l1\\xe9.txt",
        "two\nlines.txt",
    ]
    found = problem(here, 'fromFiles: {glob: "texts/l1*.txt", names: true}')
    assert "the name of `l1\\xe9.txt` is not UTF-8" in found
    found = problem(here, 'fromFiles: {glob: "texts/two*", names: true}')
    assert "holds a line break" in found
    assert "leave `names` out" in found


def test_links_lead_to_files_and_not_into_directories_again(here: Path) -> None:
    (here / "texts" / "loop").symlink_to(here / "texts")
    (here / "texts" / "link.txt").symlink_to("sub/deep/c.txt")
    (here / "texts" / "dangling.txt").symlink_to("nowhere")
    found = [it.path for it in load(here, 'fromFiles: "texts/**/*.txt"').found]
    assert found == ["a.txt", "link.txt", "sub/deep/c.txt"]


def test_only_one_form_of_tasks_may_be_given(here: Path) -> None:
    assert "exactly one of" in problem(here, 'fromFiles: "texts/*", items: [{a: 1}]')
    assert "`chunk`" in problem(here, "items: [{a: 1}], chunk: 2")


def test_a_directory_of_the_kernel_holds_no_files_of_tasks(here: Path) -> None:
    for glob in ("/proc/*/environ", "/", "//", "/.."):
        found = problem(here, f'fromFiles: "{glob}"')
        assert "it holds what is no file of a task" in found, glob


def test_files_may_lie_in_a_directory_beside_the_manifests_own(here: Path) -> None:
    (here / "jobs").mkdir()
    files = load(here / "jobs", 'fromFiles: "../texts/*.txt"')
    assert (files.base, files.shown(files.found[0])) == ("../texts", "../texts/a.txt")


def test_a_prompt_gets_no_files(here: Path) -> None:
    text = (
        'kind: BatchJob\nname: x\nprompt: {endpoint: e, text: hi}\ntasks: {fromFiles: "texts/*"}\n'
    )
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([Document("job.yaml", text, str(here))])
    assert "which gets no files" in str(caught.value.problems[0])

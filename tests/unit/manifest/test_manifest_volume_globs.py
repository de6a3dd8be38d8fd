"""`tasks.fromFiles` of a volume: the files of a listing that match, as those of a folder would, and
the mistakes that are found before any provider is asked.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.manifest.files import task_files
from fleetctl.manifest.files.task_files import (
    FilesError,
    choose_files,
    find_files,
    names_below,
    split_glob,
    split_volume_glob,
)
from fleetctl.specs.kinds.batchjob import BatchJobSpec

MOUNTED = "volumes: [{name: texts, mountPath: /texts, readOnly: true}]"
names = st.sampled_from(["a.txt", "b.md", ".c.txt", "sub", ".hid", "with space", "é[1]"])
parts = st.sampled_from(["*", "**", "*.txt", ".*", "sub", "a.txt", "?.md", "[ab].*", "with*"])


def problem(tasks: str, more: str = MOUNTED) -> str:
    text = f"kind: BatchJob\nname: x\nscript: work\n{more}\ntasks: {{{tasks}}}\n"
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([Document("job.yaml", text, "")])
    (found,) = caught.value.problems
    return f"{found} | {found.hint}"


@given(
    st.sets(st.lists(names, min_size=1, max_size=3).map("/".join), min_size=1, max_size=8),
    st.lists(parts, min_size=1, max_size=4).map("/".join),
)
def test_a_listing_is_matched_as_a_folder_with_the_same_files(paths: set[str], glob: str) -> None:
    files = [it for it in paths if not any(other.startswith(f"{it}/") for other in paths)]
    with TemporaryDirectory() as directory:
        for path in files:
            whole = Path(directory, path)
            whole.parent.mkdir(parents=True, exist_ok=True)
            whole.write_bytes(b"")
        base, below = split_glob(glob)
        top = Path(directory, base)
        try:
            found = find_files(str(top), below, written=base, own="", names=True)
        except (FilesError, NotADirectoryError):
            found = []
        wanted = sorted(f"{base}/{it.path}".removeprefix("./") for it in found)
    try:
        chosen = choose_files(glob, files, volume="texts")
    except FilesError:
        chosen = []
    assert chosen == wanted
    names = names_below(split_volume_glob(glob)[1])
    assert "[" not in names and "?" not in names
    assert all(fnmatchcase(it.rpartition("/")[2], names) for it in chosen)


@given(st.text("/.*a[", max_size=8))
def test_every_glob_has_a_directory_and_a_pattern(glob: str) -> None:
    base, below = split_glob(glob)
    assert base and below and all(below)


def test_a_volume_is_listed_later_and_its_tasks_are_not_counted_before() -> None:
    text = (
        "kind: BatchJob\nname: x\nscript: work\n"
        f"{MOUNTED}\ntasks: {{fromFiles: {{glob: '/in/*.txt', volume: texts, chunk: 2}}}}\n"
    )
    (manifest,) = load_manifests([Document("job.yaml", text, "")])
    assert isinstance(manifest.spec, BatchJobSpec) and manifest.spec.tasks is not None
    assert manifest.spec.count() is None
    files = manifest.spec.tasks.files
    assert files is not None
    assert (files.volume, files.glob, files.chunk, files.found) == ("texts", "/in/*.txt", 2, ())
    assert manifest.inputs == {}


def test_a_volume_that_the_template_does_not_mount_is_refused_with_the_line_to_add() -> None:
    told = problem("fromFiles: {glob: '*', volume: texts}", "volumes: []")
    assert told.startswith(
        "job.yaml:5:40: tasks.fromFiles.volume is `texts`, which the template does not mount"
    )
    assert "add `volumes: [{name: texts, mountPath: /texts, readOnly: true}]` to it" in told


@pytest.mark.parametrize(
    ("glob", "why"),
    [
        ("~/in/*", "there is no home"),
        ("in/../../*", "it leads out of the volume"),
        ("/", "it names no file"),
    ],
)
def test_a_pattern_that_is_none_of_a_volume_is_refused(glob: str, why: str) -> None:
    told = problem(f"fromFiles: {{glob: '{glob}', volume: texts}}")
    assert f"tasks.fromFiles.glob is `{glob}`" in told
    assert why in told


def test_names_are_no_choice_in_a_volume() -> None:
    told = problem("fromFiles: {glob: '*', volume: texts, names: true}")
    assert "tasks see the paths of files in a volume anyway; leave `names` out" in told


def test_a_pattern_without_a_match_shows_what_was_looked_at() -> None:
    with pytest.raises(FilesError, match="no file matches") as caught:
        choose_files("in/*.txt", ["in/a.md", "b.txt"], volume="texts")
    assert str(caught.value) == (
        "no file matches; 2 files of volume/texts were looked at, such as `b.txt`, `in/a.md`"
    )
    with pytest.raises(FilesError, match="0 files of volume/texts were looked at"):
        choose_files("*", [], volume="texts")


def test_paths_that_a_task_could_not_be_given_are_refused() -> None:
    for path, why in (("a\nb", "a line break"), ("caf\udce9", "not UTF-8"), ("x" * 2000, "1024")):
        with pytest.raises(FilesError, match=why):
            choose_files("*", ["fine", path], volume="texts")


def test_more_files_than_a_job_takes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_files, "FILES_MAX", 3)
    with pytest.raises(FilesError, match="more than 3 files match it"):
        choose_files("*", list("abcd"), volume="texts")
    monkeypatch.setattr(task_files, "NAMES_MAX", 3)
    with pytest.raises(FilesError, match="more than 3 names"):
        choose_files("a", list("abcd"), volume="texts")

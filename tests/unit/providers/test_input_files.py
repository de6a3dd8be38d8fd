"""The contents of tasks' files in the state directory: kept once, by content, and removed when no
object names them.
"""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path

import pytest

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.manifest import Document, Manifest, load_manifests
from fleetctl.providers.sources.source_snapshots import YOUNG_S, ContentMoved, InputFiles
from fleetctl.specs.blocks.template import Template
from fleetctl.tracking.task_inputs import TaskInputs

ONE = sha256(b"one").hexdigest()
WORK = Template.model_validate({"script": "work"})


def loaded(here: Path) -> Manifest:
    text = 'kind: BatchJob\nname: x\nscript: work\ntasks: {fromFiles: "in/*"}\n'
    (manifest,) = load_manifests([Document("job.yaml", text, str(here))])
    return manifest


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one")
    (tmp_path / "in" / "b.txt").write_text("one")
    return tmp_path


def test_a_content_is_kept_once_and_no_task_can_write_to_it(here: Path) -> None:
    stored = InputFiles(here / "home")
    TaskInputs(stored).keep(loaded(here))
    path = stored.path_of(ONE)
    assert path is not None
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("one", 0o400)
    assert [it for it in (here / "home").rglob("*") if it.is_file()] == [path]


def test_a_file_that_was_edited_after_it_was_read_is_refused_by_its_name(here: Path) -> None:
    manifest = loaded(here)
    for name in ("a.txt", "b.txt"):
        (here / "in" / name).write_text("two")
    stored = InputFiles(here / "home")
    with pytest.raises(Refused, match=r"`in/a\.txt` was edited while it was read"):
        TaskInputs(stored).keep(manifest)
    assert stored.path_of(ONE) is None
    with pytest.raises(ContentMoved):
        stored.keep(ONE, str(here / "in" / "a.txt"))


def test_a_stored_list_of_files_without_their_contents_is_refused(here: Path) -> None:
    found = f"[{{path: a.txt, sha256: '{ONE}', bytes: 3}}]"
    text = (
        f"kind: BatchJob\nname: x\nscript: work\ntasks: {{files: {{base: in, found: {found}}}}}\n"
    )
    (manifest,) = load_manifests([Document("job.yaml", text, str(here))])
    inputs = TaskInputs(InputFiles(here / "home"))
    with pytest.raises(Refused, match=r"the content of `in/a\.txt` is not in the state directory"):
        inputs.keep(manifest)
    inputs.keep(loaded(here))
    inputs.keep(manifest)  # as `get -o yaml` printed it, while the content is here


def test_contents_stay_while_an_object_names_them_or_they_are_young(here: Path) -> None:
    stored = InputFiles(here / "home")
    inputs, manifest = TaskInputs(stored), loaded(here)
    inputs.keep(manifest)
    path = stored.path_of(ONE)
    assert path is not None
    inputs.sweep([])
    assert path.exists()
    os.utime(path, (time.time() - 2 * YOUNG_S,) * 2)
    inputs.sweep([manifest.spec])
    assert path.exists()
    inputs.sweep([])
    assert not path.exists()


def test_a_run_whose_content_is_gone_waits_with_the_fix(here: Path) -> None:
    inputs = TaskInputs(InputFiles(here / "home"))
    with pytest.raises(Unavailable, match=r"task's file `file\.txt` is not in the state") as caught:
        inputs.of_run({"file": {"name": "file.txt", "sha256": ONE}}, WORK)
    assert caught.value.hint == "apply the manifest again"


def test_a_run_whose_volume_is_not_mounted_is_refused_with_the_field(here: Path) -> None:
    named = {"file": {"volume": "texts", "path": "in/a.txt", "bytes": 3}}
    with pytest.raises(Refused, match="on volume `texts`, which its template does not mount"):
        TaskInputs(InputFiles(here / "home")).of_run(named, WORK)

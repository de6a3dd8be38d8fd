"""The how-to `process-a-folder.md`, line by line: what an edit of the folder runs, and what is
shown.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.fleet import EXAMPLES, Fleet

Edit = Callable[[Path], object]
CHANGES: dict[str, tuple[Edit, str, int]] = {
    "a new file": (lambda at: (at / "new.txt").write_text("x"), "1 added: folder/texts/new.txt", 1),
    "an edited file": (
        lambda at: (at / "notes.txt").write_text("now written"),
        "1 edited: folder/texts/notes.txt",
        1,
    ),
    "a removed file": (
        lambda at: (at / "notes.txt").unlink(),
        "1 removed: folder/texts/notes.txt",
        0,
    ),
    "a renamed file": (
        lambda at: (at / "notes.txt").rename(at / "letters" / "note.txt"),
        "1 renamed: folder/texts/notes.txt -> folder/texts/letters/note.txt",
        0,
    ),
    "a second file with the same content": (
        lambda at: shutil.copy(at / "notes.txt", at / "copy.txt"),
        "1 added: folder/texts/copy.txt",
        1,
    ),
}


@pytest.fixture
def job(fleet: Fleet, tmp_path: Path) -> Iterator[Path]:
    """A copy of the example, which tests may edit."""
    shutil.copytree(EXAMPLES / "folder", tmp_path / "folder")
    yield Path(shutil.copy(EXAMPLES / "folder.yaml", tmp_path))
    fleet.ok("delete", "job/count", "--yes")


@pytest.mark.parametrize("change", CHANGES, ids=lambda it: it.replace(" ", "-"))
def test_an_edit_of_the_folder_runs_what_the_page_says(
    fleet: Fleet, job: Path, change: str
) -> None:
    edit, told, runs = CHANGES[change]
    fleet.ok("apply", "-f", str(job), "--wait")
    edit(job.parent / "folder" / "texts")
    planned = " ".join(fleet.ok("plan", "-f", str(job)).split())
    assert f"tasks.files {told} tasks" in planned
    assert f", {runs} new, 0 replaced" in planned
    fleet.ok("apply", "-f", str(job), "--wait", "--yes")
    fleet.ok("wait", "job/count", "--for", "succeeded")
    rows = {row["params"]["file"]: row["result"]["words"] for row in fleet.results("job/count")}
    texts = job.parent.glob("folder/texts/**/*.txt")
    assert rows == {str(it.relative_to(job.parent)): len(it.read_text().split()) for it in texts}
    attempts = fleet.json("get", "attempts", "job/count")["items"]
    assert len(attempts) == 3 + runs


def test_files_that_a_task_cannot_read_fail_with_their_names(fleet: Fleet, job: Path) -> None:
    (job.parent / "folder" / "texts" / "broken.txt").write_bytes(b"\xff\xfe\xff")
    said = fleet.run("apply", "-f", str(job), "--wait")
    assert said.code == 1
    shown = fleet.ok("describe", "job/count")
    assert "(folder/texts/broken.txt): ExitCode:1 after 1 attempt: UnicodeDecodeError" in shown


def test_each_file_is_counted_once_though_the_controller_is_killed(fleet: Fleet, job: Path) -> None:
    texts = job.parent / "folder" / "texts"
    for number in range(40):
        (texts / f"{number}.txt").write_text("word " * number)
    fleet.ok("apply", "-f", str(job))
    for _ in range(3):
        fleet.kill_controller()
        shutil.rmtree(texts, ignore_errors=True)  # the tasks have their copies
        fleet.ok("up", "--detach")
    fleet.ok("wait", "job/count", "--for", "succeeded", "--timeout", "10m")
    rows = {row["params"]["file"]: row["result"]["words"] for row in fleet.results("job/count")}
    assert len(rows) == 43
    assert all(rows[f"folder/texts/{number}.txt"] == number for number in range(40))
    attempts = fleet.json("get", "attempts", "job/count")["items"]
    assert len(attempts) == 43


SCRIPT = """\
kind: BatchJob
name: counted
tasks: {fromFiles: "texts/*.txt"}
outputs: [words.txt]
script: wc -w <"$TASK_FILE" | tee words.txt
"""


def test_a_script_without_a_source_gets_its_files_too(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for count in (1, 2):
        (tmp_path / "texts" / f"{count}.txt").write_text("word " * count)
    job = tmp_path / "job.yaml"
    job.write_text(SCRIPT)
    fleet.ok("apply", "-f", str(job), "--wait", "--timeout", "600s")
    shown = [fleet.ok("logs", "job/counted", "--index", it).split()[1:] for it in "01"]
    assert shown == [["1"], ["2"]]
    fleet.ok("results", "job/counted", "--to", str(tmp_path / "got"))
    assert (tmp_path / "got/1/words.txt").read_text().strip() == "2"
    fleet.ok("delete", "job/counted", "--yes")


VOLUME_JOB = """\
kind: Volume
name: texts
deletionPolicy: Delete
---
kind: BatchJob
name: stored
tasks: {fromFiles: {glob: "in/**/*.txt", volume: texts}}
volumes: [{name: texts, mountPath: /texts, readOnly: true}]
python: "SUBMIT(words=len(open(file).read().split()), name=file.partition('/in/')[2])"
"""


@pytest.fixture
def stored(fleet: Fleet, tmp_path: Path) -> Iterator[Path]:
    """A job over the files of a volume."""
    job = tmp_path / "stored.yaml"
    job.write_text(VOLUME_JOB)
    fleet.ok("apply", "-f", str(write_file(tmp_path / "volume.yaml", VOLUME_JOB.split("---")[0])))
    yield job
    fleet.ok("delete", "job/stored", "volume/texts", "--yes", "--ignore-not-found")


def write_file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def bring(fleet: Fleet, tmp_path: Path, **texts: str) -> None:
    """Copies texts to the volume, one by one, by names without their suffix."""
    for name, text in texts.items():
        local = write_file(tmp_path / f"{name}.txt", text)
        fleet.ok("cp", str(local), f"volume/texts:/in/{name}.txt")


def test_files_of_a_volume_are_tasks_and_new_and_changed_ones_run_when_applied_again(
    fleet: Fleet, stored: Path, tmp_path: Path
) -> None:
    bring(fleet, tmp_path, a="one", b="one two")
    fleet.ok("apply", "-f", str(stored), "--wait")
    rows = [(row["params"]["file"], row["result"]) for row in fleet.results("job/stored")]
    assert rows == [
        ("in/a.txt", {"words": 1, "name": "a.txt"}),
        ("in/b.txt", {"words": 2, "name": "b.txt"}),
    ]
    assert "unchanged" in fleet.ok("apply", "-f", str(stored))
    bring(fleet, tmp_path, b="one two three", c="")
    bring(fleet, tmp_path, a="one")  # the same content, at another time
    planned = " ".join(fleet.ok("plan", "-f", str(stored)).split())
    assert "tasks.files 1 added: in/c.txt; 1 edited: in/b.txt" in planned
    assert "1 kept, 2 new" in planned
    fleet.ok("apply", "-f", str(stored), "--wait", "--yes")
    fleet.ok("wait", "job/stored", "--for", "succeeded")
    rows = [(row["params"]["file"], row["result"]["words"]) for row in fleet.results("job/stored")]
    assert sorted(rows) == [("in/a.txt", 1), ("in/b.txt", 3), ("in/c.txt", 0)]
    shown = fleet.ok("get", "tasks", "job/stored")
    assert "in/c.txt" in shown
    dumped = fleet.ok("get", "job/stored", "-o", "yaml")
    assert "unchanged" in fleet.ok("apply", "-f", str(write_file(tmp_path / "got.yaml", dumped)))


def test_a_volume_without_a_match_and_one_out_of_reach_are_refused_before_storing(
    fleet: Fleet, stored: Path, tmp_path: Path
) -> None:
    said = fleet.run("apply", "-f", str(stored))
    assert said.code != 0
    assert "tasks.fromFiles: volume/texts has no `/in`" in said.talk
    bring(fleet, tmp_path, a="one")
    other = stored.read_text().replace("*.txt", "*.md")
    said = fleet.run("apply", "-f", str(write_file(tmp_path / "other.yaml", other)))
    assert "is `in/**/*.md`; no file matches; 1 file of volume/texts was looked at" in said.talk
    remote = stored.read_text().replace("name: texts\n", "name: texts\nprovider: slurm\n", 1)
    remote = remote.replace("name: texts", "name: away").replace("volume: texts", "volume: away")
    said = fleet.run("plan", "-f", str(write_file(tmp_path / "away.yaml", remote)))
    assert said.code != 0
    assert "tasks.fromFiles: provider `slurm` has no cluster" in said.talk
    nowhere = stored.read_text().partition("---")[2].replace("texts", "missing")
    said = fleet.run("plan", "-f", str(write_file(tmp_path / "missing.yaml", nowhere)))
    assert "there is no volume `missing`" in said.talk
    assert fleet.run("get", "job/stored").code != 0


def test_a_schedule_lists_the_volume_whenever_it_makes_a_job(
    fleet: Fleet, stored: Path, tmp_path: Path
) -> None:
    bring(fleet, tmp_path, a="one")
    work = stored.read_text().partition("name: stored\n")[2].replace("\n", "\n    ")
    text = f"""\
kind: Schedule
name: nightly
schedule: "0 3 * * *"
template:
  kind: BatchJob
  spec:
    {work}
"""
    text = text.replace("volumes:", "template:\n      volumes:").replace("python:", "  python:")
    try:
        fleet.ok("apply", "-f", str(write_file(tmp_path / "nightly.yaml", text)))
        for name, texts in (("first", 1), ("second", 2)):
            fleet.ok("create", "job", name, "--from", "schedule/nightly")
            fleet.ok("wait", f"job/{name}", "--for", "succeeded")
            assert len(fleet.results(f"job/{name}")) == texts
            bring(fleet, tmp_path, b="one two")
    finally:
        fleet.ok("delete", "schedule/nightly", "job/first", "job/second", "--yes")

"""Before a program starts: what it resumes from, and what is moved out of its way."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from fleetctl.guest.checkpoints.disk import NAME, Disk, Notebook
from fleetctl.guest.checkpoints.formats import HASHED_BYTES_MAX
from fleetctl.guest.checkpoints.prepare import Beginning, Missing, prepare_checkpoint
from tests.unit.guest.checkpoints.directories import MARKER, own, torch_file, write

USUAL = {"format": "auto", "verify": "Fast", "resume": "Latest", "below": None, "anew": False}
OWNER = "uid-1"


def begun(top: Path, **asked: Any) -> Beginning:
    return prepare_checkpoint({**USUAL, "owner": OWNER, **asked}, Disk(str(top)))


def seen_writing(top: Path, *names: str, owner: str = OWNER) -> None:
    """As a watch leaves it where an attempt ended in the midst of them."""
    notebook = Notebook(owner)
    notebook.writing.update(names)
    notebook.save(Disk(str(top)))


def step_of(beginning: Beginning) -> int | None:
    return None if beginning.resumed is None else beginning.resumed.step


def listing(top: Path) -> set[str]:
    return {path.name for path in top.iterdir()} - {NAME}


def test_the_newest_complete_one_is_resumed_and_what_was_cut_short_is_set_aside(
    tmp_path: Path,
) -> None:
    own(tmp_path, 5)
    own(tmp_path, 10)
    own(tmp_path, 15, marked=False)
    seen_writing(tmp_path, "step-00000015")
    beginning = begun(tmp_path)
    assert step_of(beginning) == 10
    left = {"step-00000005", "step-00000010", ".incomplete-step-00000015"}
    assert listing(tmp_path) == left
    assert "`_COMPLETE.json` is missing" in beginning.remarks[0]
    again = begun(tmp_path)
    assert again.remarks == again.left == []
    assert listing(tmp_path) == left  # nobody said that it may go
    own(tmp_path, 15, marked=False)
    seen_writing(tmp_path, "step-00000015")
    begun(tmp_path)
    assert listing(tmp_path) == {*left, ".incomplete-step-00000015.2"}


@pytest.mark.parametrize("owner", ["", "uid-2"])
def test_what_this_run_was_not_seen_to_leave_unfinished_stays(tmp_path: Path, owner: str) -> None:
    own(tmp_path, 5)
    own(tmp_path, 15, marked=False)
    seen_writing(tmp_path, "step-00000015", owner=owner)
    beginning = begun(tmp_path)
    assert (step_of(beginning), beginning.remarks) == (5, [])
    assert beginning.left == [
        "checkpoint `step-00000015` stays as it is, and is not gone on from:"
        " `_COMPLETE.json` is missing"
    ]
    assert listing(tmp_path) == {"step-00000005", "step-00000015"}


@pytest.mark.parametrize(
    "name", ["checkpoint-{}/model.bin", "step-{}/model.bin", "{}/model.bin", "model-{}.ckpt"]
)
def test_whole_checkpoints_of_a_program_of_its_own_stay_and_it_resumes_by_itself(
    tmp_path: Path, name: str
) -> None:
    files: dict[str, bytes | str] = {name.format(step): "weights" for step in (4, 8, 12, 16)}
    write(tmp_path, files)
    names = listing(tmp_path)
    beginning = begun(tmp_path)
    assert step_of(beginning) is None and beginning.remarks == []
    assert "stays as it is" in beginning.left[0] and "`none`" in beginning.left[0]
    assert {path.name for path in tmp_path.iterdir()} == names
    other = begun(tmp_path, format="none")
    assert (other.resumed, other.left) == (None, [])


@pytest.mark.parametrize(
    ("files", "moved"),
    [
        ({"checkpoint-5/trainer_state.json": "{}", "checkpoint-99/": ""}, "checkpoint-99"),
        ({"epoch=0-step=5.ckpt": torch_file(5), "epoch=0-step=9.ckpt": "x"}, "epoch=0-step=9.ckpt"),
        ({"5/_CHECKPOINT_METADATA": "{}", "9/": ""}, "9"),
    ],
    ids=["huggingface", "lightning", "orbax"],
)
def test_what_would_mislead_a_framework_is_out_of_its_way(
    tmp_path: Path, files: dict[str, bytes | str], moved: str
) -> None:
    write(tmp_path, files)
    seen_writing(tmp_path, moved)
    before = listing(tmp_path)
    assert step_of(begun(tmp_path)) == 5
    assert listing(tmp_path) == before - {moved} | {f".incomplete-{moved}"}


def test_with_a_named_format_the_first_one_may_be_unfinished(tmp_path: Path) -> None:
    write(tmp_path, {"checkpoint-9/model.bin": "x"})
    seen_writing(tmp_path, "checkpoint-9")
    assert step_of(begun(tmp_path, format="huggingface")) is None
    assert listing(tmp_path) == {".incomplete-checkpoint-9"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"owner": "uid-1"}', '{"writing": 3}'])
def test_a_note_that_makes_no_sense_moves_nothing(tmp_path: Path, text: str) -> None:
    own(tmp_path, 5)
    own(tmp_path, 15, marked=False)
    (tmp_path / NAME).write_text(text)
    begun(tmp_path)
    assert listing(tmp_path) == {"step-00000005", "step-00000015"}


def test_a_note_is_no_link_to_a_file_of_somebody_elses(tmp_path: Path) -> None:
    theirs, top = tmp_path / "theirs", tmp_path / "top"
    theirs.write_text("theirs")
    own(top, 5)
    own(top, 15, marked=False)
    (top / NAME).symlink_to(theirs)
    seen_writing(top, "step-00000015")
    begun(top)
    assert theirs.read_text() == "theirs"
    assert listing(top) == {"step-00000005", "step-00000015"}


def test_the_name_that_scripts_ask_lightning_for_is_the_newest_again(tmp_path: Path) -> None:
    write(tmp_path, {"epoch=0-step=5.ckpt": torch_file(5), "last.ckpt": torch_file(9)[:-9]})
    seen_writing(tmp_path, "last.ckpt")
    assert begun(tmp_path).remarks[-1] == "`last.ckpt` was created again from `epoch=0-step=5.ckpt`"
    assert (tmp_path / "last.ckpt").read_bytes() == torch_file(5)
    (tmp_path / "last.ckpt").unlink()
    begun(tmp_path)
    assert not (tmp_path / "last.ckpt").exists()  # nobody has asked for it


def test_a_volume_without_rename_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "rename", refuse)
    own(tmp_path, 5)
    own(tmp_path, 10)
    own(tmp_path, 15, marked=False)
    seen_writing(tmp_path, "step-00000015")
    assert "stays" in begun(tmp_path).remarks[0]
    back = begun(tmp_path, below=10)
    assert step_of(back) == 5 and "stays" in back.remarks[0]
    assert listing(tmp_path) == {"step-00000005", "step-00000010", "step-00000015"}


@pytest.mark.parametrize(
    ("tracker", "name", "text", "back"),
    [
        ("latest", "global_step{}", "global_step20", "global_step10"),
        ("latest_checkpointed_iteration.txt", "iter_{:07d}", "20", "10"),
    ],
)
def test_a_tracker_is_set_back_to_what_is_resumed(
    tmp_path: Path, tracker: str, name: str, text: str, back: str
) -> None:
    write(tmp_path, {f"{name.format(10)}/x": "x", f"{name.format(20)}/": "", tracker: text})
    beginning = begun(tmp_path)
    assert step_of(beginning) == 10
    assert (tmp_path / tracker).read_text() == back
    assert (tmp_path / f".stepped-back-{tracker}").read_text() == text
    assert f"set back from step 20 to {10}" in beginning.remarks[-1]


def test_a_tracker_stays_where_no_complete_checkpoint_proves_whose_it_is(tmp_path: Path) -> None:
    write(tmp_path, {"global_step20/": "", "latest": "global_step20"})
    assert step_of(begun(tmp_path)) is None
    assert (tmp_path / "latest").read_text() == "global_step20"


def test_a_tracker_stays_that_is_a_link_or_names_what_is_there(tmp_path: Path) -> None:
    write(tmp_path, {"global_step_4/trainer_state.pt": "x", "global_step_4/data.pt": "x"})
    write(tmp_path, {"global_step_8/actor/weights": "x", "latest_ckpt_global_step.txt": "8"})
    assert step_of(begun(tmp_path, format="skyrl")) == 4
    assert (tmp_path / "latest_ckpt_global_step.txt").read_text() == "8"
    write(tmp_path / "b", {"global_step1/x": "x", "notes-2": "2"})
    (tmp_path / "b" / "latest").symlink_to("notes-2")
    assert step_of(begun(tmp_path / "b")) == 1
    assert (tmp_path / "b" / "notes-2").read_text() == "2"


def test_a_step_back_leaves_the_newer_ones_for_people(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        own(tmp_path, step)
    assert step_of(begun(tmp_path, below=15)) == 10
    assert ".stepped-back-step-00000015" in listing(tmp_path)
    # Where nothing is before it, the newest is better than none.
    assert step_of(begun(tmp_path, below=5)) == 10


def test_what_is_done_again_finds_nothing_that_it_left_before(tmp_path: Path) -> None:
    for step in (5, 10):
        own(tmp_path, step)
    write(tmp_path, {"latest_checkpointed_iteration.txt": "10"})
    assert step_of(begun(tmp_path, below=6, anew=True)) == 5  # where its first attempt began
    again = begun(tmp_path, below=0, anew=True)
    assert step_of(again) is None and "nothing is gone on from" in again.remarks[0]
    assert begun(tmp_path, below=0, anew=True).remarks == []
    assert {".stepped-back-step-00000005", ".stepped-back-step-00000010"} <= listing(tmp_path)


def test_a_step_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="there is no checkpoint"):
        begun(tmp_path, resume="step:7")
    for step in (5, 10):
        own(tmp_path, step)
    with pytest.raises(Missing, match="the newest are: 5, 10"):
        begun(tmp_path, resume="step:7")
    assert listing(tmp_path) == {"step-00000005", "step-00000010"}
    assert step_of(begun(tmp_path, resume="step:5")) == 5
    assert ".stepped-back-step-00000010" in listing(tmp_path)


def test_resume_none_touches_nothing(tmp_path: Path) -> None:
    own(tmp_path, 5)
    own(tmp_path, 10, marked=False)
    beginning = begun(tmp_path, resume="None")
    assert step_of(beginning) is None and beginning.remarks == []
    assert listing(tmp_path) == {"step-00000005", "step-00000010"}


@pytest.mark.parametrize(("verify", "resumed"), [("Fast", 10), ("Full", 5)])
def test_the_hash_of_a_large_file_is_looked_at_where_that_is_asked_for(
    tmp_path: Path, verify: str, resumed: int
) -> None:
    own(tmp_path, 5)
    directory = own(tmp_path, 10, marked=False)
    size = HASHED_BYTES_MAX + 1
    with (directory / "model.bin").open("wb") as file:
        file.truncate(size)
    marker = {"format": 1, "step": 10, "files": {"model.bin": [size, "0" * 64]}}
    (directory / MARKER).write_text(json.dumps(marker))
    assert step_of(begun(tmp_path, verify=verify)) == resumed


@pytest.mark.parametrize("verify", ["Fast", "Full"])
def test_what_its_marker_does_not_recognise_is_not_resumed(tmp_path: Path, verify: str) -> None:
    own(tmp_path, 5)
    own(tmp_path, 10, said="weighty")
    beginning = begun(tmp_path, verify=verify)
    assert step_of(beginning) == 5
    assert "SHA-256" in beginning.left[0]

"""Before a program starts: what it resumes from, and what is moved out of its way."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fleetctl.guest.checkpoints.disk import Disk
from fleetctl.guest.checkpoints.prepare import Beginning, Missing, prepare
from tests.unit.guest.checkpoints.directories import own, torch_file, write


def begun(top: Path, **asked: Any) -> Beginning:
    usual = {"format": "auto", "verify": "Fast", "resume": "Latest", "below": None, "anew": False}
    return prepare({**usual, **asked}, Disk(str(top)))


def step_of(beginning: Beginning) -> int | None:
    return None if beginning.resumed is None else beginning.resumed.step


def listing(top: Path) -> set[str]:
    return {path.name for path in top.iterdir()}


def test_the_newest_complete_one_is_resumed_and_what_is_newer_is_set_aside(tmp_path: Path) -> None:
    own(tmp_path, 5)
    own(tmp_path, 10)
    own(tmp_path, 15, marked=False)
    beginning = begun(tmp_path)
    assert step_of(beginning) == 10
    assert listing(tmp_path) == {"step-00000005", "step-00000010", ".incomplete-step-00000015"}
    assert "`_COMPLETE.json` is missing" in beginning.remarks[0]
    assert begun(tmp_path).remarks == []
    assert listing(tmp_path) == {"step-00000005", "step-00000010"}  # it has been there to look at


@pytest.mark.parametrize(
    ("files", "step", "left"),
    [
        ({"checkpoint-5/trainer_state.json": "{}", "checkpoint-99/": ""}, 5, {"checkpoint-5"}),
        (
            {"epoch=0-step=5.ckpt": torch_file(5), "last.ckpt": ""},
            5,
            {"epoch=0-step=5.ckpt", "last.ckpt"},
        ),
        ({"5/_CHECKPOINT_METADATA": "{}", "9/": ""}, 5, {"5"}),
        ({"checkpoint-99/": ""}, None, set[str]()),
    ],
    ids=["huggingface", "lightning", "orbax", "nothing whole"],
)
def test_what_would_mislead_a_framework_is_out_of_its_way(
    tmp_path: Path, files: dict[str, bytes | str], step: int | None, left: set[str]
) -> None:
    write(tmp_path, files)
    assert step_of(begun(tmp_path)) == step
    assert {name for name in listing(tmp_path) if not name.startswith(".")} == left


def test_the_name_that_scripts_ask_lightning_for_is_the_newest_again(tmp_path: Path) -> None:
    write(tmp_path, {"epoch=0-step=5.ckpt": torch_file(5), "last.ckpt": torch_file(9)[:-9]})
    assert begun(tmp_path).remarks[-1] == "`last.ckpt` was made anew from `epoch=0-step=5.ckpt`"
    assert (tmp_path / "last.ckpt").read_bytes() == torch_file(5)
    (tmp_path / "last.ckpt").unlink()
    begun(tmp_path)
    assert not (tmp_path / "last.ckpt").exists()  # nobody has asked for it


def test_a_volume_without_rename_loses_what_is_unfinished_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "rename", refuse)
    own(tmp_path, 5)
    own(tmp_path, 10)
    own(tmp_path, 15, marked=False)
    assert "was removed" in begun(tmp_path).remarks[0]
    assert listing(tmp_path) == {"step-00000005", "step-00000010"}
    back = begun(tmp_path, below=10)
    assert step_of(back) == 5 and "stays" in back.remarks[0]
    assert listing(tmp_path) == {"step-00000005", "step-00000010"}


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
    assert f"set back from step 20 to {10}" in beginning.remarks[-1]


def test_a_tracker_without_any_complete_checkpoint_is_removed(tmp_path: Path) -> None:
    write(tmp_path, {"global_step20/": "", "latest": "global_step20"})
    assert step_of(begun(tmp_path)) is None
    assert not (tmp_path / "latest").exists()


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


@pytest.mark.parametrize("verify", ["Fast", "Full"])
def test_what_its_marker_does_not_recognise_is_not_resumed(tmp_path: Path, verify: str) -> None:
    own(tmp_path, 5)
    own(tmp_path, 10, said="weighty")
    beginning = begun(tmp_path, verify=verify)
    assert step_of(beginning) == 5
    assert "SHA-256" in beginning.remarks[0]

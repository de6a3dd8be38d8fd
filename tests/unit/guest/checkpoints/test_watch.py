"""While a program runs: a new checkpoint is committed, then told, then old ones go."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fleetctl.guest.checkpoints.disk import NAME, Disk, notebook_of
from fleetctl.guest.checkpoints.keeping import choose_removable
from fleetctl.guest.checkpoints.prepare import remove_entry
from fleetctl.guest.checkpoints.watch import Watch
from fleetctl.guest.journal.record import Journal
from fleetctl.providers.rundir.run_journal import parse_journal
from tests.unit.guest.checkpoints.directories import own

ENDED = {"ok": True, "reason": "Completed"}


class World:
    """A directory of checkpoints, a journal, and a volume whose commits the test ends itself."""

    def __init__(
        self, top: Path, *, commits: bool, keep: dict[str, Any] | None = None, made: bool = False
    ) -> None:
        self.top, self.runs = top / "ckpt", top / "runs"
        self.top.mkdir(exist_ok=made)
        self.runs.mkdir()
        own(self.top, 5)
        self.journal = Journal(os.open(self.runs, os.O_RDONLY), "run")
        self.commits: list[Callable[[str], None]] = []
        self.said: list[str] = []
        self.now_s = 100.0
        self.commit = self.commits.append if commits else None
        self.keep = keep
        self.begin()

    def begin(self) -> None:
        """Another attempt."""
        self.watch = Watch(
            {"format": "auto", "keep": self.keep, "owner": "uid-1"},
            Disk(str(self.top)),
            path="/ckpt/run",
            commit=self.commit,
            say=self.said.append,
            clock=lambda: self.now_s,
        )

    def look(self, *, whole: bool = False) -> None:
        self.now_s += 1.0
        self.watch.take(self.journal, whole=whole)

    @property
    def told(self) -> list[int]:
        seen = parse_journal((self.runs / "run.jsonl").read_bytes())
        return [one.step for one in seen.checkpoints.saved]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, commits=True)


def test_a_checkpoint_is_told_once_it_is_complete_and_committed(world: World) -> None:
    directory = own(world.top, 10, marked=False)
    world.look()
    assert world.commits == [] and world.told == []
    world.look()
    own(world.top, 10)
    world.look()
    assert world.told == [] and len(world.commits) == 1
    world.commits[0]("")
    event = json.loads((world.runs / "run.jsonl").read_text())
    size = sum(path.stat().st_size for path in directory.iterdir())
    assert (event["step"], event["path"]) == (10, "/ckpt/run/step-00000010")
    assert (event["bytes"], event["took_s"]) == (size, 2.0)
    world.look()
    assert world.told == [10] and len(world.commits) == 1


def test_a_commit_that_fails_is_tried_again_and_said(world: World) -> None:
    own(world.top, 10)
    world.look()
    world.commits.pop()("`sync /ckpt` failed")
    assert world.said == ["`sync /ckpt` failed"] and world.told == []
    world.look()
    world.commits.pop()("")
    assert world.told == [10]


def test_one_that_comes_during_a_commit_waits_for_the_next(world: World) -> None:
    own(world.top, 10)
    world.look()
    own(world.top, 15)
    world.look()
    assert len(world.commits) == 1
    world.commits.pop()("")
    assert world.told == [10]
    world.look()
    world.commits.pop()("")
    assert world.told == [10, 15]


def test_the_last_ones_are_told_with_the_end_which_commits_everything(world: World) -> None:
    own(world.top, 10)
    world.look()
    own(world.top, 15)
    world.look(whole=True)
    world.commits.pop()("")  # of a look before the end: it says no more than the end does
    assert world.told == []
    world.watch.conclude("", ENDED, world.journal)
    assert world.told == [10, 15]


def test_the_end_tells_of_none_whose_volume_could_not_be_committed(world: World) -> None:
    own(world.top, 10)
    world.look(whole=True)
    world.watch.lost()
    world.watch.conclude("", ENDED, world.journal)
    assert world.told == []


def test_a_volume_that_answers_slowly_is_asked_more_rarely(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, names = [], Disk.names

    def slowly(disk: Disk, below: str = "") -> dict[str, int]:
        if not below:
            asked.append(world.now_s)
            world.now_s += 0.5
        return names(disk, below)

    monkeypatch.setattr(Disk, "names", slowly)
    for _ in range(25):
        world.look()
    gaps = [after - before for before, after in pairwise(asked)]
    assert len(asked) == 3 and min(gaps) >= 10.0


def test_what_was_there_is_not_new_and_what_is_written_anew_is(tmp_path: Path) -> None:
    world = World(tmp_path, commits=False)
    world.look()
    assert world.told == []
    os.utime(own(world.top, 5) / "_COMPLETE.json", ns=(1, 1))
    world.look()
    assert world.told == [5]


def test_keep_removes_older_ones_but_never_the_one_resumed_from(tmp_path: Path) -> None:
    world = World(tmp_path, commits=False, keep={"last": 1, "every": 15})
    world.watch.hear({"e": "resumed", "step": 5, "path": "/ckpt/run/step-00000005"}, world.journal)
    for step in (10, 15, 20, 25):
        own(world.top, step)
        world.look()
    left = sorted(int(path.name[-8:]) for path in world.top.iterdir())
    assert left == [5, 15, 25]


def test_what_is_being_written_at_the_end_is_written_down_and_what_rests_is_not(
    tmp_path: Path,
) -> None:
    """A program of another layout has finished what no longer changes."""
    world = World(tmp_path, commits=False)
    there = Disk(str(world.top))
    world.look()
    own(world.top, 10, marked=False)
    world.look()
    assert notebook_of(there, "uid-1").writing == {"step-00000010"}
    for _ in range(3):
        world.look()
    assert not (world.top / NAME).exists()
    (world.top / "step-00000010" / "optimizer.bin").write_text("more")
    own(world.top, 15, marked=False)
    world.look(whole=True)
    assert notebook_of(there, "uid-1").writing == {"step-00000010", "step-00000015"}
    assert notebook_of(there, "uid-2").writing == set()


def test_what_was_there_at_the_beginning_is_nobodys_until_it_changes(tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    own(tmp_path / "ckpt", 20, marked=False)
    world = World(tmp_path, commits=False, made=True)
    world.look(whole=True)
    assert not (world.top / NAME).exists()


def test_a_first_checkpoint_proves_the_format_of_what_is_begun_after_it(tmp_path: Path) -> None:
    """And not of what lay there before it."""
    world = World(tmp_path, commits=False)
    remove_entry(Disk(str(world.top)), "step-00000005")
    world.begin()
    own(world.top, 2, marked=False)
    world.look()
    own(world.top, 5)
    own(world.top, 10, marked=False)
    world.look(whole=True)
    assert notebook_of(Disk(str(world.top)), "uid-1").writing == {"step-00000010"}


def test_keep_removes_what_this_run_had_set_aside_and_nothing_of_others(tmp_path: Path) -> None:
    world = World(tmp_path, commits=False, keep={"last": 1, "every": None})
    for name in (".incomplete-step-00000007", ".incomplete-step-00000008"):
        (world.top / name).mkdir()
    notebook = notebook_of(Disk(str(world.top)), "uid-1")
    notebook.moved.append(".incomplete-step-00000007")
    notebook.save(Disk(str(world.top)))
    own(world.top, 10)
    world.look()
    assert {one.name for one in world.top.iterdir()} == {
        ".incomplete-step-00000008",
        "step-00000010",
    }


@pytest.mark.parametrize(
    ("last", "every", "resumed", "gone"),
    [
        (3, None, None, [5]),
        (1, None, None, [5, 10, 15]),
        (1, 10, None, [5, 15]),
        (2, None, 5, [10]),
        (9, None, None, []),
    ],
)
def test_what_keep_no_longer_wants(
    last: int, every: int | None, resumed: int | None, gone: list[int]
) -> None:
    assert choose_removable([20, 5, 15, 10], last, every, resumed) == gone


def test_what_a_look_saw_written_just_before_the_end_is_left_unfinished(world: World) -> None:
    """The program died between the look that saw its last change and the one after its end."""
    own(world.top, 10, marked=False)
    world.look()
    world.now_s += 600.0  # a busy machine: the end is noticed late
    world.look(whole=True)
    assert notebook_of(Disk(str(world.top)), "uid-1").writing == {"step-00000010"}


def test_what_rested_while_the_program_ran_on_is_left_as_it_is(world: World) -> None:
    own(world.top, 10, marked=False)
    for _ in range(8):
        world.look()
    world.look(whole=True)
    assert notebook_of(Disk(str(world.top)), "uid-1").writing == set()

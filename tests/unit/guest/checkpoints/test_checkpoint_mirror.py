"""Copies of checkpoints elsewhere, by the real fsspec: made behind the training, brought back."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from fleetctl.guest.checkpoints import mirror as mirrors
from fleetctl.guest.checkpoints.begin import begin_training
from fleetctl.guest.checkpoints.disk import Disk
from fleetctl.guest.checkpoints.mirror import PROGRAM, Mirror, clean_text, mirror_of, restore_copy
from fleetctl.guest.checkpoints.prepare import remove_entry
from fleetctl.guest.checkpoints.watch import Watch
from fleetctl.guest.journal.record import Journal
from fleetctl.guest.ship.library import read_library
from fleetctl.providers.rundir.run_journal import parse_journal
from tests.unit.guest.checkpoints.directories import own, write

TEXT = read_library(mirror=True)[PROGRAM]
LISTING = ".mirrored.json"


class World:
    """A directory of checkpoints with a watch over it, and a mirror beside."""

    def __init__(self, top: Path, *, url: str = "", program: str = TEXT) -> None:
        self.top, self.there = top / "ckpt", top / "there"
        self.top.mkdir()
        (top / "runs").mkdir()
        self.runs = top / "runs"
        self.url = url or f"file://{self.there}"
        self.journal = Journal(os.open(self.runs, os.O_RDONLY), "run")
        self.said: list[str] = []
        self.program = program
        self.begin()

    def begin(self) -> None:
        """Another attempt."""
        made = Mirror(self.url, str(self.top), self.program, os.environ, hidden=["s3cr3t"])
        asked = {"format": "auto", "keep": None, "owner": "uid-1"}
        self.watch = Watch(
            asked, Disk(str(self.top)), path="/c", commit=None, say=self.said.append, mirror=made
        )

    def end(self) -> None:
        """The program is over: what is still copied is waited for."""
        while self.watch.copies(self.journal):
            time.sleep(0.02)
        self.watch.take(self.journal, whole=True)

    @property
    def unmirrored(self) -> tuple[str, ...]:
        return parse_journal((self.runs / "run.jsonl").read_bytes()).checkpoints.unmirrored


def test_a_checkpoint_is_copied_whole_and_its_listing_comes_last(tmp_path: Path) -> None:
    world = World(tmp_path)
    own(world.top, 10)
    world.watch.take(world.journal)
    world.end()
    copied = world.there / "step-00000010"
    assert sorted(one.name for one in copied.iterdir()) == ["_COMPLETE.json", "model.bin"]
    listing = json.loads((world.there / f"step-00000010{LISTING}").read_text())
    assert list(listing["files"])[-1] == "step-00000010/_COMPLETE.json"
    assert (listing["step"], world.unmirrored) == (10, ())


def test_what_a_run_could_not_copy_is_copied_by_the_next_one_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    own(world.top, 5)
    listing = world.there / f"step-00000005{LISTING}"
    for _ in range(2):  # the second time all of it is there
        world.begin()
        world.end()
        os.utime(listing, ns=(1, 1))
    world.begin()
    world.end()
    assert (listing.stat().st_mtime_ns, world.unmirrored) == (1, ())


def test_a_place_that_refuses_is_told_without_secrets_and_loses_nothing(tmp_path: Path) -> None:
    program = 'print(\'{"error": "PermissionError: key s3cr3t\\\\nmay not write"}\')'
    world = World(tmp_path, program=program)
    own(world.top, 10)
    world.watch.take(world.journal)
    world.end()
    told = "checkpoint `step-00000010` is not at the mirror: PermissionError: key *** may not write"
    assert world.unmirrored == (told,) and world.said == [told]
    assert [
        one.step for one in parse_journal((world.runs / "run.jsonl").read_bytes()).checkpoints.saved
    ]


def test_a_copy_that_never_ends_is_given_up_after_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, program="import time; time.sleep(600)")
    own(world.top, 10)
    world.watch.take(world.journal)
    world.watch.take(world.journal)
    assert world.watch.copying is not None
    monkeypatch.setattr(mirrors, "END_S", 0.0)
    world.end()
    assert world.watch.copying is None
    assert "was not done 0 s after the end" in world.unmirrored[0]


def beginning(world: World, **asked: Any) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """(the variables that a program begins with, what was told)."""
    usual = {"path": str(world.top), "format": "auto", "verify": "Fast", "resume": "Latest"}
    usual["owner"] = "uid-1"
    usual |= {"below": None, "anew": False, "args": [], "mirror": world.url}  # type: ignore[dict-item]
    order = {"library": {PROGRAM: TEXT}, "checkpoint": {**usual, **asked}, "secret_names": ["KEY"]}
    told: list[dict[str, Any]] = []
    library_at = str(world.runs / "python")
    variables = {**os.environ, "KEY": "s3cr3t"}
    added, _ = begin_training(order, str(world.top), library_at, variables, told.append)
    return added, told


def test_an_empty_volume_gets_the_newest_back_with_its_tracker(tmp_path: Path) -> None:
    world = World(tmp_path)
    for step in (10, 20):
        world.begin()
        write(world.top, {f"global_step{step}/x.pt": "x", "latest": f"global_step{step}"})
        world.watch.take(world.journal)
        world.end()
    for one in sorted(world.top.rglob("*"), reverse=True):
        one.rmdir() if one.is_dir() else one.unlink()
    assert beginning(world, anew=True)[0].get("FLEETCTL_RESUME_STEP") is None
    assert beginning(world, resume="None")[0].get("FLEETCTL_RESUME_STEP") is None
    assert not list(world.top.iterdir())
    added, told = beginning(world)
    assert added["FLEETCTL_RESUME_STEP"] == "20"
    assert (world.top / "latest").read_text() == "global_step20"
    assert [one["e"] for one in told] == ["resumed"]
    assert beginning(world, resume="step:10")[0]["FLEETCTL_RESUME_STEP"] == "10"
    assert (world.top / ".stepped-back-latest").read_text() == "global_step20"


def test_a_copy_that_comes_back_is_written_over_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    for step in (10, 20):
        own(world.top, step)
        world.watch.take(world.journal)
        world.end()
    remove_entry(Disk(str(world.top)), "step-00000010")
    (world.top / "step-00000020" / "_COMPLETE.json").unlink()
    (world.top / "step-00000020" / "model.bin").write_text("another program's")
    assert beginning(world)[0]["FLEETCTL_RESUME_STEP"] == "10"
    assert (world.top / "step-00000020" / "model.bin").read_text() == "another program's"
    (world.top / "step-00000010" / "_COMPLETE.json").unlink()
    added, told = beginning(world)
    assert "FLEETCTL_RESUME_STEP" not in added
    assert told[0]["e"] == "unmirrored" and "written over" in told[0]["message"]
    (world.top / ".restoring-step-00000010").touch()  # it was cut short there
    assert beginning(world)[0]["FLEETCTL_RESUME_STEP"] == "10"


def test_a_mirror_that_cannot_be_read_is_told_and_the_program_begins(tmp_path: Path) -> None:
    world = World(tmp_path, url="nosuchscheme://s3cr3t/x")
    added, told = beginning(world)
    assert "FLEETCTL_RESUME_FROM" not in added
    assert told[0]["e"] == "unmirrored" and "s3cr3t" not in told[0]["message"]


def test_a_copy_that_was_cut_short_is_not_brought_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    own(world.there, 30)
    variables = dict(os.environ)
    assert restore_copy(world.url, str(world.top), TEXT, variables, None) == (None, "")
    outside = {"step": 1, "name": "x", "files": {"../x": 1}, "tracker": None}
    (world.there / f"x{LISTING}").write_text(json.dumps(outside))
    name, problem = restore_copy(world.url, str(world.top), TEXT, variables, None)
    assert name is None and "outside of the directory" in problem


def test_one_node_alone_copies() -> None:
    order = {"checkpoint": {"mirror": "s3://b/c"}, "library": {PROGRAM: TEXT}, "secrets": {}}
    assert mirror_of(order, "/c", {"FLEETCTL_RUN": "r"}) is not None
    assert mirror_of({**order, "rank": 1}, "/c", {}) is None
    assert len(clean_text("x " * 900, [])) == 300


def test_a_copy_of_what_was_set_aside_meanwhile_is_no_second_warning(tmp_path: Path) -> None:
    world = World(tmp_path, program='print(\'{"error": "FileNotFoundError"}\')')
    own(world.top, 10)
    world.watch.take(world.journal)
    world.watch.take(world.journal)
    (world.top / "step-00000010").rename(world.top / ".incomplete-step-00000010")
    world.end()
    assert world.unmirrored == () and world.said == []

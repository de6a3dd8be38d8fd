"""A piece of each part of the campaign, the faults that it must find, and its continuation."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from fleetctl.stores.sqlite import database_files as opening
from fleetctl.stores.sqlite import store as stores
from tests.campaign import __main__ as campaign
from tests.campaign import pieces
from tests.campaign import progress as progresses
from tests.campaign.hostile import attack
from tests.campaign.manifests import validate_mutated
from tests.campaign.parts import PARTS, Part
from tests.campaign.power_cuts import cut_power
from tests.campaign.progress import Progress, load_progress, save_progress
from tests.record import results
from tests.soak.everything import SORTS, kill_everything


def test_a_store_that_loses_its_power_has_what_was_promised() -> None:
    assert cut_power(1, cuts=90) == (90, [])


def _synced(how: str) -> AbstractContextManager[object]:
    """Weakens the sync at the end of a transaction to `how`."""
    connect = opening.connect_writer

    def less(path: Path, *, synchronous: str) -> sqlite3.Connection:
        return connect(path, synchronous=how if synchronous == "FULL" else synchronous)

    return mock.patch.object(opening, "connect_writer", less)


def _founded_in_its_place() -> AbstractContextManager[object]:
    """A database is founded under its own name, as it was before."""

    def found(path: Path, found_in: Callable[[sqlite3.Connection], None]) -> None:
        database = opening.connect_writer(path, synchronous="FULL")
        found_in(database)
        database.close()

    return mock.patch.object(stores.opening, "create_database", found)


@pytest.mark.parametrize("fault", [_synced("NORMAL"), _synced("OFF"), _founded_in_its_place()])
def test_a_store_that_promises_too_early_is_found(fault: AbstractContextManager[object]) -> None:
    with fault:
        assert any(cut_power(seed, cuts=90)[1] for seed in range(10))


def test_changed_manifests_are_answered_in_words() -> None:
    assert validate_mutated(0, count=150) == (150, [])


def test_hostile_archives_repositories_and_backups_are_taken_or_refused_in_words() -> None:
    assert attack(0, count=12) == (12, [])


def test_controllers_supervisors_gateways_and_tasks_are_killed_and_nothing_is_lost() -> None:
    kills, findings = kill_everything(3, kills=2 * len(SORTS))
    assert kills >= 2 * len(SORTS) and findings == []


def _piece(number: int) -> tuple[int, list[str]]:
    assert number != 3, "this piece dies"
    return 10, [f"of {number}"] if number == 2 else []


PART = Part("some", "some of it", "tries", 20, 10, _piece, __name__)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the state of the campaign, which tests the product at commit abc."""
    monkeypatch.setattr(progresses, "FOLDER", tmp_path)
    monkeypatch.setattr(campaign, "find_product_commit", lambda: "abc")
    return tmp_path


def _play(part: Part) -> Progress:
    row = campaign.Row(part, load_progress(part.name))
    campaign.go_on([row], until_s=float("inf"), workers=2)
    assert load_progress(part.name) == row.progress
    return row.progress


def _shares(progress: Progress) -> list[tuple[str, int]]:
    return [(share.commit, share.done) for share in progress.shares]


def test_a_part_goes_on_where_it_stopped(folder: Path) -> None:
    first = _play(PART)
    assert (first.done, first.next_piece, first.open) == (20, 2, [])
    again = _play(replace(PART, wanted=40))
    assert again.done == 40 and again.begun == []
    assert [it.text for it in again.open] == ["of 2", "piece 3 ended with 1"]


def test_a_change_of_the_product_goes_on_with_fresh_seeds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _play(PART)
    monkeypatch.setattr(campaign, "find_product_commit", lambda: "def")
    played = _play(replace(PART, wanted=30))
    assert _shares(played) == [("abc", 20), ("def", 10)] and played.next_piece == 3
    count = "30 of 30 tries, 10 of them at def; 1 finding"
    assert played.describe_count(replace(PART, wanted=30)) == count
    assert [(it.commit, it.test) for it in played.findings] == [("def", "")]


def test_a_finding_that_a_test_names_is_no_more_open(folder: Path) -> None:
    played = _play(replace(PART, wanted=30))
    played.findings[0].test = "tests/a.py::test_b"
    save_progress(played)
    assert load_progress("some").open == [] and len(load_progress("some").findings) == 1


def test_each_test_that_a_finding_names_is_there() -> None:
    progresses_of_parts = [load_progress(name) for name in PARTS]
    for finding in (it for row in progresses_of_parts for it in row.findings if it.test):
        file, _, name = finding.test.partition("::")
        assert f"def {name}(" in (results.ROOT / file).read_text("utf-8")


def _kill_the_campaign(number: int) -> tuple[int, list[str]]:
    if number == 2:
        os.kill(os.getppid(), signal.SIGKILL)
    return 10, []


def test_a_campaign_that_is_killed_plays_what_it_had_begun(folder: Path) -> None:
    part = replace(PART, wanted=40, run=_kill_the_campaign)
    process = multiprocessing.get_context("fork").Process(target=_play, args=(part,))
    process.start()
    process.join()
    killed = load_progress("some")
    assert process.exitcode == -signal.SIGKILL and 2 in killed.begun and killed.done < 40
    whole = _play(replace(PART, wanted=40, run=lambda number: (10, [])))
    assert (whole.done, whole.next_piece, whole.begun) == (40, 4, [])


MEETING_S = 300.0  # against a hang alone
MEETING = multiprocessing.get_context("fork").Barrier(2)


def _meet_the_other(number: int) -> tuple[int, list[str]]:
    MEETING.wait(MEETING_S)
    return 10, []


def test_parts_play_side_by_side(folder: Path) -> None:
    parts = [replace(PART, name=name, wanted=10, run=_meet_the_other) for name in ("a", "b")]
    rows = [campaign.Row(part, load_progress(part.name)) for part in parts]
    campaign.go_on(rows, until_s=float("inf"), workers=2)
    assert [(row.progress.done, row.progress.findings) for row in rows] == [(10, [])] * 2


def _hang(number: int) -> tuple[int, list[str]]:
    if number == 0:
        signal.pause()
    return 10, []


def test_a_piece_that_waits_for_ever_is_a_finding(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "WAIT_MAX_S", 2.0)
    played = _play(replace(PART, run=_hang))
    assert [it.text for it in played.findings] == ["piece 0 did not end within 2 s"]
    assert played.done == 20

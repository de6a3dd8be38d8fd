"""A piece of each part of the campaign, the faults that it must find, and its continuation."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

import pytest

from fleetctl.stores.sqlite import database_files as opening
from fleetctl.stores.sqlite import store as stores
from tests.campaign import pieces
from tests.campaign import progress as progresses
from tests.campaign.__main__ import go_on
from tests.campaign.hostile import attack
from tests.campaign.manifests import validate_mutated
from tests.campaign.parts import Part
from tests.campaign.power_cuts import cut_power
from tests.campaign.progress import load_progress
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


PART = Part("some", "some of it", "tries", 40, 10, _piece)


def test_a_part_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progresses, "FOLDER", tmp_path)
    monkeypatch.setattr(progresses, "is_same_code", lambda commit, paths: commit == "abc")
    monkeypatch.setattr(progresses, "find_commit", lambda paths: "abc")
    first = load_progress("some")
    go_on(PART, first, 20, until_s=float("inf"), workers=2)
    assert (first.done, first.pieces, first.findings) == (20, 2, [])
    again = load_progress("some")
    go_on(PART, again, 40, until_s=float("inf"), workers=2)
    assert again.pieces >= 4 and again.findings == ["of 2", "piece 3 ended with 1"]
    monkeypatch.setattr(progresses, "is_same_code", lambda commit, paths: False)
    assert (load_progress("some").done, load_progress("some").pieces) == (0, again.pieces)


def _hang(number: int) -> tuple[int, list[str]]:
    if number == 0:
        signal.pause()
    return 10, []


def test_a_piece_that_waits_for_ever_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "WAIT_MAX_S", 2.0)
    part = Part("some", "some of it", "tries", 20, 10, _hang)
    first, second = pieces.play(part, 0, lambda number: number < 2, workers=2)
    assert (first.done, first.findings) == (0, ["piece 0 did not end within 2 s"])
    assert (second.done, second.findings) == (10, [])

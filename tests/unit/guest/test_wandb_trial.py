"""What is told to a program that talks to wandb, and what is taken in of what it writes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fleetctl.guest.journal.record import Journal
from fleetctl.guest.metrics.thinning import NAMES_MAX
from fleetctl.guest.wandb.trial import RESULT_ITEMS_MAX, TEXT_CHARACTERS_MAX, Trial
from fleetctl.providers.rundir.run_journal import parse_journal
from tests.unit.guest.wandb_writer import blocks, header, history, summary, write_run

ASKED = {"SWEEP_ID": "lr", "PROJECT": "", "ENTITY": "", "only": True, "metric": "loss"}
NEW = header("0.31.0")


class Place:
    """A run's files, its journal, and the directory that its program begins in."""

    def __init__(self, top: Path) -> None:
        self.files, self.start, self.runs = top / "files", top / "start", top / "runs"
        for directory in (self.files, self.start, self.runs):
            directory.mkdir()
        (self.files / "params.json").write_text("{}")
        self.journal = Journal(os.open(self.runs, os.O_RDONLY), "r-1")

    def trial(
        self,
        *,
        prepared: bool = True,
        asked: Mapping[str, Any] = ASKED,
        attempt: int = 1,
        **known: str,
    ) -> Trial:
        order = {"run": "r-1", "attempt": attempt, "params": {"lr": 0.5}, "wandb": asked}
        known = {"HOME": str(self.start), **known}
        trial = Trial(order, str(self.files), known, str(self.start))
        if prepared:
            trial.prepare()
        trial.begin()
        return trial

    def told(self) -> list[tuple[int, str, float]]:
        metrics = parse_journal((self.runs / "r-1.jsonl").read_bytes()).metrics
        return [(it.step, it.name, it.value) for it in metrics]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def home(trial: Trial) -> str:
    return trial.variables["WANDB_DIR"]


def test_a_run_that_wandb_handed_out_is_gone_on_with_and_uploads(place: Place) -> None:
    handed = {"SWEEP_ID": "abc", "ENTITY": "acme", "RUN_ID": "run1", "BASE_URL": "http://w"}
    own = {f"WANDB_{name}": text for name, text in handed.items()}
    for attempt, more in ((1, {}), (2, {"WANDB_RESUME": "allow"})):
        trial = place.trial(asked={**ASKED, **handed}, attempt=attempt, WANDB_API_KEY="key")
        told = dict(trial.variables)
        assert told.pop("WANDB_SWEEP_PARAM_PATH").endswith("parameters.yaml")
        assert told == {**own, **more}


def test_nothing_there_is_no_news(place: Place) -> None:
    trial = place.trial()
    assert not trial.take(place.journal)
    assert (trial.result(), trial.remark, place.told()) == (None, "", [])


def test_each_look_takes_what_is_new(place: Place) -> None:
    trial = place.trial()
    data = blocks([NEW, *(history({"x": it}, step=it) for it in range(3))])
    half = len(data) - 20
    write_run(home(trial), "r-1", data[:half])
    assert trial.take(place.journal)
    assert place.told() == [(0, "x", 0.0), (1, "x", 1.0)]
    assert not trial.take(place.journal)
    write_run(home(trial), "r-1", data)
    assert trial.take(place.journal)
    assert place.told()[2:] == [(2, "x", 2.0)]


def test_a_second_run_within_a_second_comes_after_the_first(place: Place) -> None:
    """wandb puts `-1` behind the directory's name, and leaves the file's."""
    trial = place.trial()
    for number, more in ((2, "-1"), (1, "")):
        path = Path(write_run(home(trial), "r-1", blocks([NEW, history({"x": number})])))
        if more:
            path.parent.rename(f"{path.parent}{more}")
    trial.take(place.journal, whole=True)
    assert [value for _, _, value in place.told()] == [1.0, 2.0]


def test_the_users_own_directory_is_followed_from_here_on(place: Place, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    write_run(str(theirs), "old", blocks([NEW, history({"x": 1})]))
    trial = place.trial(WANDB_DIR=str(theirs))
    assert "WANDB_DIR" not in trial.variables
    write_run(str(theirs), "new", blocks([NEW, history({"x": 2})]), at="20260101_000001")
    trial.take(place.journal, whole=True)
    assert [value for _, _, value in place.told()] == [2.0]


def test_runs_with_an_account_are_followed_where_they_begin(place: Place) -> None:
    trial = place.trial(WANDB_API_KEY="k" * 40)
    assert set(trial.variables) == {"WANDB_SWEEP_PARAM_PATH"}
    path = Path(write_run(str(place.start), "abc", blocks([NEW, history({"x": 2})])))
    path.parent.rename(path.parent.with_name("run-20260101_000000-abc"))
    trial.take(place.journal, whole=True)
    assert [value for _, _, value in place.told()] == [2.0]


def test_a_directory_of_theirs_may_be_named_from_where_it_begins(place: Place) -> None:
    trial = place.trial(WANDB_DIR="logs")
    write_run(str(place.start / "logs"), "r-1", blocks([NEW, history({"x": 2})]))
    trial.take(place.journal, whole=True)
    assert [value for _, _, value in place.told()] == [2.0]


def test_of_many_values_those_of_the_metric_are_whole_and_others_a_sample(place: Place) -> None:
    trial = place.trial()
    rows = [history({"loss": it, "other": -it}, step=it) for it in range(10_000)]
    write_run(home(trial), "r-1", blocks([NEW, *rows]))
    trial.take(place.journal, whole=True)
    told = place.told()
    assert [step for step, name, _ in told if name == "loss"] == list(range(10_000))
    others = [step for step, name, _ in told if name == "other"]
    assert others[:1000] == list(range(1000))
    assert others == sorted(set(others))
    assert others[-1] == 9_999
    assert 3_000 < len(others) < 4_500


def test_names_have_a_limit_that_is_said(place: Place) -> None:
    trial = place.trial()
    rows = [history({f"{letter}{it}": it for it in range(700)}) for letter in "ab"]
    rows.append(history({"loss": 1, "n" * 300: 2}))
    write_run(home(trial), "r-1", blocks([NEW, *rows]))
    trial.take(place.journal, whole=True)
    names = {name for _, name, _ in place.told()}
    assert len(names) == NAMES_MAX + 1 and "loss" in names
    assert f"more than {NAMES_MAX} names" in trial.remark


def test_parameters_that_the_program_removed_may_have_been_read(place: Place) -> None:
    trial = place.trial(WANDB_MODE="online")
    for path in (Path(trial.variables["WANDB_SWEEP_PARAM_PATH"]), place.files / "params.json"):
        path.unlink()
    assert not trial.unread


@pytest.mark.parametrize(
    ("text", "base_url", "own"),
    [
        ("machine api.wandb.ai\n  login user\n  password k\n", "", True),
        ("machine github.com login user password k\n", "", False),
        ("machine wandb.example.org login user password k", "https://wandb.example.org/", True),
        ("machine api.wandb.ai login user password k", "http://wandb.example.org:8080", False),
    ],
)
def test_a_key_that_wandb_login_left_in_the_image_counts_like_one_of_the_user(
    place: Place, text: str, base_url: str, own: bool
) -> None:
    (place.start / ".netrc").write_text(text)
    known = {"HOME": str(place.start)} | ({"WANDB_BASE_URL": base_url} if base_url else {})
    assert ("WANDB_MODE" not in place.trial(**known).variables) is own


def test_links_are_not_followed(place: Place, tmp_path: Path) -> None:
    path = write_run(str(tmp_path / "elsewhere"), "r-1", blocks([NEW, history({"x": 1})]))
    trial = place.trial()
    top = Path(home(trial)) / "wandb"
    (top / "offline-run-20260101_000001-r-1").mkdir(parents=True)
    (top / "offline-run-20260101_000001-r-1" / "run-r-1.wandb").symlink_to(path)
    (top / "offline-run-20260101_000002-r-1").symlink_to(Path(path).parent)
    trial.take(place.journal, whole=True)
    assert place.told() == []


@pytest.mark.parametrize(
    ("version", "late"),
    [("", True), ("0.22.3", True), ("0.30.9", True), ("0.31.0", False), ("1.0", False)],
)
def test_old_versions_are_remarked_and_new_ones_are_not(
    place: Place, version: str, late: bool
) -> None:
    trial = place.trial()
    first = [header(version)] if version else []
    write_run(home(trial), "r-1", blocks([*first, history({"x": 1})]))
    trial.take(place.journal, whole=True)
    assert ("a block at a time" in trial.remark) is late


def test_a_number_that_is_none_and_damage_are_remarked(place: Place) -> None:
    trial = place.trial()
    data = bytearray(blocks([NEW, history({"loss": float("nan")}, step=2), b"x" * 40_000]))
    data[-10] ^= 1
    write_run(home(trial), "r-1", bytes(data) + bytes(40_000))
    trial.take(place.journal, whole=True)
    assert "`loss` at step 2 is not a finite number" in trial.remark
    assert "damaged" in trial.remark


def test_a_summary_of_any_size_is_a_result_that_can_be_kept(place: Place) -> None:
    trial = place.trial()
    items: dict[Any, object] = {f"t{it}": "y" * 5000 for it in range(RESULT_ITEMS_MAX + 50)}
    write_run(home(trial), "r-1", blocks([NEW, summary({"best": 1}), summary(items)]))
    trial.take(place.journal, whole=True)
    result = trial.result()
    assert result is not None and result["best"] == 1
    assert max(len(it) for it in result.values() if isinstance(it, str)) == TEXT_CHARACTERS_MAX
    ended: dict[str, Any] = {"ok": True, "message": "", "reason": "Completed"}
    line = trial.conclude("", ended, place.journal)
    assert ended["ok"]
    assert json.loads(json.loads(line)["text"]) == {"best": 1}  # the texts had been too much


def test_what_the_program_handed_in_stays_the_result(place: Place) -> None:
    trial = place.trial()
    write_run(home(trial), "r-1", blocks([NEW, summary({"best": 1})]))
    trial.take(place.journal, whole=True)
    ended: dict[str, Any] = {"ok": True, "message": "", "reason": "Completed"}
    assert trial.conclude("its own\n", ended, place.journal) == "its own\n"


def test_beside_a_result_of_its_own_the_summary_still_tells_the_metric(place: Place) -> None:
    trial = place.trial()
    write_run(home(trial), "r-1", blocks([NEW, summary({"loss": 0.5, "best": 1})]))
    trial.take(place.journal, whole=True)
    ended: dict[str, Any] = {"ok": True, "message": "", "reason": "Completed"}
    trial.conclude("its own\n", ended, place.journal)
    assert place.told() == [(0, "loss", 0.5)]


def test_a_metric_that_was_logged_is_not_told_again_by_the_summary(place: Place) -> None:
    trial = place.trial()
    write_run(home(trial), "r-1", blocks([NEW, history({"loss": 1}), summary({"loss": 0.5})]))
    trial.take(place.journal, whole=True)
    ended: dict[str, Any] = {"ok": True, "message": "", "reason": "Completed"}
    trial.conclude("its own\n", ended, place.journal)
    assert place.told() == [(0, "loss", 1.0)]


def test_a_failure_stays_the_failure_that_it_is(place: Place) -> None:
    ended: dict[str, Any] = {"ok": False, "message": "boom", "reason": "ExitCode:1"}
    assert place.trial().conclude("", ended, place.journal) == ""
    assert (ended["reason"], ended["message"]) == ("ExitCode:1", "boom")


def test_parameters_that_something_read_are_not_unread(place: Place) -> None:
    trial = place.trial()
    assert trial.unread
    (place.files / "params.json").read_text()
    assert not trial.unread


def test_with_an_account_only_the_times_of_files_tell_that_nothing_was_read(place: Place) -> None:
    trial = place.trial(WANDB_MODE="disabled")
    Path(trial.variables["WANDB_SWEEP_PARAM_PATH"]).read_text()
    assert not trial.unread
    other = place.trial(WANDB_MODE="online")
    assert [other.unread, other.unread] == [True, True]


def logged(trial: Trial, config: str) -> None:
    """As wandb's own log has what a program gave `init`."""
    run = Path(write_run(home(trial), "r-1", blocks([NEW]))).parent
    (run / "logs").mkdir()
    line = (
        f"2026 INFO init(): wandb.init called with sweep_config: {{'lr': 0.5}}\nconfig: {config}\n"
    )
    (run / "logs" / "debug.log").write_text(f"first\n{line}2026 INFO backend started\n")


@pytest.mark.parametrize(
    ("config", "ok"),
    [("{'lr': 0.1, '_wandb': {}}", False), ("{'lr': 0.5}", True), ("{'lr': '0.5'}", True),
     ("{'epochs': 3}", True), ("{}", True), ("{'lr': <object at 0x1>}", True),
     ("{'lr': 0.1", True)],
)  # fmt: skip
@pytest.mark.parametrize("compares", [True, False])
def test_values_of_its_own_are_remarked_where_they_are_compared(
    place: Place, config: str, ok: bool, compares: bool
) -> None:
    trial = place.trial(asked={**ASKED, "only": False, "compares": compares})
    logged(trial, config)
    trial.take(place.journal, whole=True)
    ended: dict[str, Any] = {"ok": True, "reason": "", "message": ""}
    trial.conclude("", ended, place.journal)
    assert ended["ok"] is True
    remarked = "ParametersUnread" in ended["message"] and "lr=0.1 and not 0.5" in ended["message"]
    assert remarked is (compares and not ok)

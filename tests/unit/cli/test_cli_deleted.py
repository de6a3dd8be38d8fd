"""What deleted objects cost, did and said stays to be asked for, and never mixes with what took
their name.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import Refused
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.daemon.background_work import VARIABLE, engine_settings
from fleetctl.stores.base import EventRow
from fleetctl.stores.sqlite.store import SqliteStore, open_store
from tests.golden.cli.cli_world import NOW_S, FixedClock
from tests.unit.stores.asking_world import build_costs


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(SystemClock, "now_s", lambda _: NOW_S)
    build_costs(tmp_path / "home", labels={"team": "rlm"})
    return tmp_path / "home"


def answer(*words: str, code: int = 0) -> str:
    out, talk = io.StringIO(), io.StringIO()
    assert run_guarded(list(words), Screen(out, talk)) == code, talk.getvalue()
    return out.getvalue()


def asked(*words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(answer(*words, "-o", "json"))
    return found


def delete(home: Path, *, again: bool = False) -> None:
    """again: another object has taken the name, and has run for a second."""
    store = open_store(home, FixedClock())
    with store.transaction():
        store.events.record([EventRow("u", NOW_S - 9, "Normal", "Created", "batchjob/x created")])
        # Live runs are ended before an object goes.
        for run, _ in list(store.runs.of("u")):
            if run.ended_at_s is None:
                store.runs.advance(_ended(run))
        store.resources.delete("u")
    if again:
        _again(store)
    store.close()


def _ended(run: Run) -> Run:
    fields = {field: getattr(run, field) for field in Run.__slots__}
    return Run(**{**fields, "state": RunState.STOPPED, "ended_at_s": NOW_S})


def _again(store: SqliteStore) -> None:
    with store.transaction():
        row = Resource("v", "BatchJob", "x", 1, 0, "{}", "", {"team": "rlm"}, {}, NOW_S)
        store.resources.put(row, expected_version=None)
        store.events.record([EventRow("v", NOW_S, "Normal", "Created", "anew")])
        begun = Run(
            "v-0-1", "v", 0, 1, RunState.RUNNING, "modal", "v-0-1", "t", "{}", "p",
            created_at_s=NOW_S - 1, started_at_s=NOW_S - 1, usd_per_s=1.0,
        )  # fmt: skip
        store.runs.begin([begun])
        store.runs.advance(_ended(begun), result='{"loss": 1}')


@pytest.mark.parametrize("words", [(), ("--since", "7d"), ("--by", "label=team"), ("--by", "kind")])
def test_what_a_deleted_object_cost_stays_in_every_sum(home: Path, words: tuple[str, ...]) -> None:
    (before,) = asked("cost", *words)
    delete(home)
    (after,) = asked("cost", *words)
    assert round(after["usd"], 6) == round(before["usd"], 6) == 0.35
    assert after["key"] == before["key"] and after["attempts"] == before["attempts"]
    assert "deleted" not in before and after["deleted"] == 1


def test_views_tell_of_a_deleted_object_and_when_it_went(home: Path) -> None:
    before = asked("query", "select idx, attempts, state, usd from tasks where job = 'x'")
    delete(home)
    after = asked("query", "select idx, attempts, state, usd from tasks where job = 'x'")
    assert [row["idx"] for row in after] == [row["idx"] for row in before] == [0, 1, 2, 3]
    assert after[0] == before[0]
    for view in ("tasks", "attempts", "costs", "objects", "events"):
        (row,) = asked("query", f"select distinct object, deleted_at from {view}")
        assert row["object"] == "batchjob/x" and row["deleted_at"], view
    assert answer("get", "jobs", "-o", "name") == ""


def test_a_name_means_the_newest_object_that_has_it(home: Path) -> None:
    delete(home, again=True)
    rows = asked("query", "select distinct run from attempts where job = 'x'")
    assert rows == [{"run": "v-0-1"}]
    keys = {row["key"]: (round(row["usd"], 6), row["deleted"]) for row in asked("cost")}
    (past,) = keys.keys() - {"batchjob/x"}
    assert past.startswith("batchjob/x (deleted ")
    assert keys["batchjob/x"] == (1.0, 0) and keys[past] == (0.35, 1)
    assert [row["result"] for row in asked("query", "select * from results")] == ['{"loss": 1}']


def test_events_of_deleted_objects_are_shown_when_asked_for(home: Path) -> None:
    delete(home, again=True)
    assert [row["message"] for row in asked("events")] == ["anew"]
    assert [row["message"] for row in asked("events", "job/x")] == ["anew"]
    told = asked("events", "--deleted")
    assert [row["message"] for row in told] == ["batchjob/x created", "anew"]
    assert told[0]["deletedAt"] and told[1]["deletedAt"] is None
    assert [row["message"] for row in asked("events", "job/x", "--deleted")] == [
        "batchjob/x created", "anew",
    ]  # fmt: skip


def test_events_of_a_name_that_only_deleted_objects_had(home: Path) -> None:
    delete(home)
    answer("events", "job/x", code=4)
    assert [row["object"] for row in asked("events", "job/x", "--deleted")] == ["batchjob/x"]
    answer("events", "job/other", "--deleted", code=4)


@pytest.mark.parametrize(("said", "kept_s"), [("", None), ("30d", 30 * 86_400), ("0", 0)])
def test_how_long_it_is_kept_is_a_setting_of_the_controller(
    monkeypatch: pytest.MonkeyPatch, said: str, kept_s: float | None
) -> None:
    monkeypatch.setenv(VARIABLE, said)
    assert engine_settings().keep_deleted_s == kept_s


def test_a_setting_that_is_no_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "a while")
    with pytest.raises(Refused, match="FLEETCTL_KEEP_DELETED is `a while`"):
        engine_settings()

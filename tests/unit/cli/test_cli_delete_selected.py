"""`delete KIND -l LABELS` deletes what `get KIND -l LABELS` shows, and never all by a slip."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from fleetctl.cli.change import delete
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.controllers.model import Resource, Run, RunState
from fleetctl.stores.sqlite.store import open_store
from fleetctl.tracking.annotations import SCHEDULED_BY
from tests.cli_controller import controller

OBJECTS = (
    ("BatchJob", "a", "default", {"team": "rlm"}, "{}"),
    ("BatchJob", "b", "default", {"team": "rlm", "stage": "prod"}, "{}"),
    ("BatchJob", "c", "default", {}, "{}"),
    ("BatchJob", "d", "team", {"team": "rlm"}, "{}"),
    ("Sweep", "e", "default", {"team": "rlm"}, "{}"),
    ("Volume", "f", "default", {"team": "rlm"}, '{"deletionPolicy": "Delete"}'),
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    monkeypatch.setenv("FLEETCTL_HOME", str(place))
    store = open_store(place, SystemClock())
    with store.transaction():
        for kind, name, namespace, labels, spec in OBJECTS:
            row = Resource(
                f"u-{name}", kind, name, 1, 0, spec, "", labels, {}, 5.0, namespace=namespace
            )
            store.resources.put(row, expected_version=None)
    store.close()
    return place


def deleted(home: Path, *words: str, talk_is_terminal: bool = False) -> tuple[int, list[str], str]:
    """The exit code, what the controller is asked to delete, and what is said."""
    out, talk = io.StringIO(), io.StringIO()
    with controller(home, lambda _: b'{"ok": true, "results": []}\n') as asked:
        screen = Screen(out, talk, talk_is_terminal=talk_is_terminal)
        code = run_guarded(["delete", *words, "--no-wait"], screen)
    return code, [key for line in asked for key in json.loads(line)["keys"]], talk.getvalue()


def test_those_of_a_kind_with_the_labels_go_and_no_others(home: Path) -> None:
    assert deleted(home, "jobs", "-l", "team=rlm")[:2] == (0, ["batchjob/a", "batchjob/b"])
    assert deleted(home, "jobs", "-l", "team=rlm,stage!=prod")[1] == ["batchjob/a"]
    assert deleted(home, "jobs", "-l", "!team")[1] == ["batchjob/c"]
    assert deleted(home, "jobs", "-l", "team=rlm", "-n", "team")[1] == ["batchjob/d -n team"]
    code, keys, _ = deleted(home, "all", "-l", "team=rlm", "--yes")
    assert (code, keys) == (0, ["batchjob/a", "batchjob/b", "sweep/e", "volume/f"])


def test_data_that_nobody_agrees_to_lose_stays_and_holds_nothing_else_up(home: Path) -> None:
    code, keys, said = deleted(home, "all", "-l", "team=rlm")
    assert (code, keys) == (3, ["batchjob/a", "batchjob/b", "sweep/e"])
    assert "deletes its data (deletionPolicy is Delete); volume/f stays" in said
    assert deleted(home, "volume/f")[:2] == (3, [])


def test_each_object_with_a_loss_is_asked_about_by_itself(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(home, SystemClock())
    spec = '{"deletionPolicy": "Delete"}'
    with store.transaction():
        for name in "gh":
            row = Resource(f"u-{name}", "Volume", name, 1, 0, spec, "", {}, {}, 5.0)
            store.resources.put(row, expected_version=None)
    store.close()
    answers = io.StringIO("y\nn\ny\n")
    monkeypatch.setattr(answers, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin", answers)
    code, keys, said = deleted(
        home, "volume/f", "volume/g", "volume/h", "job/a", talk_is_terminal=True
    )
    assert (code, sorted(keys)) == (3, ["batchjob/a", "volume/f", "volume/h"])
    assert [said.count(f"delete volume/{it}?") for it in "fgh"] == [1, 1, 1]
    assert "volume/g stays" in said


def test_labels_that_nothing_has_delete_nothing(home: Path) -> None:
    assert deleted(home, "jobs", "-l", "team=none") == (0, [], "no object has such labels\n")


@pytest.mark.parametrize(
    "words",
    [["jobs", "-l", ""], ["jobs", "-l", " , "], ["-l", "team=rlm"], ["jobs"], ["all"],
     ["job/a", "-l", "team=rlm"], ["jobs", "sweeps", "-l", "team=rlm"], ["none", "-l", "a=b"],
     ["jobs", "-l", "team=rlm", "-f", "x.yaml"]],
)  # fmt: skip
def test_a_slip_deletes_nothing(home: Path, words: list[str]) -> None:
    code, keys, _ = deleted(home, *words)
    assert (code, keys) == (2, [])


def test_all_of_a_kind_go_after_a_yes_and_providers_stay(home: Path) -> None:
    code, keys, said = deleted(home, "jobs", "--all")
    assert (code, keys) == (3, [])
    assert "3 objects would be deleted: batchjob/a, batchjob/b, batchjob/c" in said
    code, keys, _ = deleted(home, "jobs,sweeps", "--all", "--yes")
    assert (code, keys) == (0, ["batchjob/a", "batchjob/b", "batchjob/c", "sweep/e"])
    assert deleted(home, "--all", "--yes")[1][-1] == "volume/f"
    assert deleted(home, "all", "--all", "--yes", "-n", "team")[1] == ["batchjob/d -n team"]
    assert deleted(home, "functions", "--all")[::2] == (0, "there is nothing\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["all"], 2, "hint: fleetctl delete --all\n"),
        (["jobs"], 2, "`fleetctl delete batchjob/NAME`, or `--all` of them"),
        (["pods"], 2, "there is no kind `pods`"),
        (["job/a", "--all"], 2, "`--all` takes no names"),
        (["-f", "x.yaml", "--all"], 2, "leave out `-l` and `--all`"),
        (["job/y", "job/z"], 4, "no BatchJob `y`\nerror: there is no BatchJob `z`\n"),
    ],
)
def test_what_cannot_be_meant_deletes_nothing(
    home: Path, words: list[str], code: int, said: str
) -> None:
    found, keys, talk = deleted(home, *words)
    assert (found, keys) == (code, [])
    assert said in talk


def test_deleted_is_said_once_the_object_is_gone_and_not_when_nothing_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete, "WaitSupervisor", lambda place, screen: nullcontext(Mock()))
    store = open_store(home, SystemClock())
    [row] = [it for it in store.resources.list() if it.name == "a"]
    idle = {"phase": "Deleting", "active": 0, "waitingOn": ["the end of 1 run is not confirmed"]}
    with store.transaction():
        row = store.resources.put(replace(row, deleted_at_s=6.0), expected_version=row.version)
        store.resources.put_status(row.uid, json.dumps(idle), expected_version=row.version)
    out, talk = io.StringIO(), io.StringIO()
    words = ["delete", "job/a", "--timeout", "0.2"]
    assert run_guarded(words, Screen(out, talk)) == 124
    assert out.getvalue() == ""
    with store.transaction():
        store.resources.delete(row.uid)
    store.close()
    assert run_guarded([*words, "--ignore-not-found"], Screen(out, talk)) == 0


def test_what_runs_of_a_schedule_is_asked_about_unless_it_stays(home: Path) -> None:
    store = open_store(home, SystemClock())
    with store.transaction():
        schedule = Resource("u-s", "Schedule", "s", 1, 0, "{}", "", {}, {}, 5.0)
        store.resources.put(schedule, expected_version=None)
        owner = {SCHEDULED_BY: "u-s"}
        for name, started_at_s in (("s-1", 7.0), ("s-2", None)):
            row = Resource(f"u-{name}", "BatchJob", name, 1, 0, "{}", "", {}, owner, 6.0)
            store.resources.put(row, expected_version=None)
            state = RunState.STARTING if started_at_s is None else RunState.RUNNING
            run = Run(f"r-{name}", row.uid, 0, 1, state, "local", f"r-{name}", "t", "{}", "p", 6.0)
            store.runs.begin([replace(run, started_at_s=started_at_s)])
    store.close()
    code, keys, said = deleted(home, "schedule/s")
    assert (code, keys) == (3, [])
    assert "schedule/s: batchjob/s-1 goes with it: 1 running task would be stopped" in said
    assert "s-2" not in said, "what has not begun loses nothing"
    assert deleted(home, "schedule/s", "--yes")[:2] == (0, ["schedule/s"])
    assert deleted(home, "schedule/s", "--cascade", "orphan")[:2] == (0, ["schedule/s"])

"""Following work: attempts that come and go, progress, and controllers that come and go."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fleetctl.cli.follow.logs_follow import RunLogFollower
from fleetctl.cli.follow.logs_stream import LogSelection
from fleetctl.cli.follow.progress import PlainProgress
from fleetctl.cli.follow.wait_supervisor import WaitSupervisor
from fleetctl.cli.output.live import LiveProgress
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.show.spec_lines import spec_lines
from fleetctl.cli.show.work_lines import where_line
from fleetctl.common.clock import SystemClock
from fleetctl.common.state_paths import LOCK
from fleetctl.daemon.client import spawn
from fleetctl.stores.read.rows import ResourceRow, RunRow, TaskRow
from fleetctl.views.goals import GoalOutcome, WaitGoal, check_goal, format_tally
from fleetctl.views.objects import View, build_view
from fleetctl.views.tasks import Task, build_task, is_in_ranges, list_in_order
from fleetctl.views.tasks import build_attempt as one_attempt

ALL = LogSelection(None, failed=False, attempt=None, tail=None, prefixed=True)


def seen(**status: object) -> View:
    row = ResourceRow(
        uid="u", kind="Sweep", name="lr", generation=1, version=1, created_at_s=0.0,
        deleted_at_s=None, labels={}, annotations={},
        status=json.dumps({"observedGeneration": 1, "phase": "Running", **status}),
    )  # fmt: skip
    return build_view(row, lambda: "{}")


def attempt(number: int, state: str, *, index: int = 0) -> Task:
    run = RunRow(
        index=index, attempt=number, state=state, name=f"r{index}-{number}", provider="local",
        sandbox="", handle="", created_at_s=0.0, started_at_s=1.0, ended_at_s=3.0, exit_code=None,
        reason="", message="", sandbox_open=False, params="{}",
    )  # fmt: skip
    return build_task(TaskRow(run, number, None), seen())


class Clock:
    """Time that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(SystemClock, "now_s", lambda _: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def pair() -> tuple[Screen, Callable[[], str], Callable[[], str]]:
    out, talk = io.StringIO(), io.StringIO()
    return Screen(out, talk), out.getvalue, talk.getvalue


def test_the_output_of_an_attempt_that_ended_between_two_looks_is_not_lost(tmp_path: Path) -> None:
    screen, out, talk = pair()
    logs = tmp_path / "local" / "jobs" / "u" / "runs"
    logs.mkdir(parents=True)
    follower = RunLogFollower(tmp_path, ALL, screen)
    follower.show_new(seen(), attempt(1, "Running"))
    (logs / "r0-1.log").write_text("from one\n")
    (logs / "r0-2.log").write_text("from two\n")
    follower.show_new(seen(), attempt(1, "Failed"))
    follower.show_new(seen(), attempt(2, "Running"))
    assert follower.drain() == 1
    follower.show_new(seen(), attempt(2, "Succeeded"))
    follower.show_new(seen(), attempt(1, "Failed"))
    assert follower.drain() == 0
    assert out() == "[0/1] from one\n[0/2] from two\n"
    assert talk() == "[0/1] -- failed after 2.0s\n[0/2] -- succeeded after 2.0s\n"


def test_attempts_known_from_before_are_left_out(tmp_path: Path) -> None:
    screen, out, talk = pair()
    follower = RunLogFollower(tmp_path, ALL, screen)
    follower.known(attempt(1, "Failed"))
    follower.show_new(seen(), attempt(1, "Failed"))
    assert (follower.drain(), out(), talk()) == (0, "", "")


def test_plain_progress_speaks_at_once_of_phases_and_seldom_of_counts(clock: Clock) -> None:
    screen, _, talk = pair()
    progress = PlainProgress(screen)
    progress.show([seen(phase="Pending", total=4)])
    progress.show([seen(total=4, active=2)])
    progress.show([seen(total=4, active=2, succeeded=1)])
    clock.now_s += 60
    progress.show([seen(total=4, active=2, succeeded=2)])
    clock.now_s += 60
    progress.show([seen(total=4, active=2, succeeded=2)])
    assert talk().splitlines() == [
        "sweep/lr: Pending, 0/4 done",
        "sweep/lr: Running, 0/4 done, 2 active",
        "sweep/lr: Running, 2/4 done, 2 active",
    ]


def test_the_live_display_names_the_object_its_counts_and_the_best_so_far() -> None:
    talk = io.StringIO()
    screen = Screen(io.StringIO(), talk, talk_is_terminal=True)
    live = LiveProgress(screen)
    best = {"index": 1, "params": {}, "metric": {"name": "loss", "value": 0.25}}
    live.show([seen(total=4, succeeded=2, best=best)])
    live.close()
    assert "sweep/lr" in talk.getvalue()
    assert "2/4 done" in talk.getvalue()
    assert "best loss=0.25" in talk.getvalue()


@pytest.mark.parametrize("columns", [60, 80])
def test_the_elapsed_time_stays_whole_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    talk = io.StringIO()
    live = LiveProgress(Screen(io.StringIO(), talk, talk_is_terminal=True))
    one = seen(total=4000, succeeded=2000, active=1000, failed=7)
    live.show([one._replace(resource=one.resource._replace(name="a" * 40))])
    live.close()
    last = talk.getvalue().rpartition("\r")[2]
    assert "0:00:00" in last
    assert "Running  2000/4000 done" in last


def test_what_only_tries_to_start_is_not_active_while_nothing_runs() -> None:
    pending = seen(phase="Pending", active=3, starting=3)
    assert (pending.active, pending.starting) == (0, 3)
    assert "active" not in format_tally(pending)
    running = seen(active=3, starting=2)
    assert (running.active, running.starting) == (3, 0)
    assert "3 active" in format_tally(running)


def test_describe_quotes_what_would_be_read_as_something_else() -> None:
    written = {"A": "40", "B": "true", "C": "null", "D": "*x", "E": "1e5", "F": "plain", "G": 40}
    assert yaml.safe_load("\n".join(spec_lines(written))) == written


class Controllers:
    """Counts starts in place of starting processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        self.home = home
        self.started = 0
        self.pid: int | None = None
        (home / LOCK).parent.mkdir(parents=True)
        monkeypatch.setattr(spawn, "find_holder_pid", lambda _: self.pid)
        monkeypatch.setattr(spawn, "start_controller", self._start)

    def _start(self, _home: Path) -> None:
        self.started += 1
        self.pid = 7
        (self.home / LOCK).write_text("7 boot\n")

    def killed(self) -> None:
        self.pid = None

    def stopped(self) -> None:
        self.pid = None
        (self.home / LOCK).write_text("")


def test_waiting_restarts_a_killed_controller_but_not_one_that_was_told_to_stop(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    controllers = Controllers(monkeypatch, tmp_path)
    screen, _, talk = pair()

    def look() -> int:
        clock.now_s += 5
        supervisor.check()
        return controllers.started

    with WaitSupervisor(tmp_path, screen) as supervisor:
        assert controllers.started == 0
        assert look() == 1
        assert look() == 1
        controllers.killed()
        assert look() == 2
        controllers.stopped()
        assert look() == 2
        assert look() == 2
    assert talk() == (
        "the controller was killed; starting it again\n"
        "the controller was stopped; nothing moves on until `fleetctl up --detach`\n"
    )


@pytest.mark.parametrize(
    ("state", "status", "word"),
    [
        ("Running", {}, "Running"),
        ("Succeeded", {}, "Succeeded"),
        ("Failed", {}, "Queued"),
        ("Failed", {"failedIndexes": "0-2"}, "Failed"),
        ("Failed", {"phase": "Failed"}, "Failed"),
        ("Lost", {}, "Queued"),
        ("Lost", {"phase": "Failed"}, "Failed"),
        ("Stopped", {}, "Queued"),
        ("Stopped", {"phase": "Succeeded"}, "Cancelled"),
        ("Refused", {"phase": "Failed"}, "Refused"),
        ("Refused", {"phase": "Failed", "failedIndexes": "0-2"}, "Failed"),
    ],
)
def test_a_task_that_goes_on_is_queued_whatever_its_last_attempt_came_to(
    state: str, status: dict[str, object], word: str
) -> None:
    row = TaskRow(attempt(1, state).run, 1, None)
    assert build_task(row, seen(**status)).state == word


@pytest.mark.parametrize(
    ("state", "word"), [("Running", "Running"), ("Lost", "Failed"), ("Stopped", "Cancelled")]
)
def test_an_attempt_that_has_ended_is_not_queued_though_its_task_is(state: str, word: str) -> None:
    assert one_attempt(attempt(1, state).run).state == word


def test_sets_of_indexes_are_read_as_the_status_writes_them() -> None:
    assert list(list_in_order("0-2,7,9-10,...")) == [0, 1, 2, 7, 9, 10]
    assert [n for n in range(12) if is_in_ranges(n, "0-2,7,9-10,...")] == [0, 1, 2, 7, 9, 10]
    assert list(list_in_order("")) == []


def test_a_succeeded_object_whose_spec_changed_is_waited_for() -> None:
    changed = seen(phase="Succeeded", observedGeneration=0)
    assert check_goal(WaitGoal("complete"), changed).outcome is GoalOutcome.WAITING


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({"active": 2, "where": {"modal": 2}}, "modal 2 active of 5 runs"),
        ({}, "modal, local"),
        (
            {"phase": "Pending", "active": 1, "starting": 1, "where": {"local": 1}},
            "local 1 starting",
        ),
    ],
)
def test_describe_has_where_the_work_is_or_may_be(status: dict[str, object], shown: str) -> None:
    total = 5 if "modal" in str(status) else 0
    places = [{"provider": "modal", "total": total}, {"provider": "local", "total": 0}]
    assert where_line(seen(placement=places, **status)) == shown

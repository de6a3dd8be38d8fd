"""What `fleetctl retry` asks of the controller, and what it says."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from fleetctl.cli.change import retry
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import UsageError
from tests.cli_controller import controller


@pytest.mark.parametrize("flags", [[], ["--failed", "--all"], ["--index", "1", "--failed"]])
def test_it_must_be_told_which_tasks_in_one_way(flags: list[str]) -> None:
    args = retry.parser("retry").parse_args(["job/a", *flags])
    with pytest.raises(UsageError, match="say which tasks"):
        retry.run(args, Screen.__new__(Screen))


def test_what_runs_nothing_has_nothing_to_retry() -> None:
    args = retry.parser("retry").parse_args(["volume/a", "--all"])
    with pytest.raises(UsageError, match="runs nothing"):
        retry.run(args, Screen.__new__(Screen))


@pytest.mark.parametrize(
    ("units", "live", "said"),
    [
        (4, 0, "batchjob/a: 4 tasks requeued (attempts kept)"),
        (1, 2, "batchjob/a: 1 task requeued (attempts kept); 2 tasks running already"),
        (0, 0, "batchjob/a: 0 tasks requeued"),
    ],
)
def test_it_says_how_many_are_wanted_again(units: int, live: int, said: str) -> None:
    result = {"key": "batchjob/a", "units": units, "live": live, "unit": "task"}
    assert retry._format_result(result) == said


@pytest.mark.parametrize(
    ("flags", "live", "why"),
    [
        (["--failed"], 0, "no task has failed for good, and none was refused\n"),
        (["--index", "1"], 0, "each of these tasks waits for its turn already\n"),
        (["--index", "1"], 1, ""),
        (["--all"], 0, "no task has run yet\n"),
    ],
)
def test_where_nothing_is_requeued_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], live: int, why: str
) -> None:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path))
    result = {"key": "batchjob/a", "units": 0, "live": live, "unit": "task"}
    reply = json.dumps({"ok": True, "results": [result]}).encode() + b"\n"
    out, talk = io.StringIO(), io.StringIO()
    with controller(tmp_path, lambda _: reply):
        assert run_guarded(["retry", "job/a", *flags], Screen(out, talk)) == 0
    assert talk.getvalue() == why

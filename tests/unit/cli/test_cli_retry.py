"""What `fleetctl retry` asks of the controller, and what it says."""

from __future__ import annotations

import pytest

from fleetctl.cli import retry
from fleetctl.cli.render import Screen
from fleetctl.errors import UsageError


@pytest.mark.parametrize("flags", [[], ["--failed", "--all"], ["--index", "1", "--failed"]])
def test_it_must_be_told_which_tasks_in_one_way(flags: list[str]) -> None:
    args = retry.parser("retry").parse_args(["job/a", *flags])
    with pytest.raises(UsageError, match="say which tasks"):
        retry.run(args, Screen.__new__(Screen))


def test_what_runs_nothing_has_nothing_to_retry() -> None:
    args = retry.parser("retry").parse_args(["volume/a", "--all"])
    with pytest.raises(UsageError, match="does no work"):
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
    assert retry._line(result) == said

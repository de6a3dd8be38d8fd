"""What an observation makes of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.controllers.history.outcome import FENCED, MESSAGE_BYTES_MAX, conclude_run
from fleetctl.controllers.model import Alive, Ended, Gone, Run, RunState

STARTING = Run("r", "u", 0, 1, RunState.STARTING, "local", "r", "t", "{}", "p", 0.0)
RUNNING = replace(STARTING, state=RunState.RUNNING, handle="h", started_at_s=1.0)
STOPPING = replace(RUNNING, state=RunState.STOPPING, reason="Suspended")
ENDED = Ended("r", "h", 1.0, 9.0, True, False, "Completed", "", 0, 40)
FAILED = replace(ENDED, ok=False, reason="ExitCode:2", message="boom", exit_code=2)


def after(run: Run, seen: Alive | Ended | Gone, *, settled: bool = True) -> Run:
    found = conclude_run(run, seen, settled=settled)
    assert found is not None
    return found


def test_a_run_that_is_seen_alive_is_running() -> None:
    found = after(STARTING, Alive("r", "h", 2.0, 10))
    assert (found.state, found.handle, found.started_at_s) == (RunState.RUNNING, "h", 2.0)


def test_nothing_new_is_no_record() -> None:
    assert conclude_run(RUNNING, Alive("r", "h", 1.0, 0), settled=True) is None


def test_a_late_look_never_moves_the_journal_back() -> None:
    run = replace(RUNNING, journal_offset=100)
    assert conclude_run(run, Alive("r", "h", 1.0, 50), settled=True) is None
    assert after(run, replace(ENDED, journal_offset=50)).journal_offset == 100


def test_a_stopping_run_that_is_alive_is_still_stopping() -> None:
    assert after(STOPPING, Alive("r", "h", 1.0, 10)).state is RunState.STOPPING


def test_an_end_with_success_succeeds() -> None:
    assert after(RUNNING, ENDED).state is RunState.SUCCEEDED


def test_a_failure_of_the_application_and_one_of_the_machine_are_told_apart() -> None:
    assert after(RUNNING, FAILED).state is RunState.FAILED
    assert after(RUNNING, replace(FAILED, infrastructure=True)).state is RunState.LOST


def test_a_timeout_is_a_failure_of_the_application() -> None:
    found = after(RUNNING, replace(FAILED, reason="Timeout", exit_code=None))
    assert (found.state, found.reason, found.exit_code) == (RunState.FAILED, "Timeout", None)


def test_a_stopped_run_consumes_no_attempt_and_keeps_the_reason_of_the_stop() -> None:
    found = after(STOPPING, replace(FAILED, reason="ExitCode:143"))
    assert (found.state, found.reason) == (RunState.STOPPED, "Suspended")


def test_work_that_ended_well_before_the_stop_reached_it_counts() -> None:
    assert after(STOPPING, ENDED).state is RunState.SUCCEEDED


@pytest.mark.parametrize("reason", sorted(FENCED))
def test_the_result_of_a_wish_that_is_no_longer_there_is_fenced_off(reason: str) -> None:
    found = after(replace(STOPPING, reason=reason), ENDED)
    assert (found.state, found.reason) == (RunState.STOPPED, reason)


def test_gone_means_nothing_before_the_look_is_settled() -> None:
    for run in (STARTING, RUNNING, STOPPING):
        assert conclude_run(run, Gone("r", 5.0), settled=False) is None


def test_a_start_that_nobody_confirmed_is_not_lost_when_it_is_not_there() -> None:
    assert conclude_run(STARTING, Gone("r", 5.0), settled=True) is None


def test_a_running_run_that_is_gone_is_lost() -> None:
    found = after(RUNNING, Gone("r", 5.0))
    assert (found.state, found.reason, found.ended_at_s) == (RunState.LOST, "ProviderLost", 5.0)


def test_a_stopping_run_that_is_gone_is_stopped() -> None:
    found = after(STOPPING, Gone("r", 5.0))
    assert (found.state, found.reason) == (RunState.STOPPED, "Suspended")


def test_a_long_message_keeps_its_end() -> None:
    found = after(RUNNING, replace(FAILED, message="é" * 5_000 + "ValueError: the cause"))
    assert len(found.message.encode()) <= MESSAGE_BYTES_MAX
    assert found.message.startswith("...")
    assert found.message.endswith("ValueError: the cause")

"""Shared by the contract suites: their assertions explain themselves as those of test modules do,
and which of their tests run on which backend.

`local` and one remote backend, `daytona`, pass the suite whole in `make test`. On the others the
guest is the same program, so that a class with `whole = False` leaves the guest's tests to
`make test-all` and runs those of the seam: starts, adoption, ends, stops, lists, odd replies, and
each field that the provider itself carries out. One with `second = True` runs no test of a field.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.contracts.provider_outputs")

OF_THE_GUEST = (
    "ProviderCheckpoints",
    "ProviderMetrics",
    "ProviderOutputs",
    "ProviderServices",
    "ProviderSharing",
    "ProviderWandb",
    "ProviderFields.test_a_script_is_read_by_a_shell",
    "ProviderInputs.test_a_python_task_gets_the_path_of_its_file",
    "ProviderInputs.test_a_task_of_several_files_gets_one_path_a_line",
    "ProviderKeptFiles.test_a_failed_attempt_keeps_its_outputs_and_a_pattern_can_take_out",
    "ProviderKeptFiles.test_a_failed_attempt_says_why_and_not_what_it_left",
    "ProviderKeptFiles.test_a_file_that_is_too_large_fails_its_attempt_and_the_others_are_kept",
    "ProviderKeptFiles.test_a_pattern_that_no_file_matches_is_named",
    "ProviderKeptFiles.test_what_nobody_keeps_is_said_in_the_log",
    "ProviderSources.test_a_task_has_no_metrics_of_the_one_before_in_its_copy_of_the_source",
    "ProviderContract.test_a_command_that_is_not_there_says_so",
    "ProviderContract.test_a_run_that_takes_too_long_ends_with_timeout",
    "ProviderContract.test_a_signal_is_told_by_its_name",
    "ProviderContract.test_an_exception_fails_the_run_and_its_traceback_shows_the_task_alone",
    "ProviderContract.test_an_exit_code_is_told_exactly",
    "ProviderContract.test_sys_exit_of_a_python_task_is_its_exit_code",
    "ProviderVolumeTasks.test_a_chunk_of_a_volume_has_a_path_a_line",
    "ProviderVolumeTasks.test_the_content_of_a_file_in_a_volume_is_its_task",
)
# Of a second backend of one provider, whose orders the provider builds as those of the first.
OF_THE_ORDER = ("ProviderFields", "ProviderInputs", "ProviderKeptFiles", "ProviderSources")
REASON = "contract tests of the guest, which pass on `local` and `daytona`, on the other backends"
REASON_OF_SECOND = "contract tests of an order's fields on Modal's older backend"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        suite = getattr(item, "cls", None)
        name = getattr(getattr(item, "function", None), "__qualname__", "")
        if not getattr(suite, "whole", True) and name.startswith(OF_THE_GUEST):
            item.add_marker(pytest.mark.only_all(reason=REASON))
        elif getattr(suite, "second", False) and name.startswith(OF_THE_ORDER):
            item.add_marker(pytest.mark.only_all(reason=REASON_OF_SECOND))

"""The SDK of Daytona that is installed: one that cannot be used is named with what it lacks."""

from __future__ import annotations

import pytest

from fleetctl.providers.daytona.connection import sdk


def test_a_version_that_can_be_used_has_no_problem() -> None:
    assert sdk.find_problem() == ""


@pytest.mark.parametrize(
    ("package", "problem"),
    [
        ("no_such_package_here", "is not installed"),
        ("json", "is installed, and has no `AsyncDaytona`: a version >=0.224,<1 is needed"),
    ],
)
def test_one_that_cannot_is_told_as_what_it_is(
    monkeypatch: pytest.MonkeyPatch, package: str, problem: str
) -> None:
    monkeypatch.setattr(sdk, "PACKAGE", package)
    assert sdk.find_problem().endswith(problem)


def test_an_error_that_a_version_does_not_know_is_never_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sdk, "PACKAGE", "json")
    assert {getattr(sdk, name) for name in sdk.NOT_EVERYWHERE} == {sdk.NeverRaised}

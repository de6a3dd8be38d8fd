"""Which things a list shows, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from fleetctl.cli.output.jsonpath.evaluate import VisitLimit
from fleetctl.cli.output.select import field_terms, matches_terms, select_items
from fleetctl.common.errors import UsageError

JOB: dict[str, Any] = {
    "metadata": {"name": "x", "labels": {"team": "rlm"}},
    "status": {"phase": "Running", "total": 5, "message": "", "exitCode": None, "ok": True},
}


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ("status.phase=Running", True), ("status.phase==Running", True), ("status=Running", True),
        ("status!=Running", False), ("status=Failed", False), ("name=x,status=Running", True),
        ("name=x,status=Failed", False), ("{.status.phase}=Running", True),
        ("status.total=5", True), ("status.total=5.0", False), ("status.ok=true", True),
        ("status.message=", True), ("status.nothing=", True), ("status.nothing!=x", True),
        ("exitCode=", True), ("exitCode!=0", True), ("metadata.labels.team=rlm", True),
    ],
)  # fmt: skip
def test_all_parts_of_a_field_selector_must_hold(fields: str, taken: bool) -> None:
    assert matches_terms(field_terms(fields), JOB, VisitLimit()) is taken


@pytest.mark.parametrize(
    "fields",
    ["status", "=x", "status=a,", ",", "status.phase[=a", "stauts=Failed", "nothing.phase=a"],
)
def test_what_is_no_field_selector_is_refused(fields: str) -> None:
    with pytest.raises(UsageError):
        field_terms(fields)


@pytest.mark.parametrize(
    ("values", "ascending"),
    [
        (["job-10", "job-9", "job-1"], ["job-1", "job-9", "job-10"]),
        (["b", "a", None, 3, 2.5, "10"], [None, 2.5, 3, "10", "a", "b"]),
        (["a007", "a8", "a07"], ["a007", "a07", "a8"]),
        ([True, 0.5, False], [False, 0.5, True]),
        (["2027-01-15T08:00:00Z", "2026-12-31T08:00:00Z"],
         ["2026-12-31T08:00:00Z", "2027-01-15T08:00:00Z"]),
    ],
)  # fmt: skip
def test_a_list_is_sorted_as_people_sort(values: list[Any], ascending: list[Any]) -> None:
    things = select_items(values, lambda value, _: {"x": {"y": value}}, fields="", sort_by="{.x.y}")
    assert things == ascending


def test_only_the_parts_that_a_path_names_are_asked_for() -> None:
    asked: set[str] = set()

    def document(_: str, parts: Any) -> dict[str, Any]:
        asked.update(parts)
        return JOB

    select_items(["a"], document, fields="status=Running", sort_by=".metadata.name")
    assert asked == {"status", "metadata"}
    select_items(["a"], document, fields="..name=x", sort_by="")
    assert asked == {"status", "metadata", "spec"}


def test_equal_things_keep_their_order() -> None:
    things = [("b", 1), ("a", 1), ("c", 0)]
    found = select_items(things, lambda one, _: {"n": one[1]}, fields="", sort_by="n")
    assert [name for name, _ in found] == ["c", "b", "a"]

"""What is written of a custom resource, when, and with how few writes."""

from __future__ import annotations

import json
from typing import Any

from fleetctl.controllers.model import Resource
from fleetctl.operator.mirror.statuses import (
    COUNTS_MAX_S,
    SOON_S,
    StatusWrites,
    Unaccepted,
    due_at_s,
    list_events,
    patch_of,
    record_write,
    status_for,
)
from fleetctl.views.objects import View, build_view


def seen(kind: str = "BatchJob", generation: int = 3, **status: Any) -> View:
    row = Resource(
        uid="u",
        kind=kind,
        name="x",
        generation=generation,
        version=1,
        spec="{}",
        status=json.dumps(status),
        labels={},
        annotations={},
        created_at_s=0.0,
    )
    return build_view(row, lambda: row.spec)  # type: ignore[arg-type]


def ended(**more: Any) -> View:
    complete = {"type": "Complete", "status": "True", "reason": "AllSucceeded", "message": ""}
    return seen(
        phase="Succeeded",
        reason="AllSucceeded",
        observedGeneration=3,
        total=2,
        succeeded=2,
        conditions=[{**complete, "lastTransitionTime": 1000.0}],
        **more,
    )


def condition(status: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [it for it in status["conditions"] if it["type"] == name]
    return dict(found)


def test_an_end_is_told_of_the_generation_of_the_custom_resource() -> None:
    status = status_for(ended(), {}, 7, None, 2000.0)
    assert status["observedGeneration"] == 7
    assert condition(status, "Complete")["observedGeneration"] == 7
    assert condition(status, "Accepted")["status"] == "True"
    assert status["columns"]["done"] == "2/2"


def test_what_the_engine_has_not_looked_at_is_not_told_of_the_newest_spec() -> None:
    before = status_for(ended(), {}, 7, None, 2000.0)
    status = status_for(
        seen(generation=4, phase="Succeeded", observedGeneration=3), before, 8, None, 2001.0
    )
    assert status["observedGeneration"] == 7


def test_a_refused_edit_leaves_the_status_of_what_runs_and_says_why() -> None:
    refusal = Unaccepted("NeedsConsent", "2 tasks would be replaced", "annotate it")
    before = status_for(ended(), {}, 7, None, 2000.0)
    status = status_for(ended(), before, 8, refusal, 2001.0)
    assert status["phase"] == "Succeeded"
    assert status["observedGeneration"] == 8  # it was looked at
    assert condition(status, "Complete")["observedGeneration"] == 7
    accepted = condition(status, "Accepted")
    assert (accepted["status"], accepted["observedGeneration"]) == ("False", 8)
    assert accepted["message"] == "2 tasks would be replaced; annotate it"
    assert list_events(before, status) == [("Warning", "NeedsConsent", accepted["message"])]
    assert list_events(status, status_for(ended(), status, 8, refusal, 2002.0)) == []


def test_what_never_was_accepted_shows_it_in_its_list() -> None:
    status = status_for(None, {}, 1, Unaccepted("Invalid", "spec.parallelism is `-1`"), 5.0)
    assert (status["phase"], status["reason"]) == ("Refused", "Invalid")
    assert status["columns"] == {"why": "Invalid: spec.parallelism is `-1`"}
    long = status_for(None, {}, 1, Unaccepted("Invalid", "x" * 100), 5.0)["columns"]["why"]
    assert long == f"Invalid: {'x' * 70}…"
    assert (status["observedGeneration"], status["acceptedGeneration"]) == (1, 0)
    assert condition(status, "Stalled")["message"] == "spec.parallelism is `-1`"


def test_an_asset_is_ready_as_kubectl_waits_for_it() -> None:
    ready = status_for(seen("Volume", phase="Ready", observedGeneration=3), {}, 1, None, 5.0)
    assert condition(ready, "Ready")["status"] == "True"
    waits = status_for(seen("Volume", phase="Pending"), ready, 1, None, 9.0)
    assert condition(waits, "Ready")["status"] == "False"
    assert condition(waits, "Ready")["lastTransitionTime"] == "1970-01-01T00:00:09Z"


def test_a_second_look_at_the_same_needs_no_write() -> None:
    first = status_for(ended(), {}, 7, None, 2000.0)
    again = status_for(ended(), json.loads(json.dumps(first)), 7, None, 9000.0)
    assert patch_of(first, again) == {}


def test_a_patch_takes_away_what_is_no_longer_told() -> None:
    before = {"a": 1, "gone": 2, "map": {"x": 1, "y": 2}, "list": [1], "same": {"z": 1}}
    after = {"a": 1, "map": {"x": 1, "y": 3}, "list": [1, 2], "same": {"z": 1}}
    assert patch_of(before, after) == {"gone": None, "map": {"y": 3}, "list": [1, 2]}


def test_a_phase_is_written_soon_and_counts_ever_more_rarely() -> None:
    running = {"phase": "Running", "conditions": [], "succeeded": 1}
    assert (
        due_at_s({"phase": "Pending"}, running, StatusWrites(95.0, 4), since_s=100.0)
        == 100.0 + SOON_S
    )
    writes, at_s, count = StatusWrites(), 0.0, 0
    while at_s < 24 * 3600:
        count += 1
        more = {**running, "succeeded": count + 1}
        at_s = due_at_s(running, more, writes, since_s=at_s)
        writes, running = record_write(running, more, writes, at_s), more
    assert count < 10 + 24 * 3600 / COUNTS_MAX_S


def test_an_end_is_one_event() -> None:
    before = status_for(seen(phase="Running", observedGeneration=3), {}, 1, None, 1.0)
    after = status_for(ended(), before, 1, None, 2.0)
    assert list_events(before, after) == [("Normal", "AllSucceeded", "Complete")]

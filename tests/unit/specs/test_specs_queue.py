"""What a Queue may say, and work that names one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from fleetctl.controllers.queues.queue_position import parse_rules
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.queue import QueueSpec
from fleetctl.specs.kinds.registry import dump_spec

WORK: dict[str, Any] = {"completions": 1, "template": {"command": ["work"]}}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"quotas": []}, "at least 1"),
        ({"quotas": [{"resource": "gpu", "nominal": 1}]}, "a sort of GPU such as `gpu/A100`"),
        ({"quotas": [{"nominal": 1, "borrowingLimit": 1}]}, "without a `cohort`"),
        ({"quotas": [{"nominal": 1}, {"nominal": 2}]}, "`sandboxes` has two quotas"),
        ({"quotas": [{"nominal": 1, "lendingLimit": 2}], "cohort": "c"}, "must not be above"),
        ({"quotas": [{"nominal": 1}], "fairShare": {"weights": {"a": 0}}}, "greater than 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        QueueSpec.model_validate(spec)


def test_a_priority_needs_a_queue_to_go_first_in() -> None:
    with pytest.raises(ValidationError, match="write `queue: NAME` as well"):
        BatchJobSpec.model_validate({**WORK, "priority": 5})
    assert BatchJobSpec.model_validate({**WORK, "priority": "normal"}).rank == 0
    assert BatchJobSpec.model_validate({**WORK, "queue": "q", "priority": "high"}).rank == 1000
    with pytest.raises(ValidationError):
        BatchJobSpec.model_validate({**WORK, "queue": "q", "priority": "urgent"})


def test_a_stored_queue_is_read_as_its_model_says_it_without_the_model() -> None:
    small = QueueSpec.model_validate({"quotas": [{"nominal": 3}]})
    rules = parse_rules("q", json.loads(dump_spec(small)))
    assert (rules.quotas[0].resource, rules.quotas[0].nominal) == ("sandboxes", 3)
    assert (rules.strict, rules.overtake_s) == (False, small.overtake_seconds)
    assert (rules.within_queue, rules.reclaim, rules.weights) == (False, "Never", None)
    assert (rules.cohort, rules.suspend) == ("", False)

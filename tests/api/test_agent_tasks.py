"""Twenty tasks in words: the manifests that the examples of the skill lead to are valid at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.cli.learn.skills import build_skill
from tests.docs.fleet import Fleet

TASKS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("agent_tasks.yaml").read_text("utf-8")
)
COUNT = 20


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("tasks") / "home")


@pytest.mark.parametrize("row", TASKS, ids=[row["manifest"]["metadata"]["name"] for row in TASKS])
def test_a_task_in_words_leads_to_a_valid_manifest(fleet: Fleet, row: dict[str, Any]) -> None:
    example = build_skill()[f"references/examples/{row['example']}.yaml"]
    kinds = {it["kind"] for it in yaml.safe_load_all(example)}
    assert row["manifest"]["kind"] in kinds
    manifest = {"apiVersion": "fleetctl.dev/v1alpha1", **row["manifest"]}
    # Objects that a task names are there already for whoever gives it.
    answer = fleet.run("validate", "--allow-missing", "-f", "-", stdin=json.dumps(manifest))
    assert answer.code == 0, answer.talk


def test_the_tasks_are_twenty_and_differ() -> None:
    assert len({row["task"] for row in TASKS}) == COUNT
    assert len({json.dumps(row["manifest"]) for row in TASKS}) == COUNT

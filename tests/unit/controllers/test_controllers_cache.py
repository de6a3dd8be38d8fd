"""What makes two units the same work, and when nobody can say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleetctl.controllers.history.history import History
from fleetctl.controllers.kinds.registry import CONTROLLERS
from fleetctl.controllers.model import Run, RunState
from fleetctl.controllers.reuse.content_keys import (
    ContentFacts,
    ReuseKey,
    WorkContent,
    compute_content,
    find_hits,
    key_of,
)
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.kinds.registry import KINDS

COMMIT = "0123456789" * 4
STATED = {"policy": "ReuseSucceeded"}


def job(**template: Any) -> dict[str, Any]:
    spec = {"tasks": {"items": [{"x": 1}, {"x": 2}]}, "template": {"python": "SUBMIT(x=x)"}}
    return {**spec, "template": {"python": "SUBMIT(x=x)", **template}}


def shared(
    spec: dict[str, Any], *, kind: str = "BatchJob", revision: str = "", **volumes: str
) -> WorkContent:
    checked = KINDS[kind].spec.model_validate(spec)
    assert isinstance(checked, WorkSpec)
    controller = CONTROLLERS[kind](checked, {})
    facts = ContentFacts(controller.content(0), volumes, revision)  # type: ignore[attr-defined]
    return compute_content(checked, controller, 0, facts)


def test_equal_work_has_an_equal_key_whatever_it_runs_on() -> None:
    other = job(resources={"gpu": "A100:4", "cpu": 8}, timeoutSeconds=9)
    other |= {"parallelism": 3, "backoffLimitPerIndex": 2}
    assert shared(other) == shared(job())


@pytest.mark.parametrize(
    "change",
    [
        {"python": "SUBMIT(x=x, y=1)"},
        {"env": {"A": "1"}},
        {"image": {"pip": ["numpy"]}},
        {"secrets": ["token"]},
        {"workdir": "sub"},
        {"runtime": "function"},
        {"source": {"git": {"url": "https://example.org/a", "ref": COMMIT}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_can_change_a_result_changes_the_key(change: dict[str, Any]) -> None:
    keys = {shared(job(**change)).key, shared(job()).key}
    assert len(keys) == 2 and "" not in keys


def test_without_an_image_the_software_is_that_of_the_place() -> None:
    elsewhere = {"placement": {"provider": "modal"}}
    assert shared(job() | elsewhere).key != shared(job()).key
    image = {"image": {"registry": "python:3.12"}}
    assert shared(job(**image) | elsewhere) == shared(job(**image))


def test_a_directory_is_known_by_what_was_in_it_and_by_its_name() -> None:
    here = job(source={"path": "/home/a/code"})
    assert "not known" in shared(here).why
    moved = job(source={"path": "/mnt/code", "exclude": ["*.log"]})
    renamed = job(source={"path": "/home/a/core"})
    assert shared(here, revision="r1") == shared(moved, revision="r1")
    assert shared(here, revision="r1").key != shared(here, revision="r2").key
    assert shared(here, revision="r1").key != shared(renamed, revision="r1").key


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (job() | {"cache": {"policy": "Never"}}, "cache.policy is `Never`"),
        (job(source={"git": {"url": "https://example.org/a"}}), "the default branch"),
        (job(source={"git": {"url": "https://example.org/a", "ref": "main"}}), "`main`"),
        (job() | {"sandbox": {"reuse": 2}}, "share the state of a sandbox"),
        (job() | {"sandbox": {"reuse": "all"}}, "share the state of a sandbox"),
        (job(volumes=[{"name": "v", "mountPath": "/v"}]), "volume/v can change"),
        (job(volumes=[{"name": "v", "mountPath": "/v", "readOnly": True}]), "volume/v can change"),
        (job(volumes=[{"name": "w", "mountPath": "/w"}]) | {"cache": STATED}, "volume/w is not"),
    ],
)
def test_what_nobody_knows_for_certain_is_not_reused_and_says_why(
    spec: dict[str, Any], why: str
) -> None:
    answer = shared(spec, v="u1.1")
    assert answer.key == "" and why in answer.why


def test_work_with_a_volume_is_reused_when_that_is_stated_and_known_by_its_version() -> None:
    spec = job(volumes=[{"name": "v", "mountPath": "/v", "readOnly": True}]) | {"cache": STATED}
    assert shared(spec, v="u1.1").key
    assert shared(spec, v="u1.1").key != shared(spec, v="u1.2").key
    assert shared(spec, v="u1.1").key != shared(spec, v="u2.1").key


def test_work_with_outputs_is_reused_when_that_is_stated_and_known_by_its_patterns() -> None:
    spec = job(outputs=["out/**"]) | {"cache": STATED}
    assert shared(spec).key
    assert shared(spec).key != shared(job(outputs=["out"]) | {"cache": STATED}).key


def test_stages_are_reused_when_that_is_stated() -> None:
    spec = {"template": {"script": "make"}}
    assert "stages" in shared(spec, kind="TrainingRun").why
    assert shared(spec | {"cache": STATED}, kind="TrainingRun").key


def test_a_function_that_is_not_declared_makes_nothing_known() -> None:
    spec = KINDS["BatchJob"].spec.model_validate(
        {"template": {"python": "SUBMIT()", "function": "encode"}}
    )
    assert isinstance(spec, WorkSpec)
    answer = compute_content(spec, CONTROLLERS["BatchJob"](spec, {}), 0, ContentFacts(None))
    assert answer == WorkContent(why="function/encode is not declared yet")


@pytest.mark.parametrize(
    ("spec", "units"),
    [
        ({"tasks": {"items": [{"x": 1}, {"x": 2}]}}, ["h", "h"]),
        ({"tasks": {"items": [{"x": 1}, {"x": 2}, {"x": 1}, {"x": 1}]}}, ["h", "h", "h/1", "h/2"]),
        ({"tasks": {"matrix": {"a": [1, 2], "b": [1]}}}, ["h", "h"]),
        ({"tasks": {"matrix": {"a": [1, 1]}}}, ["h", "h/1"]),
        ({"completions": 2}, ["h/0", "h/1"]),
    ],
)
def test_equal_tasks_are_told_apart_by_their_count(spec: dict[str, Any], units: list[str]) -> None:
    document = {"template": {"python": "SUBMIT()"}, **spec}
    controller = CONTROLLERS["BatchJob"](KINDS["BatchJob"].spec.model_validate(document), {})
    answer, found = shared(document), []
    for index in controller.indexes():
        unit = controller.unit(index)
        assert unit is not None
        key = key_of(controller, answer, replace(unit, params_hash="h"))
        assert key is not None
        found.append(key.unit)
    assert found == units


def test_work_that_names_the_variable_of_its_index_differs_by_it() -> None:
    assert shared(job(python="import os; SUBMIT(i=os.environ['JOB_COMPLETION_INDEX'])")).by_index


def test_a_trial_is_known_by_its_parameters_whatever_its_index() -> None:
    search = {"method": "grid", "program": "t.py", "parameters": {"lr": {"values": [1, 2]}}}
    more = search | {"parameters": {"lr": {"values": [0, 1, 2]}}}
    answer = shared({"search": search}, kind="Sweep")
    assert answer == shared({"search": more}, kind="Sweep") and not answer.by_index


def test_units_that_have_succeeded_elsewhere_are_found_and_forced_ones_are_not() -> None:
    spec = KINDS["BatchJob"].spec.model_validate(job())
    controller = CONTROLLERS["BatchJob"](spec, {})
    history = History(controller.limits)
    units = [controller.unit(index) for index in (0, 1)]
    all_known = {unit.params_hash for unit in units if unit is not None}
    answer = WorkContent("k")
    assert find_hits(controller, history, lambda _: answer, lambda _: all_known) == {
        index: ReuseKey("k", unit.params_hash)
        for index, unit in enumerate(units)
        if unit is not None
    }
    assert find_hits(controller, history, lambda _: answer, lambda _: {"another"}) == {}
    assert units[0] is not None
    unit = units[0]
    run = Run(
        "r", "u", 0, 1, RunState.STARTING, "local", "r", unit.template_hash, "{}",
        unit.params_hash, 1.0,
    )  # fmt: skip
    history.began(run)
    assert list(find_hits(controller, history, lambda _: answer, lambda _: all_known)) == [1]


def test_a_unit_whose_older_work_is_being_stopped_is_found() -> None:
    spec = KINDS["BatchJob"].spec.model_validate(job())
    controller = CONTROLLERS["BatchJob"](spec, {})
    history = History(controller.limits)
    unit = controller.unit(0)
    assert unit is not None
    run = Run("r", "u", 0, 1, RunState.STOPPING, "local", "r", "older", "{}", "older", 1.0)
    history.began(run)
    known = find_hits(controller, history, lambda _: WorkContent("k"), lambda _: {unit.params_hash})
    assert known == {0: ReuseKey("k", unit.params_hash)}

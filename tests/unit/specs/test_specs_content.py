"""One table says what a change of a field does to work that is done: each field of each kind is
changed here, and the units that come of it are compared with what its row says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fleetctl.controllers.kinds.registry import choose_controller
from fleetctl.specs.blocks.kubernetes import PodSettings
from fleetctl.specs.blocks.prompt import Prompt
from fleetctl.specs.blocks.services import ServiceSpec
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.content import (
    CHECKPOINT,
    EXECUTION,
    GROUP,
    KINDS,
    NO_PINS,
    PLACE,
    POD,
    PROMPT,
    RULE,
    SERVICE,
    STAGE,
    TEMPLATE,
    UNITS,
    WORK,
    FieldRole,
    Pins,
    content_of,
    content_of_function,
)
from fleetctl.specs.kinds.function import FunctionSpec
from fleetctl.specs.kinds.registry import KINDS as OBJECTS
from fleetctl.specs.kinds.trainingrun import Checkpoint, NodeGroup, Stage

TRAIN: dict[str, Any] = {"template": {"script": "a"}, "stages": [{"name": "one"}]}
PLAIN: dict[str, dict[str, Any]] = {
    "BatchJob": {"template": {"script": "a"}, "tasks": {"items": [{"x": 1}, {"x": 2}]}},
    "Sweep": {
        "template": {"script": "a"},
        "trials": 2,
        "search": {"method": "random", "parameters": {"x": {"min": 0.0, "max": 1.0}}},
    },
    # Processes are counted where there are several nodes.
    "TrainingRun": {**TRAIN, "checkpoint": {"path": "/ckpt"}, "nodes": 4},
    "Function": {"env": {"A": "1"}, "port": 8000, "command": ["serve"]},
}
# Another value of each field, where it stands; of one that is called as another is, at its path.
OTHER: dict[str, Any] = {
    "parallelism": 7,
    "suspend": True,
    # Of a Function's server.
    "port": 9000,
    "ready": {"http": "/health"},
    "startupTimeoutSeconds": 99,
    "concurrency": 7,
    "activeDeadlineSeconds": 99,
    "ttlSecondsAfterFinished": 99,
    "backoffLimitPerIndex": 3,
    "backoffLimit": 3,
    "maxInfraRetries": 1,
    "maxFailedIndexes": 1,
    "retry": {"backoff": {"initial": 3}},
    "seed": 5,
    "placement": {"provider": "modal"},
    "rollout": "FinishRunning",
    "onChange": "Keep",
    "successPolicy": {"rules": [{"succeededCount": 1}]},
    "failurePolicy": {"rules": [{"action": "Ignore", "onReasons": ["OOMKilled"]}]},
    "sandbox": {"reuse": 2},
    "budget": {"maxCost": 1},
    "cache": {"policy": "Never"},
    "dependsOn": [{"job": "x"}],
    "onDependencyFailed": "Skip",
    "notify": [{"on": ["Failed"], "command": ["logger"]}],
    "tasks": {"items": [{"x": 1}, {"x": 3}]},
    "search": {"method": "random", "parameters": {"x": {"min": 0.0, "max": 2.0}}},
    "trials": 3,
    "trialsPerWorker": 2,
    "backend": "wandb",
    "nodes": 2,
    "ray": True,
    "procPerNode": 3,
    "rdma": True,
    "maxRestarts": 2,
    "provider": "modal",
    "minContainers": 1,
    "maxContainers": 3,
    "scaledownSeconds": 9,
    "resources": {"cpu": 2},
    "image": {"pip": ["numpy"]},
    "source": {"path": "src"},
    "env": {"A": "2"},
    "secrets": ["s"],
    "endpoints": ["e"],
    "network": {},
    "volumes": [{"name": "v", "mountPath": "/v"}],
    "runtime": "function",
    "function": "f",
    "timeoutSeconds": 9,
    "terminationGracePeriodSeconds": 9,
    "workdir": "/w",
    "services": [{"name": "db", "command": ["postgres"]}],
    "outputs": ["out/**"],
    "kubernetes": {"configMaps": [{"name": "c"}]},
    "python": "b",
    "command": ["b"],
    "script": "b",
    "prompt": {"endpoint": "e", "text": "b"},
    "path": "/other",
    "resume": "None",
    "format": "orbax",
    "resumeArgs": ["--resume=${checkpoint}"],
    "mirror": "s3://bucket/prefix",
    "keep": {"last": 2},
    "verify": "Full",
    "progress": {"timeoutSeconds": 9},
    "paramsFrom": {"sweep": "s"},
    "metrics": [{"name": "a"}, {"name": "b"}],
    "template.metrics": {"from": "jsonl", "path": "m.jsonl"},
    "signalBeforeStopSeconds": 9,
    "name": "two",
    "restartPolicy": "All",
    "queue": "gpu",
    "priority": 0,
}


def test_each_field_of_a_prompt_has_its_role_and_a_batch_gives_the_same_answer() -> None:
    assert PROMPT.keys() == Prompt.model_fields.keys()
    asked = {"endpoint": "e", "text": "a"}
    contents = {
        mode: content_of(Template.model_validate({"prompt": {**asked, "mode": mode}}))
        for mode in ("online", "batch")
    }
    assert contents["online"] == contents["batch"]
    assert contents["online"] == content_of(Template.model_validate({"prompt": asked}))
    other = Template.model_validate({"prompt": {**asked, "text": "b", "mode": "batch"}})
    assert content_of(other) != contents["batch"]


def test_each_field_of_a_pod_has_its_role_and_what_the_work_reads_is_its_own() -> None:
    assert POD.keys() == PodSettings.model_fields.keys()
    plain = content_of(Template.model_validate({"script": "a"}))
    for pod, same in (({"nodeSelector": {"a": "b"}}, True), ({"secrets": [{"name": "s"}]}, False)):
        made = Template.model_validate({"script": "a", "kubernetes": pod})
        assert (content_of(made) == plain) == same


def aliases(model: Any) -> dict[str, str]:
    return {name: str(field.alias or name) for name, field in model.model_fields.items()}


def changed(where: dict[str, Any], field: str) -> dict[str, Any]:
    """The work of a template is one of four fields, so another one takes its place."""
    without = {key: it for key, it in where.items() if key != "script" or field not in WORKS}
    return {**without, field: OTHER.get(f"template.{field}", OTHER.get(field))}


WORKS = ("python", "command", "script", "prompt")


def units(kind: str, spec: dict[str, Any], pins: Pins = NO_PINS) -> list[tuple[str, str, str]]:
    """(parameters, template hash, content) of each."""
    read = OBJECTS[kind].spec.model_validate(spec)
    make = choose_controller(kind, read)
    assert make is not None
    controller = make(read, {}, pins)
    found = [controller.unit(index) for index in range(controller.total or 0)]
    return [(it.params_hash, it.template_hash, it.content) for it in found if it is not None]


def role_of(kind: str, before: dict[str, Any], after: dict[str, Any]) -> FieldRole:
    """What a change does to the units that both specs have."""
    old, new = units(kind, before), units(kind, after)
    if [it[0] for it in old] != [it[0] for it in new]:
        return UNITS
    if [it[2] for it in old] != [it[2] for it in new]:
        return WORK
    return PLACE if [it[1] for it in old] != [it[1] for it in new] else RULE


def rows(kind: str) -> Iterator[tuple[str, str, FieldRole]]:
    """(kind, field, role) of each field whose role its units show by themselves."""
    nested = ("template", "stages", "groups", "primary", "checkpoint")
    for name, role in KINDS[kind].items():
        # A number of tasks takes the place of their list, and has one mode.
        # Which sweep at W&B it is goes with `backend: wandb` alone, and never changes.
        if name not in (*nested, "completions", "completion_mode", "wandb"):
            yield kind, aliases(OBJECTS[kind].spec)[name], role


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_kind_has_its_row(kind: str) -> None:
    assert set(KINDS[kind]) == set(OBJECTS[kind].spec.model_fields)


def test_every_field_of_what_kinds_hold_has_its_row() -> None:
    assert set(TEMPLATE) == set(Template.model_fields)
    assert set(STAGE) == set(Stage.model_fields)
    assert set(GROUP) == set(NodeGroup.model_fields)
    assert set(CHECKPOINT) == set(Checkpoint.model_fields)
    assert set(SERVICE) == set(ServiceSpec.model_fields)
    assert set(EXECUTION) <= set(KINDS["BatchJob"])


@pytest.mark.parametrize(
    ("kind", "field", "role"),
    [row for kind in ("BatchJob", "Sweep", "TrainingRun") for row in rows(kind)],
)
def test_a_field_of_a_kind_does_what_its_row_says(kind: str, field: str, role: FieldRole) -> None:
    before = PLAIN[kind]
    assert role_of(kind, before, {**before, field: OTHER[field]}) is role


@pytest.mark.parametrize("name", TEMPLATE)
@pytest.mark.parametrize("kind", ["BatchJob", "Sweep", "TrainingRun"])
def test_a_field_of_a_template_does_what_its_row_says(kind: str, name: str) -> None:
    field, before = aliases(Template)[name], PLAIN[kind]
    after = {**before, "template": changed(before["template"], field)}
    assert role_of(kind, before, after) is TEMPLATE[name]


def test_what_a_service_needs_of_the_sandbox_changes_no_result() -> None:
    before = {"template": {"script": "x", "services": [{"name": "a", "script": "y"}]}}
    for name, value, role in (("resources", {"cpu": 1}, PLACE), ("onExit", "Ignore", WORK)):
        services = [{"name": "a", "script": "y", name: value}]
        after = {"template": {"script": "x", "services": services}}
        assert (
            role_of("BatchJob", {**PLAIN["BatchJob"], **before}, {**PLAIN["BatchJob"], **after})
            is role
        )


@pytest.mark.parametrize("name", STAGE)
def test_a_field_of_a_stage_does_what_its_row_says(name: str) -> None:
    field = aliases(Stage)[name]
    after = {**TRAIN, "stages": [{"name": "one", field: OTHER[field]}]}
    assert role_of("TrainingRun", TRAIN, after) is STAGE[name]


@pytest.mark.parametrize("name", GROUP)
def test_a_field_of_a_group_does_what_its_row_says(name: str) -> None:
    field = aliases(NodeGroup)[name]
    before = {"template": {"script": "a"}, "groups": [{"name": "one"}]}
    after = {**before, "groups": [{"name": "one", field: OTHER[field]}]}
    assert role_of("TrainingRun", before, after) is GROUP[name]


def test_another_number_of_nodes_or_primary_group_replaces_no_other_group() -> None:
    def run(nodes: int, **spec: Any) -> list[tuple[str, str, str]]:
        groups = [{"name": "trainer"}, {"name": "rollout", "port": 8000, "nodes": nodes}]
        return units("TrainingRun", {"template": {"script": "a"}, "groups": groups, **spec})

    assert run(3)[0] == run(5)[0] and run(3)[1] != run(5)[1]
    assert run(3) == run(3, primary=["rollout"])


def test_another_port_replaces_all_groups() -> None:
    def hashes(port: int) -> list[str]:
        groups = [{"name": "trainer"}, {"name": "rollout", "port": port}]
        found = units("TrainingRun", {"template": {"script": "a"}, "groups": groups})
        return [it[1] for it in found]

    assert not set(hashes(8000)) & set(hashes(8001))


@pytest.mark.parametrize("name", CHECKPOINT)
def test_a_field_of_a_checkpoint_does_what_its_row_says(name: str) -> None:
    field, before = aliases(Checkpoint)[name], PLAIN["TrainingRun"]
    after = {**before, "checkpoint": {**before["checkpoint"], field: OTHER[field]}}
    assert role_of("TrainingRun", before, after) is CHECKPOINT[name]


@pytest.mark.parametrize("name", KINDS["Function"])
def test_a_field_of_a_function_does_what_its_row_says(name: str) -> None:
    field = aliases(FunctionSpec)[name]
    before = FunctionSpec.model_validate(PLAIN["Function"])
    after = FunctionSpec.model_validate({**PLAIN["Function"], field: OTHER[field]})
    differs = content_of_function(before, "") != content_of_function(after, "")
    assert differs == (KINDS["Function"][name] is WORK)


def test_more_completions_are_new_units_beside_those_that_were() -> None:
    spec = {"template": {"script": "a"}, "completions": 2}
    assert units("BatchJob", spec) == units("BatchJob", {**spec, "completions": 3})[:2]


def test_the_program_of_a_search_is_work() -> None:
    spec = {**PLAIN["Sweep"], "template": {}}
    spec["search"] = {**spec["search"], "program": "train.py"}
    other = {**spec, "search": {**spec["search"], "program": "other.py"}}
    assert role_of("Sweep", spec, other) is WORK


def test_what_a_stage_builds_on_is_part_of_its_content() -> None:
    def run(script: str) -> list[str]:
        stages = [{"name": "data", "script": script}, {"name": "train", "script": "t"}]
        return [it[2] for it in units("TrainingRun", {**TRAIN, "stages": stages})]

    assert run("a")[1] != run("b")[1]


def test_a_source_is_what_it_holds_wherever_it_lies() -> None:
    def content(path: str, revision: str) -> str:
        template = Template.model_validate({"script": "a", "source": {"path": path}})
        return content_of(template, Pins(revision=revision))

    assert content("src", "sha256:1") == content("/checkouts/two/src", "sha256:1")
    assert content("src", "sha256:1") != content("src", "sha256:2")
    assert content(".", "sha256:1") == content("..", "sha256:1")


def test_a_branch_is_the_commit_that_it_names() -> None:
    def content(ref: str, revision: str) -> str:
        git = {"url": "https://example.org/a", "ref": ref}
        return content_of(
            Template.model_validate({"script": "a", "source": {"git": git}}),
            Pins(revision=revision),
        )

    one, two = "1" * 40, "2" * 40
    assert content("main", one) == content(one, one) == content(one, "")
    assert content("main", one) != content("main", two)


def test_a_function_counts_by_what_it_says_and_not_by_its_name() -> None:
    def content(name: str, function: str) -> str:
        template = Template.model_validate({"script": "a", "function": name})
        return content_of(template, Pins(function=function))

    assert content("f", "x") == content("g", "x") != content("f", "y")
    assert content("f", "") != content("g", "")

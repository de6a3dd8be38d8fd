"""A field of a template that nobody carries out cannot exist: each has its row in field_effects.py,
the tests that a row names are there and observe the field, and a manifest that a row calls refused
is refused before it is stored.
"""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import Refused
from fleetctl.common.program import tree_of
from fleetctl.controllers.kinds.trainingrun import TrainingRunController
from fleetctl.providers.contract.base import RunRequest
from fleetctl.specs import content
from fleetctl.specs.blocks.checkpoint import Checkpoint
from fleetctl.specs.blocks.common import WorkSpec
from fleetctl.specs.blocks.kubernetes import PodSettings
from fleetctl.specs.blocks.nodes import GangTemplate
from fleetctl.specs.blocks.prompt import Prompt
from fleetctl.specs.blocks.services import ServiceSpec
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.kinds.trainingrun import NodeGroup, Stage, TrainingRunSpec
from fleetctl.testing import provider_world
from tests.contracts import test_provider_local
from tests.contracts.field_effects import (
    CHECKPOINT,
    EXECUTION,
    FUNCTIONS,
    GROUP,
    LOCAL,
    MODAL,
    POD,
    PROMPT,
    SERVICE,
    STAGE,
    SUITES,
    TEMPLATE,
    BecomesTemplate,
    Effect,
    FieldEffect,
    LeftToAnother,
    RefusedBefore,
    SeenElsewhere,
)
from tests.contracts.local_worlds import LocalWorld, stop_supervisors
from tests.contracts.provider_worlds import World

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 20.0  # for what comes only if the field was carried out
ABSENT = ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN")
# Rows of the suites; those of `prompt` and `kubernetes` have one test each, for their one provider.
OF_SUITES: list[tuple[type[BaseModel], Mapping[str, FieldEffect]]] = [
    (Template, TEMPLATE),
    (ServiceSpec, SERVICE),
    (Checkpoint, CHECKPOINT),
]
OF_ONE: list[tuple[type[BaseModel], Mapping[str, Effect]]] = [
    (Prompt, PROMPT),
    (PodSettings, POD),
    (Stage, STAGE),
    (NodeGroup, GROUP),
]
RUNNING = [name for name, kind in KINDS.items() if kind.runs]


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        (content.TEMPLATE, TEMPLATE),
        (content.SERVICE, SERVICE),
        (content.PROMPT, PROMPT),
        (content.POD, POD),
        (content.CHECKPOINT, CHECKPOINT),
        (content.STAGE, STAGE),
        (content.GROUP, GROUP),
        (content.EXECUTION, EXECUTION),
    ],
    ids=["template", "service", "prompt", "pod", "checkpoint", "stage", "group", "execution"],
)
def test_each_field_of_the_content_table_has_its_row(
    table: Mapping[str, Any], rows: Mapping[str, Any]
) -> None:
    assert table.keys() == rows.keys()


@pytest.mark.parametrize(
    ("table", "rows"), [(content.TEMPLATE, TEMPLATE), (content.EXECUTION, EXECUTION)]
)
def test_a_new_field_needs_a_row(table: Mapping[str, Any], rows: Mapping[str, Any]) -> None:
    with pytest.raises(AssertionError):
        test_each_field_of_the_content_table_has_its_row({**table, "motto": content.WORK}, rows)


@pytest.mark.parametrize("kind", RUNNING)
def test_each_running_kind_has_the_fields_whose_effects_are_here(kind: str) -> None:
    fields = KINDS[kind].spec.model_fields
    assert content.EXECUTION.keys() <= fields.keys()
    assert content.EXECUTION.keys() == WorkSpec.model_fields.keys()


def _effects() -> Iterator[tuple[type[BaseModel], str, str, Effect]]:
    for model, rows in OF_SUITES:
        for field, row in rows.items():
            assert row.but.keys() <= SUITES.keys()
            for backend in SUITES:
                yield model, field, backend, row.but.get(backend, row.seen_by)


def _effects_of_kinds() -> Iterator[tuple[type[BaseModel], str, str, Effect]]:
    """Yields the effects of the fields that running kinds share, for each kind."""
    for field, row in EXECUTION.items():
        assert row.but.keys() <= set(RUNNING)
        for kind in RUNNING:
            yield WorkSpec, field, kind, row.but.get(kind, row.seen_by)


def test_a_test_that_a_row_names_is_in_each_suite_and_speaks_of_the_field() -> None:
    named = [it for it in _effects() if isinstance(it[3], str)]
    assert len(named) > 60
    for model, field, backend, name in named:
        for suite in SUITES[backend]:
            assert callable(getattr(suite, str(name), None)), (field, suite.__name__, name)
        ((file, text),) = [(it, found) for it in _files() if (found := _text_of(it, str(name)))]
        if model is not Template:
            text = file.read_text(encoding="utf-8")  # the fields of a block stand beside the test
        assert _speaks_of(model, field, text), (field, name)


def test_a_test_that_a_row_names_elsewhere_is_there_and_speaks_of_the_field() -> None:
    named = [(it[0], it[1], it[3]) for it in (*_effects(), *_effects_of_kinds())]
    named += [(model, field, one) for model, rows in OF_ONE for field, one in rows.items()]
    for model, field, effect in named:
        if isinstance(effect, SeenElsewhere):
            file = ROOT / effect.path
            assert _text_of(file, effect.name), effect
            assert _speaks_of(model, field, file.read_text(encoding="utf-8")), (field, effect)


def test_who_never_meets_a_field_has_a_reason() -> None:
    reasons = {it[3].reason for it in _effects() if isinstance(it[3], LeftToAnother)}
    assert reasons and all(len(it.split()) > 4 for it in reasons)


OF_TEMPLATE = [
    (f"{model.__name__}.{name}", value)
    for model, rows in (*OF_SUITES, *OF_ONE)
    for name, row in rows.items()
    for value in [row.seen_by if isinstance(row, FieldEffect) else row]
    if isinstance(value, BecomesTemplate)
]


@pytest.mark.parametrize(("name", "effect"), OF_TEMPLATE, ids=[it[0] for it in OF_TEMPLATE])
def test_a_field_that_sets_one_of_the_template_has_its_effect(
    name: str, effect: BecomesTemplate
) -> None:
    """In the template of the requests for a stage; without it that has another value."""
    block, _, field = name.partition(".")
    alias = to_camel(field)
    stage: dict[str, Any] = {"name": "train"}
    plain: dict[str, Any] = {"template": {"command": ["true"]}, "stages": [stage]}
    if block in ("Stage", "NodeGroup"):
        parts = "stages" if block == "Stage" else "groups"
        plain = {"template": plain["template"], parts: [stage]}
        given = {**plain, parts: [{**stage, alias: effect.value}]}
    else:
        volumes = [{"name": "ckpt", "mountPath": "/ckpt"}]
        plain["template"]["volumes"] = volumes
        plain["checkpoint"] = {"path": "/ckpt"}
        given = {**plain, "checkpoint": {"path": "/ckpt", alias: effect.value}}
    before, after = (_template_of_stage(it).model_dump(by_alias=True) for it in (plain, given))
    wanted = to_camel(effect.field)
    assert after[wanted] != before.get(wanted)
    assert effect.field in TEMPLATE or effect.field in GangTemplate.model_fields


def _template_of_stage(fields: Mapping[str, Any]) -> Template:
    spec = TrainingRunSpec.model_validate(fields)
    return TrainingRunController(spec, {}).template(0)


REFUSED = [
    (it[0], it[1], it[2], it[3])
    for it in (*_effects(), *_effects_of_kinds())
    if isinstance(it[3], RefusedBefore)
]


@pytest.mark.parametrize(
    ("model", "field", "backend", "refused"),
    REFUSED,
    ids=[f"{it[0].__name__}.{it[1]}-{it[2]}" for it in REFUSED],
)
def test_what_a_provider_cannot_carry_out_is_refused_before_it_is_stored(
    model: type[BaseModel],
    field: str,
    backend: str,
    refused: RefusedBefore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _speaks_of(model, field, json.dumps([refused.template, refused.more]))
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "none.toml"))
    for name in ABSENT:
        monkeypatch.delenv(name, raising=False)
    provider = {FUNCTIONS: MODAL, **dict.fromkeys(RUNNING, LOCAL)}.get(backend, backend)
    placement = {"provider": provider}
    job = {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": refused.kind,
        "metadata": {"name": "a"},
        "spec": {"template": refused.template, "placement": placement, **refused.more},
    }
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(job), encoding="utf-8")
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(["validate", "-f", str(file)], Screen(out, talk))
    assert (code, refused.says in talk.getvalue()) == (2, True), talk.getvalue()


OBSERVED = [
    (model, field, str(effect))
    for model, field, backend, effect in _effects()
    if model is Template and backend == LOCAL and isinstance(effect, str)
]


@pytest.mark.parametrize(
    ("model", "field", "name"), OBSERVED, ids=[field for _, field, _ in OBSERVED]
)
def test_a_provider_that_drops_a_field_fails_its_test(
    model: type[BaseModel],
    field: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLEETCTL_LOCAL_TIER", "process")
    monkeypatch.setattr(provider_world, "WAIT_S", WAIT_S)

    class Forgetful(test_provider_local.TestProcess):
        def world(self, tmp_path: Path) -> World:
            return _forgetful(field)(tmp_path)

    try:
        with pytest.raises((AssertionError, Refused)):
            getattr(Forgetful(), name)(tmp_path)
    finally:
        stop_supervisors(tmp_path / "home")


def _forgetful(field: str) -> type[LocalWorld]:
    """Returns worlds whose provider never sees a field of the template."""
    default = Template.model_fields[field].get_default(call_default_factory=True)
    # The engine brings the values of these to a request beside the template.
    beside: dict[str, dict[str, Any]] = {
        "secrets": {"secrets": {}},
        "endpoints": {"endpoints": None},
    }

    class ForgetfulWorld(LocalWorld):
        def order(
            self, template: Template | None = None, *, run: str = "run-0", **changes: Any
        ) -> RunRequest:
            made = super().order(template, run=run, **changes)
            left = made.template.model_copy(update={field: default})
            return replace(made, template=left, **beside.get(field, {}))

    return ForgetfulWorld


def _files() -> list[Path]:
    here = Path(__file__).parent
    shared = Path(provider_world.__file__).with_name("provider_contract.py")
    return sorted([*here.glob("provider_*.py"), *here.glob("test_provider_*.py"), shared])


def _text_of(file: Path, name: str) -> str:
    """Returns the text of a test; empty without one of that name."""
    text = file.read_text(encoding="utf-8")
    if name not in text:
        return ""
    for node in ast.walk(tree_of(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return ast.get_source_segment(text, node) or ""
    return ""


def _speaks_of(model: type[BaseModel], field: str, text: str) -> bool:
    alias = model.model_fields[field].alias or field
    return re.search(rf"\b(?:{alias}|{field})(?:_task)?\b", text) is not None

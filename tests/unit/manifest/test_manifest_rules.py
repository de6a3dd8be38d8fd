"""The table of rules: each row can be loaded, and says the level that its check is of."""

from __future__ import annotations

import inspect
from collections import Counter

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fleetctl.common.finding import Severity
from fleetctl.manifest import findings
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.loader import load_manifests
from fleetctl.manifest.rules import RULES, Rule, RuleLevel, checks_for
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.values.scalars import Spec

TAKES = {RuleLevel.TEXT: 1, RuleLevel.NAME: 2}
SWEEP = """
apiVersion: fleetctl.dev/v1alpha1
kind: Sweep
metadata: {name: digits}
spec:
  trials: 2
  search: {method: random, parameters: {lr: {min: 0.1, max: 1.0}}, metric: {name: loss}}
  template: {command: [python, train.py], metrics: {from: stdout, regex: "(?P<accuracy>[0-9.]+)"}}
"""


def test_every_level_has_rules_and_every_rule_is_loaded_by_its_row() -> None:
    assert {rule.level for rule in RULES} == set(RuleLevel)
    for rule in RULES:
        taken = len(inspect.signature(rule.load()).parameters)
        assert taken == TAKES.get(rule.level, 3), rule.check


def test_no_rule_stands_in_two_rows() -> None:
    assert not [name for name, rows in Counter(it.check for it in RULES).items() if rows > 1]


@pytest.mark.parametrize("level", RuleLevel)
def test_the_checks_of_a_spec_are_the_rows_about_its_kind_and_its_fields(level: RuleLevel) -> None:
    (made,) = load_manifests([Document("sweep.yaml", SWEEP, "/")])
    given = {"search", "command", "metrics"}
    rows = [it for it in RULES if it.level is level and isinstance(made.spec, it.specs)]
    rows = [it for it in rows if not it.fields or given & {*it.fields}]
    assert list(checks_for(made.spec, level)) == [it.load() for it in rows]


def test_the_fields_that_rules_are_about_exist_in_one_of_their_kinds() -> None:
    for rule in RULES:
        specs = [it.spec for it in KINDS.values() if issubclass(it.spec, rule.specs)]
        blocks = [spec.model_fields.keys() for spec in specs]
        templates = (_model_in(it.model_fields.get("template")) for it in specs)
        blocks += [it.model_fields.keys() for it in templates if it is not None]
        known = {name for names in blocks for name in names}
        assert {it.partition(".")[0] for it in rule.fields} <= known, rule.check


def _model_in(field: FieldInfo | None) -> type[BaseModel] | None:
    return findings._model_in(field.annotation) if field is not None else None


def test_a_finding_refuses_or_warns_by_its_severity_alone() -> None:
    (made,) = load_manifests([Document("sweep.yaml", SWEEP, "/")])
    assert any("the search compares `loss`" in it for it in made.warnings)
    rows = [it for it in RULES if it.check == "manifest.checks.programs:find_doubts"]
    (found,) = [it for rule in rows for it in rule.load()(made.spec)]
    assert found.severity is Severity.DOUBT


def test_rules_about_specs_of_several_kinds_name_each() -> None:
    named = [it.specs if isinstance(it.specs, tuple) else (it.specs,) for it in RULES]
    assert all(issubclass(spec, Spec) for specs in named for spec in specs)
    assert Rule(RuleLevel.TEXT, Spec, "manifest.rules:check_text").load()

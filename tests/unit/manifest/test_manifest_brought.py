"""Mistakes that people bring from other tools: each names what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.manifest import Document, ManifestErrors, load_manifests

JOB = "apiVersion: fleetctl.dev/v1alpha1\nkind: BatchJob\nmetadata: {name: a}\nspec: {%s}\n"
SWEEP = (
    "apiVersion: fleetctl.dev/v1alpha1\nkind: Sweep\nmetadata: {name: a}\nspec:\n"
    "  search: {method: random, metric: {name: x, goal: %s}, parameters: {%s}, run_cap: 3}\n"
    "  template: {timeoutSeconds: 9, script: x}\n"
)
WORK = "template: {timeoutSeconds: 9, script: x%s}"


def said(text: str) -> str:
    with pytest.raises(ManifestErrors) as error:
        load_manifests([Document("f.yaml", text, "/")])
    return str(error.value)


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        (WORK % ", resources: {limits: {cpu: 1}}", "`resources: {cpu: 2, memory: 4Gi, gpu: A100}`"),
        ("template: {spec: {containers: []}}", "fleetctl convert --from k8s-job"),
        (WORK % ", retries: 3", "`backoffLimitPerIndex` of `spec`, beside `template`"),
        (WORK % "" + ", epochs: 10", "pass it in `command`"),
        (WORK % "" + ", placement: {provider: modal, spot: true}", "there is no such choice"),
    ],
)
def test_a_field_from_elsewhere_names_the_way(fields: str, hint: str) -> None:
    assert hint in said(JOB % fields)


@pytest.mark.parametrize(
    ("goal", "parameter", "hint"),
    [
        ("min", "a: {value: 1}", "did you mean `minimize`?"),
        ("max", "a: {value: 1}", "did you mean `maximize`?"),
        ("minimize", "opt: [adam, sgd]", "write `opt: {values: ["),
        ("minimize", "opt: adam", "write `opt: {value: "),
        ("minimize", "a: {values: 32}", "`values: [32]`"),
        ("minimize", "a: {distribution: loguniform, min: 0.1, max: 1}", "`log_uniform_values`"),
        ("minimize", "a: {distribution: choice, values: [1]}", "`categorical`"),
        ("minimize", "a: {distribution: randint, min: 1, max: 2}", "`int_uniform`"),
    ],
)
def test_a_search_from_elsewhere_names_the_way(goal: str, parameter: str, hint: str) -> None:
    assert hint in said(SWEEP % (goal, parameter))


@pytest.mark.parametrize(
    ("quota", "hint"),
    [
        ("{resource: cpu, nominal: 4}", "did you mean `cpus`?"),
        ("{resource: GPU, nominal: 4}", "did you mean `gpus`?"),
        ("{cpu: 4}", "did you mean `resource`?"),
        ("{gpus: 4}", "did you mean `resource`?"),
    ],
)
def test_a_quota_named_as_in_a_template_names_the_right_word(quota: str, hint: str) -> None:
    text = JOB.replace("BatchJob", "Queue") % f"quotas: [{quota}]"
    assert hint in said(text)


def test_a_merge_conflict_is_called_by_its_name(tmp_path: Path) -> None:
    text = JOB.partition("spec")[0] + "<<<<<<< HEAD\nspec: {a: 1}\n=======\nspec: {}\n>>>>>>> x\n"
    assert "f.yaml:4:1: a merge conflict is left here" in said(text)

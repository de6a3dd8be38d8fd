"""All that is wrong with a document in one round, also inside of a field with a wrong name."""

from __future__ import annotations

import pytest

from fleetctl.manifest import Document, ManifestErrors, load_manifests

HEAD = "apiVersion: fleetctl.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: x}}\nspec:\n{spec}\n"


@pytest.mark.parametrize(
    ("kind", "spec", "places"),
    [
        (
            "BatchJob",
            "  paralellism: none\n  template: {script: x, resource: {cpus: 2, gpu: 'A:x'}}",
            [
                "spec.paralellism is an unknown field",
                "spec.template.resource is an unknown field",
                "spec.template.resource.cpus is an unknown field",
                "spec.template.resource.gpu is `A:x`",
            ],
        ),
        (
            "BatchJob",
            "  template: {script: x, gpu: A100, env: {FLEETCTL_RESULT: x}}",
            ["spec.template.gpu is an unknown field", "spec.template.env.FLEETCTL_RESULT is set"],
        ),
        (
            "BatchJob",
            "  tasks: {items: [{a: b}]}\n"
            "  template: {prompt: {endpoint: e, model: m, text: '${txt}', temperature: 1}}",
            ["spec.template.prompt.temperature is an unknown field", "spec.template.prompt.text"],
        ),
        (
            "Queue",
            "  quota: [{provider: local, cpu: 2}]",
            [
                "spec.quotas is missing",
                "spec.quota is an unknown field",
                "spec.quota[0].nominal is missing",
                "spec.quota[0].cpu is an unknown field",
            ],
        ),
        ("BatchJob", "  nonsense: [1, 2]\n  template: {script: x}", ["spec.nonsense is an unkn"]),
        (
            "Notifier",
            "  slack: {secret: s}",
            [
                "spec.notify is missing",
                "spec.slack is an unknown field",
                "spec.notify[0]",
            ],
        ),
        (
            "Schedule",
            "  schedule: '0 3 * * *'\n  paused: true\n  template:\n    kind: BatchJob\n"
            "    spec: {template: {script: x, gpu: 1}, slack: {secret: s}, matrix: {lr: []}}",
            [
                "spec.paused is an unknown field",
                "spec.template.spec.template.gpu is an unknown field",
                "spec.template.spec.slack is an unknown field",
                "spec.template.spec.notify[0]",
                "spec.template.spec.matrix is an unknown field",
                "spec.template.spec.matrix.lr: it must not be empty",
            ],
        ),
    ],
)
def test_what_is_wrong_inside_of_an_unknown_field_comes_in_the_same_round(
    kind: str, spec: str, places: list[str]
) -> None:
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([Document("x.yaml", HEAD.format(kind=kind, spec=spec), "/")])
    found = [str(it).split(": ", 1)[1] for it in caught.value.problems]
    assert len(found) == len(places), found
    assert all(any(it.startswith(place) for it in found) for place in places), found


@pytest.mark.parametrize(
    ("kind", "spec", "places"),
    [
        (
            "BatchJob",
            "  parallelism: many\n  template:\n    script: x\n    workdir: 5\n"
            "    env: {FLEETCTL_RESULT: x}\n    image: {python: '3.12', pip: ['a =']}",
            [
                "spec.parallelism is `many`",
                "spec.template.workdir is",
                "spec.template.env.FLEETCTL_RESULT is set",
                "spec.template.image.pip[0] is `a =`",
            ],
        ),
        (
            # the count of tasks is unknown, and a rule that reads it has no opinion
            "BatchJob",
            "  completions: many\n  template: {script: x}\n"
            "  successPolicy: {rules: [{succeededCount: 5}]}",
            ["spec.completions is `many`"],
        ),
        (
            "Settings",
            "  retention: {logs: {maxAge: soon}}",
            ["metadata.name is `x`", "spec.retention.logs.maxAge is `soon`"],
        ),
    ],
)
def test_rules_are_applied_beside_values_that_cannot_be_read(
    kind: str, spec: str, places: list[str]
) -> None:
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([Document("x.yaml", HEAD.format(kind=kind, spec=spec), "/")])
    found = [str(it).split(": ", 1)[1] for it in caught.value.problems]
    assert len(found) == len(places), found
    assert all(one.startswith(place) for one, place in zip(found, places, strict=True)), found


@pytest.mark.parametrize(
    ("fields", "wanted", "unwanted"),
    [
        ("type: daytona, lease: 5m", "known here: `type`", "ssh"),
        ("type: ssh, ssh: {hosts: [a]}, lease: 5m", "did you mean `ssh.lease`?", "daytona"),
        ("type: modal, apiKeyEnv: KEY", "known here: `type`", "account.apiKeyEnv"),
        ("type: modal, profile: x", "did you mean `account.profile`?", "apiKeyEnv"),
        ("type: daytona, account: {profil: x}", "`apiKeyEnv`, `apiUrl` and `target`", "profile"),
    ],
)
def test_a_hint_names_only_fields_that_fit_the_type(
    fields: str, wanted: str, unwanted: str
) -> None:
    text = HEAD.format(kind="Provider", spec=f"  {{{fields}}}")
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([Document("x.yaml", text, "/")])
    hints = " ".join(it.hint for it in caught.value.problems)
    assert wanted in hints and unwanted not in hints, hints

from __future__ import annotations

import json

import pytest

from fleetctl.common.errors import UsageError
from fleetctl.manifest import Document, LoadErrors, Manifest, ManifestErrors, load_manifests, loader
from fleetctl.manifest.problems import PROBLEMS_SHOWN_MAX
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.kinds.sweep import SweepSpec

HEAD = "apiVersion: fleetctl.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\n"


def manifest(kind: str = "BatchJob", name: str = "x", spec: str = "{template: {script: x}}") -> str:
    return HEAD.format(kind=kind, name=name) + f"spec: {spec}\n"


def loaded(text: str) -> list[Manifest]:
    return load_manifests([Document("x.yaml", text, "/")])


def problems(text: str) -> list[str]:
    with pytest.raises(ManifestErrors) as caught:
        loaded(text)
    return [str(it) for it in caught.value.problems]


@pytest.mark.parametrize("value", ["4711", "1e4711", "true"])
def test_a_wrong_value_of_what_is_named_like_a_credential_is_not_repeated(value: str) -> None:
    [open_, hidden] = [
        " ".join(problems(manifest(spec=f"{{template: {{script: x, env: {{{name}: {value}}}}}}}")))
        for name in ("STEPS", "API_KEY")
    ]
    assert value in open_
    assert value not in hidden
    assert "`***`" in hidden


def test_every_kind_loads_from_one_file_in_order() -> None:
    search = "{search: {method: grid, program: t.py, parameters: {lr: {values: [3e-5, 1e-4]}}}}"
    text = "---\n".join(
        [
            manifest("BatchJob", "a"),
            manifest("Sweep", "b", search),
            manifest("TrainingRun", "c"),
            manifest("Volume", "d", "{}"),
            manifest("Secret", "e", "{fromEnv: [TOKEN]}"),
        ]
    )
    found = loaded(text)
    assert [(it.kind, it.name, it.line) for it in found] == [
        ("BatchJob", "a", 1),
        ("Sweep", "b", 6),
        ("TrainingRun", "c", 11),
        ("Volume", "d", 16),
        ("Secret", "e", 21),
    ]
    assert isinstance(found[0].spec, BatchJobSpec)
    assert isinstance(found[1].spec, SweepSpec)
    assert found[1].spec.search.parameters == {"lr": {"values": [3e-5, 1e-4]}}


def test_a_volume_needs_no_spec() -> None:
    (found,) = loaded(HEAD.format(kind="Volume", name="v"))
    assert found.spec.model_dump()["provider"] == "local"


def test_kinds_of_the_same_name_do_not_collide() -> None:
    assert len(loaded(manifest() + "---\n" + manifest("TrainingRun"))) == 2


def test_what_get_shows_can_be_applied_again() -> None:
    text = """
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata:
  name: x
  labels: {team: a}
  annotations: {}
  uid: 0193
  generation: 2
  version: 17
  creationTimestamp: '2026-01-01T00:00:00Z'
spec: {template: {script: x}}
status: {phase: Running, conditions: []}
"""
    assert loaded(text)[0].metadata.labels == {"team": "a"}


def test_all_mistakes_of_all_documents_are_told_at_once_in_reading_order() -> None:
    first = Document("a.yaml", manifest(spec="{template: {script: x}, parallelism: no}"), "/")
    second = Document(
        "b.yaml",
        manifest(name="Bad") + "---\n" + manifest("Nope") + "---\na: 1\na: 2\n",
        "/",
    )
    broken = Document("c.yaml", "a: [", "/")
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([first, second, broken])
    found = [(it.file, it.line) for it in caught.value.problems]
    assert found == sorted(found)
    assert {it for it, _ in found} == {"a.yaml", "b.yaml", "c.yaml"}
    assert {line for it, line in found if it == "b.yaml"} == {3, 7, 11, 12}


def test_a_mistake_of_reading_hides_no_mistake_of_meaning() -> None:
    text = HEAD.format(kind="BatchJob", name="x") + (
        "spec:\n  template: {script: x}\n  parallelism: &a -1\n  suspend: *a\n  nope: 1\n"
    )
    found = problems(text)
    assert len(found) == 4
    assert "anchor" in found[0] and "at least 0" in found[1]
    assert "alias" in found[2] and "nope" in found[3]


def test_the_errors_are_a_usage_error_whose_text_is_ready_to_print() -> None:
    with pytest.raises(UsageError) as caught:
        loaded(manifest(spec="{template: {script: x}, paralelism: 1, suspend: 3}"))
    assert caught.value.exit_code == 2
    assert f"error: {caught.value}".splitlines() == [
        "error: x.yaml:4:31: spec.paralelism is an unknown field",
        "hint: did you mean `parallelism`?",
        "error: x.yaml:4:55: spec.suspend is `3`; it must be `true` or `false`",
    ]


@pytest.mark.parametrize(("kind", "what"), [("{a: b}", "a mapping"), ("[x]", "a list")])
def test_a_kind_that_is_no_text_is_told_as_what_it_is(kind: str, what: str) -> None:
    with pytest.raises(ManifestErrors, match=f"kind is {what}; it must be one of"):
        loaded(f"apiVersion: fleetctl.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: x}}\n")


def test_a_flood_of_mistakes_is_cut_short() -> None:
    fields = ", ".join(f"x{number}: 1" for number in range(PROBLEMS_SHOWN_MAX + 50))
    with pytest.raises(ManifestErrors) as caught:
        loaded(manifest(spec=f"{{template: {{script: x}}, {fields}}}"))
    assert len(caught.value.problems) == PROBLEMS_SHOWN_MAX + 50
    lines = str(caught.value).splitlines()
    assert lines[-1] == "error: and 50 more problems"
    assert len([it for it in lines if not it.startswith("hint")]) == PROBLEMS_SHOWN_MAX + 1


def test_credentials_are_warned_about_and_never_repeated() -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz"
    env = f"{{HF_TOKEN: {secret}, API_KEY: short, TOKENIZER: {secret}, KEY_FILE: /a/long/path/of}}"
    (found,) = loaded(manifest(spec=f"{{template: {{script: x, env: {env}}}}}"))
    (warning,) = found.warnings
    assert warning.startswith(
        "x.yaml:4:36: spec.template.env.HF_TOKEN holds what looks like a credential; put it"
    )
    assert secret not in warning


def test_credentials_in_stages_and_images_are_warned_about_too() -> None:
    long = "x" * 30
    spec = (
        f"{{template: {{image: {{env: {{A_SECRET: {long}}}}}}}, "
        f"stages: [{{name: a, script: x, env: {{MY_PASSWORD: {long}}}}}]}}"
    )
    (found,) = loaded(manifest("TrainingRun", spec=spec))
    assert sorted(it.split()[1] for it in found.warnings) == [
        "spec.stages[0].env.MY_PASSWORD",
        "spec.template.image.env.A_SECRET",
    ]


BLOCK = """
  template:{image}
    python: |
      x = 1
      for x in
"""


def test_python_that_no_task_could_run_is_refused_with_its_line_in_the_file() -> None:
    with pytest.raises(ManifestErrors) as caught:
        loaded(manifest(spec=BLOCK.format(image="")))
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (8, 1)
    assert problem.message == "spec.template.python is not valid Python: line 2: invalid syntax"
    assert problem.hint == "the line is `for x in`"
    stages = '{template: {}, stages: [{name: a, python: "x = 1"}, {name: b, python: "x ="}]}'
    with pytest.raises(ManifestErrors, match=r"x\.yaml:4:.*: spec\.stages\[1\]\.python is not"):
        loaded(manifest("TrainingRun", spec=stages))


def test_python_for_an_image_whose_python_may_be_newer_is_warned_about_alone() -> None:
    for image in ("registry.example/x:1", '{python: "3.99"}'):
        (found,) = loaded(manifest(spec=BLOCK.format(image=f"\n    image: {image}")))
        (warning,) = found.warnings
        assert warning.startswith("x.yaml:9:1: spec.template.python is not valid Python: line 2")
        assert "unless its Python is newer than" in warning


TWO = """
  template:
    python: |
      if x:
          SUBMIT(a=1)
          SUBMIT(b=2)
"""


def test_python_behind_a_submit_is_warned_about_with_its_line() -> None:
    (found,) = loaded(manifest(spec=TWO))
    (warning,) = found.warnings
    assert warning.startswith("x.yaml:9:1: spec.template.python: line 3 is never run")
    assert "the SUBMIT of line 2 ends the task" in warning


EARLY = "if x: SUBMIT(a=1)\\nSUBMIT(a=2)\\ndef f(): pass"


@pytest.mark.parametrize("code", [EARLY, "assert (1, 2)", "-" * 100_000 + "1", "x = '\\\\d'"])
def test_python_that_may_run_is_not_warned_about(code: str) -> None:
    (found,) = loaded(manifest(spec=f'{{template: {{python: "{code}"}}}}'))
    assert found.warnings == ()


def test_more_manifests_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "DOCUMENTS_MAX", 40)
    half = [
        Document(
            f"{part}.yaml",
            "---\n".join(
                HEAD.format(kind="Volume", name=f"v{part}-{number}") for number in range(21)
            ),
            "/",
        )
        for part in range(2)
    ]
    with pytest.raises(LoadErrors, match="at most 40 manifests") as caught:
        load_manifests(half)
    assert caught.value.sound == [], "or a controller would look at all of them before it refuses"


def test_no_document_at_all_is_a_mistake() -> None:
    with pytest.raises(ManifestErrors, match="no manifest"):
        load_manifests([])
    assert problems("# only a comment\n---\n") == ["x.yaml: there is no manifest here"]


def test_fields_in_python_spelling_are_not_read() -> None:
    (said,) = problems(manifest(spec="{template: {script: x}, backoff_limit: 1}"))
    assert "spec.backoff_limit is an unknown field" in said


def test_a_list_as_get_writes_it_is_read_item_by_item() -> None:
    items = [
        {
            "apiVersion": "fleetctl.dev/v1alpha1",
            "kind": "BatchJob",
            "metadata": {"name": name, "namespace": "default", "uid": "u", "generation": 3},
            "spec": {"template": {"script": "x"}},
            "status": {"phase": "Succeeded"},
        }
        for name in ("a", "b")
    ]
    for version in ("v1", "fleetctl.dev/v1alpha1"):
        text = json.dumps({"apiVersion": version, "kind": "List", "items": items}, indent=2)
        assert [it.key for it in loaded(text)] == ["batchjob/a", "batchjob/b"]


@pytest.mark.parametrize("value", ["{a: b}", "[x]", "[]", "{}", "1", "true", "~", "[[{a: 1}]]"])
@pytest.mark.parametrize("field", ["kind", "apiVersion", "metadata", "spec"])
@pytest.mark.parametrize("version", ["fleetctl.dev/v1alpha1", "batch/v1", "[x]"])
def test_any_value_of_the_envelope_is_refused_in_words(
    field: str, value: str, version: str
) -> None:
    fields = {"apiVersion": version, "kind": "Job", "metadata": "{name: x}", "spec": "{}"}
    text = "".join(f"{name}: {it}\n" for name, it in {**fields, field: value}.items())
    assert problems(text)


def test_a_credential_in_the_address_of_a_webhook_is_refused_and_not_repeated() -> None:
    rule = "{{on: [Failed], webhook: {{url: '{url}'}}}}"
    for url in ("https://a.example/x?token=canary", "https://u:p@a.example/x?a=1&api_key=canary"):
        [said] = problems(
            manifest(spec=f"{{template: {{script: x}}, notify: [{rule.format(url=url)}]}}")
        )
        assert "notify[0].webhook.url" in said
        assert "canary" not in said
    plain = rule.format(url="https://a.example/x?channel=ops")
    assert loaded(manifest(spec=f"{{template: {{script: x}}, notify: [{plain}]}}"))


def test_a_key_that_yaml_1_1_reads_as_a_truth_is_what_was_written_and_warned_of() -> None:
    (found,) = loaded(
        manifest(spec='{tasks: {items: [{n: 1, "y": 2, on: 3}]}, template: {script: x}}')
    )
    assert isinstance(found.spec, BatchJobSpec) and found.spec.tasks is not None
    assert found.spec.tasks.items == ({"n": 1, "y": 2, "on": 3},)
    (warning,) = found.warnings
    assert "the key `n` is true or false to kubectl, helm and Argo CD, as are 1 more" in warning
    assert 'for a cluster put it into quotes, `"n":`' in warning

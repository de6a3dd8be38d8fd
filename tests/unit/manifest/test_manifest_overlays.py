"""`kind: Overlay`: what a patch does to a base, and where it is told when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fleetctl.manifest import Manifest, ManifestErrors, load_manifests, read_documents
from fleetctl.manifest.files.documents import SET, Document
from fleetctl.manifest.rendering.render import rendered_values

API = "apiVersion: fleetctl.dev/v1alpha1\n"
BASE = f"""{API}kind: BatchJob
metadata: {{name: x, labels: {{team: rlm}}}}
spec:
  parallelism: 2
  tasks: {{items: [{{a: 1}}, {{a: 2}}]}}
  template:
    script: echo
    env: {{A: one, B: two}}
    volumes:
    - {{name: data, mountPath: /data}}
    - {{name: out, mountPath: /out}}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "base").mkdir()
    (tmp_path / "prod").mkdir()
    (tmp_path / "base" / "job.yaml").write_text(BASE)
    return tmp_path


def overlay(place: Path, text: str, *, of: str = "../base", name: str = "prod") -> Path:
    (place / name).mkdir(exist_ok=True)
    path = place / name / "overlay.yaml"
    path.write_text(f"{API}kind: Overlay\nbase: {of}\n{text}")
    return path


def patch(spec: str) -> str:
    return f"patches:\n- kind: BatchJob\n  metadata: {{name: x}}\n  spec: {spec}\n"


def loaded(*paths: Path, recursive: bool = False) -> list[Manifest]:
    return load_manifests(read_documents([str(it) for it in paths], recursive=recursive))


def problems(path: Path) -> list[str]:
    with pytest.raises(ManifestErrors) as caught:
        loaded(path)
    place = f"{path.parent.parent if path.is_file() else path.parent}/"
    return [str(it).replace(place, "") for it in caught.value.problems]


def patched(place: Path, spec: str) -> dict[str, object]:
    """The base's spec afterwards, of what the patch names."""
    path = overlay(place, patch(spec))
    (value,) = rendered_values(read_documents([str(path)]))
    spec_after: dict[str, object] = value["spec"]
    return spec_after


def test_fields_are_merged_null_takes_away_and_lists_are_replaced(place: Path) -> None:
    was = yaml.safe_load(BASE)["spec"]
    spec = "{parallelism: 9, tasks: {items: [{b: 1}]}, template: {env: {B: null, C: three}}}"
    now = patched(place, spec)
    template = {**was["template"], "env": {"A": "one", "C": "three"}}
    assert now == {"parallelism": 9, "tasks": {"items": [{"b": 1}]}, "template": template}


def test_lists_of_what_has_a_name_are_merged_entry_by_entry(place: Path) -> None:
    spec = (
        "{template: {volumes: [{name: out, mountPath: /o}, {name: new, mountPath: /n},"
        " {name: data, $patch: delete}]}}"
    )
    template = patched(place, spec)["template"]
    assert isinstance(template, dict)
    assert template["volumes"] == [
        {"name": "out", "mountPath": "/o"},
        {"name": "new", "mountPath": "/n"},
    ]


def test_a_mapping_can_be_replaced_as_a_whole(place: Path) -> None:
    template = patched(place, "{template: {env: {$patch: replace, Z: last}}}")["template"]
    assert isinstance(template, dict)
    assert template["env"] == {"Z": "last"}
    template = patched(place, "{template: {env: {$patch: delete}}}")["template"]
    assert "env" not in template  # type: ignore[operator]


def test_the_list_form_of_env_is_merged_by_name(place: Path) -> None:
    listed = BASE.replace("{A: one, B: two}", "[{name: A, value: one}, {name: B, value: two}]")
    (place / "base" / "job.yaml").write_text(listed)
    template = patched(place, "{template: {env: {B: new}}}")["template"]
    assert isinstance(template, dict)
    assert template["env"] == {"A": "one", "B": "new"}


def test_namespace_and_labels_are_those_of_the_environment(place: Path) -> None:
    provider = f"---\n{API}kind: Provider\nmetadata: {{name: local}}\nspec: {{}}\n"
    (place / "base" / "job.yaml").write_text(BASE + provider)
    found = loaded(overlay(place, "namespace: prod\nlabels: {env: prod}\n"))
    assert [(it.key, it.metadata.labels) for it in found] == [
        ("batchjob/x -n prod", {"team": "rlm", "env": "prod"}),
        ("provider/local", {"env": "prod"}),
    ]


def test_what_a_patch_gets_wrong_is_told_in_the_patch(place: Path) -> None:
    spec = "{parallelism: many, template: {volumes: [{name: out, mountPath: o}], imge: {}}}"
    overlay(place, patch(spec))
    assert problems(place / "prod") == [
        "prod/overlay.yaml:7:23: spec.parallelism is `many`; it must be a whole number",
        "prod/overlay.yaml:7:73: spec.template.volumes[1].mountPath is `o`; a path inside the"
        " sandbox must be absolute, without `.` and `..`",
        "prod/overlay.yaml:7:78: spec.template.imge is an unknown field",
    ]


def test_what_the_base_gets_wrong_is_told_in_the_base_also_after_entries_moved(
    place: Path,
) -> None:
    wrong = BASE.replace("mountPath: /out", "mountPath: out")
    (place / "base" / "job.yaml").write_text(wrong)
    overlay(place, patch("{template: {volumes: [{name: data, $patch: delete}]}}"))
    (told,) = problems(place / "prod")
    assert told.startswith("base/job.yaml:12:30: spec.template.volumes[0].mountPath is `out`")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "patches: [{kind: BatchJob, metadata: {name: y}}]\n",
            "4:45: patches[0].metadata.name is `y`; the base has no BatchJob of this name",
        ),
        (patch("{parallelsm: null}"), "7:10: spec.parallelsm removes what is not there"),
        (
            patch("{template: {volumes: [{name: ot, $patch: delete}]}}"),
            "spec.template.volumes removes `ot`, which is not there",
        ),
        (
            patch("{template: {$patch: remove}}"),
            'spec.template."$patch"',
        ),
        ("variables: {n: 3}\n", "4:13: n is given a value, and no variable is called so"),
        ("labels: {env: a b}\n", "4:15: labels.env is `a b`; a label's value must be"),
        ("namespce: prod\n", "4:1: namespce is an unknown field"),
    ],
)
def test_an_overlay_that_cannot_be_meant_is_refused(place: Path, text: str, told: str) -> None:
    overlay(place, text)
    assert told in "\n".join(problems(place / "prod"))


def test_overlays_lie_over_overlays_and_the_outer_one_wins(place: Path) -> None:
    declared = f"{API}kind: Variables\nvariables:\n  n: {{type: integer, default: 1}}\n---\n"
    refers = BASE.replace("parallelism: 2", "parallelism: ${{ n }}")
    (place / "base" / "job.yaml").write_text(declared + refers)
    overlay(place, "variables: {n: 5}\nlabels: {env: prod, tier: a}\n")
    outer = overlay(place, "variables: {n: 6}\nlabels: {tier: b}\n", of="../prod", name="eu")
    (found,) = loaded(outer)
    assert found.metadata.labels == {"team": "rlm", "env": "prod", "tier": "b"}
    assert found.spec.model_dump()["parallelism"] == 6
    flag = Document("--set", "n=7", "/", role=SET)
    (found,) = load_manifests([*read_documents([str(outer)]), flag])
    assert found.spec.model_dump()["parallelism"] == 7


def test_a_patch_may_refer_to_the_variables_of_its_base(place: Path) -> None:
    declared = f"{API}kind: Variables\nvariables:\n  n: {{type: integer, default: 0}}\n---\n"
    (place / "base" / "job.yaml").write_text(declared + BASE)
    path = overlay(place, patch("{parallelism: '${{ n }}'}"))
    (found,) = loaded(path)
    assert found.spec.model_dump()["parallelism"] == 0
    overlay(place, "variables: {n: -1}\n" + patch("{parallelism: '${{ n }}'}"))
    (told,) = problems(place / "prod")
    assert told.startswith("prod/overlay.yaml:8:23: spec.parallelism is `-1`; it must be at least")
    assert told.endswith("`${{ n }}` has its value from prod/overlay.yaml:4:16")


def test_a_chain_that_leads_back_is_refused(place: Path) -> None:
    overlay(place, "", of="../eu")
    overlay(place, "", of="../prod", name="eu")
    assert "leads back to where it began" in "\n".join(problems(place / "prod"))
    overlay(place, "", of=".")
    assert "leads back to where it began" in "\n".join(problems(place / "prod"))


def test_of_a_whole_repository_a_base_is_not_applied_by_itself(place: Path) -> None:
    overlay(place, "namespace: prod\n")
    overlay(place, "namespace: dev\n", name="dev")
    found = loaded(place, recursive=True)
    assert [it.namespace for it in found] == ["dev", "prod"]
    assert [it.name for it in found] == ["x", "x"]


def test_files_that_a_patch_names_lie_beside_the_overlay(place: Path) -> None:
    (place / "prod" / "rows.jsonl").write_text('{"a": 7}\n')
    path = overlay(place, patch("{tasks: {items: null, fromFile: rows.jsonl}}"))
    (found,) = loaded(path)
    assert found.spec.model_dump(by_alias=True)["tasks"]["items"] == ({"a": 7},)
    assert str(path) in found.read
    assert str(place / "base") in found.read

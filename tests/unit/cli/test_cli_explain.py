"""`explain`, `schema`, `api-resources`: what can be written, told from the shipped schemas."""

from __future__ import annotations

import io
import json

import pytest

from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.manifest.hints.fields import SchemaField, manifest_field
from fleetctl.manifest.schemas import schema_of
from fleetctl.specs.kinds.registry import KINDS


def fleetctl(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(list(words), Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_explained_whole(kind: str) -> None:
    code, page, said = fleetctl("explain", kind, "--recursive")
    assert (code, said) == (0, "")
    assert f"KIND:     {kind}" in page and "  spec  <object>" in page


def test_a_field_has_type_default_bounds_meaning_and_its_names_elsewhere() -> None:
    _, page, _ = fleetctl("explain", "sweep.spec.maxFailedIndexes")
    assert "FIELD:    spec.maxFailedIndexes  <integer>" in page
    assert "Failed units above which the whole fails" in page
    assert "allowed:   at least 0" in page
    assert "maxFailedTrialCount (Katib)" in page
    _, page, _ = fleetctl("explain", "job.spec.rollout")
    assert 'default:   "Replace"' in page and "one of Replace, FinishRunning" in page
    _, page, _ = fleetctl("explain", "sweep.spec.search.run_cap")
    assert "run_cap (W&B)" in page
    _, page, _ = fleetctl("explain", "sweep.spec.search.priorTrials")
    assert "W&B" not in page


@pytest.mark.parametrize("word", ["NoCapacity", "ExitCode:3"])
def test_a_reason_is_explained_in_a_sentence(word: str) -> None:
    code, page, said = fleetctl("explain", word)
    assert (code, said) == (0, "")
    assert page.startswith(f"REASON:   {word}\n") and page.rstrip().endswith(".")


def test_lists_and_maps_are_walked_through() -> None:
    assert fleetctl("explain", "job.spec.template.volumes.mountPath")[0] == 0
    code, page, _ = fleetctl("explain", "sweep.spec.search.parameters.lr.distribution")
    assert code == 0 and "log_uniform_values" in page


def test_a_field_is_required_only_where_every_form_wants_it() -> None:
    _, page, _ = fleetctl("explain", "sweep.spec.search.parameters.lr")
    assert "-required-" not in page
    _, page, _ = fleetctl("explain", "job.spec.template.source.git.url")
    assert "required:  yes" in page


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("job.spec.paralelism", "did you mean `job.spec.parallelism`?"),
        ("job.paralelism", "did you mean `job.spec.parallelism`?"),
        ("sweep.template.image", "did you mean `sweep.spec.template.image`?"),
        ("job.spec.template.accelerators", "it has `python`"),
        ("job.spec.template.resources.accelerators", "`job.spec.template.resources.gpu`"),
        ("job.spec.parallelism.x", "`job.spec.parallelism` has no fields"),
        ("job.spec..x", "it has"),
    ],
)
def test_an_unknown_field_is_answered_with_the_nearest(path: str, hint: str) -> None:
    code, page, said = fleetctl("explain", path)
    assert (code, page) == (4, "")
    assert hint in said


def test_an_unknown_kind_is_wrong_usage() -> None:
    code, _, said = fleetctl("explain", "swep.spec")
    assert code == 2 and "did you mean `sweep`?" in said


def test_every_field_that_a_person_writes_says_what_it_means() -> None:
    silent = [
        f"{kind}: {'.'.join(path)}"
        for kind in KINDS
        for path, field in below(manifest_field(kind), ())
        if not field.description and path[-1] not in ("apiVersion", "kind")
        and "parameters" not in path and "env" not in path
    ]  # fmt: skip
    assert silent == []


def below(field: SchemaField, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], SchemaField]]:
    found = []
    for child in field.children():
        here = (*path, child.name)
        found.append((here, child))
        if child.name != "otherwise":
            found += below(child, here)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_schema_prints_what_the_models_say(kind: str) -> None:
    code, text, _ = fleetctl("schema", "--kind", KINDS[kind].plural)
    assert code == 0 and json.loads(text) == schema_of(kind)


def test_api_resources_lists_every_kind_with_verbs_that_exist() -> None:
    from fleetctl.cli.command.verbs import VERBS

    _, text, _ = fleetctl("api-resources", "-o", "json")
    rows = json.loads(text)
    assert {row["kind"] for row in rows} == {*KINDS, "Task", "Attempt", "Metric", "Checkpoint"}
    assert {verb for row in rows for verb in row["verbs"]} <= set(VERBS)
    _, names, _ = fleetctl("api-resources", "-o", "name")
    assert names.split() == [row["name"] for row in rows]

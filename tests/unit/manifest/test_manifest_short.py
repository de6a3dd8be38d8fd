"""The short form of a manifest: the same object as the full one, and messages at the lines that its
author wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import pytest

from fleetctl.manifest import Document, Manifest, ManifestErrors, load_manifests
from fleetctl.manifest.document.short import expand_document, shorten_manifest
from fleetctl.manifest.rendering.references import OPENING
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.manifest.yaml.reader import read_yaml
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, dump_spec

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted(
    path.relative_to(ROOT)
    for folder in ("specs/examples", "docs/examples", "fleetctl/cli/learn/starters")
    for path in (ROOT / folder).rglob("*.yaml")
)
FULL = f"apiVersion: {API_VERSION}\n"


def loaded(text: str, directory: Path = ROOT) -> list[Manifest]:
    return load_manifests([Document("job.yaml", text, str(directory))])


def problems(text: str) -> list[str]:
    with pytest.raises(ManifestErrors) as raised:
        loaded(text)
    return [str(it) for it in raised.value.problems]


def manifests_in(path: Path) -> list[dict[str, object]]:
    roots = read_yaml(str(path), (ROOT / path).read_text(encoding="utf-8")).roots
    values = [root.value for root in roots if isinstance(root.value, dict)]
    return [it for it in values if it.get("kind") in KINDS and it.get("apiVersion") == API_VERSION]


def outcome(text: str, directory: Path) -> object:
    """The stored objects; of an example whose directories a user brings, the values it lacks."""
    try:
        found = loaded(text, directory)
    except ManifestErrors as error:
        return [it.message.partition(" is ")[2] for it in error.problems]
    return [(it.key, it.metadata, dump_spec(it.spec)) for it in found]


@pytest.mark.parametrize("path", EXAMPLES, ids=str)
def test_an_example_is_the_same_object_in_both_forms(path: Path) -> None:
    for value in manifests_in(path):
        short = shorten_manifest(deepcopy(value))
        assert "apiVersion" not in short
        again = expand_document(read_yaml("short.yaml", to_yaml(short)).roots[0].value)
        assert again.findings == []
        assert again.value == value
        if OPENING not in to_yaml(value):
            directory = (ROOT / path).parent
            assert outcome(to_yaml(short), directory) == outcome(to_yaml(value), directory)


PAGE = ROOT / "docs/reference/short-form.md"
JOBS = (
    "a program over the lines of a file", "a training on 8 GPUs with a secret", "a sweep",
    "two nodes", "a program every night", "a batch of prompts", "a grid over a CSV", "a W&B file",
)  # fmt: skip


def test_the_words_of_other_tools_and_ours_are_as_the_page_counts_them() -> None:
    text = PAGE.read_text(encoding="utf-8")
    body = text[text.index("## The same job") :]
    counts = [len(it.split()) for it in re.findall(r"```\w+\n(.*?)```", body, re.DOTALL)]
    rows = re.findall(r"\| (\d+) \| [^|]+ \| (\d+) \|", body)
    assert all(f"| {job}" in body for job in JOBS)
    assert [(int(theirs), int(ours)) for theirs, ours in rows] == list(
        zip(counts[::2], counts[1::2], strict=True)
    )
    assert all(int(ours) <= 1.3 * int(theirs) for theirs, ours in rows)


def test_the_short_manifests_of_the_page_are_valid(tmp_path: Path) -> None:
    (tmp_path / "pages.csv").write_text("page\n1\n")
    (tmp_path / "requirements.txt").write_text("six\n")
    page = PAGE.read_text(encoding="utf-8")
    texts = re.findall(r"(?:```yaml|<< END)\n(kind:.*?)(?:```|END)", page, re.DOTALL)
    assert len(texts) >= 5
    for text in texts:
        assert loaded(text, tmp_path)


def test_all_examples_have_a_manifest_to_compare() -> None:
    assert sum(len(manifests_in(path)) for path in EXAMPLES) > 80


def test_levels_that_can_be_one_thing_alone_may_be_left_out() -> None:
    (short,) = loaded(
        "kind: BatchJob\nname: ocr\nparallelism: 50\nplacement: modal\n"
        "tasks: {items: [{page: 1}]}\nsource: .\nimage: python:3.12\n"
        'volumes: ["pages:/pages"]\nscript: python ocr.py "$TASK_PAGE"\n'
    )
    (full,) = loaded(
        FULL + "kind: BatchJob\nmetadata: {name: ocr}\nspec:\n  parallelism: 50\n"
        "  placement: {provider: modal}\n  tasks: {items: [{page: 1}]}\n  template:\n"
        "    source: {path: .}\n    image: {registry: 'python:3.12'}\n"
        "    volumes: [{name: pages, mountPath: /pages}]\n"
        '    script: python ocr.py "$TASK_PAGE"\n'
    )
    assert (short.metadata, short.spec) == (full.metadata, full.spec)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("source: ./src", "path", "./src"),
        ("source: https://git.example/team/code.git", "git", "https://git.example/team/code.git"),
        ("source: git@git.example:team/code.git", "git", "git@git.example:team/code.git"),
    ],
)
def test_a_bare_source_is_a_directory_or_a_repository(text: str, field: str, value: str) -> None:
    full = expand_document(
        read_yaml("job.yaml", f"kind: BatchJob\nname: x\n{text}\n").roots[0].value
    )
    source = full.value["spec"]["template"]["source"]
    assert source == {field: {"url": value} if field == "git" else value}


def test_a_schedule_on_work_makes_a_schedule_of_it() -> None:
    (short,) = loaded(
        "kind: BatchJob\nname: nightly\nmetadata: {labels: {team: a}}\n"
        'schedule: "0 3 * * *"\ncommand: [python, eval.py]\n'
    )
    assert (short.kind, short.name, short.metadata.labels) == ("Schedule", "nightly", {"team": "a"})
    made = short.made()
    assert made is not None
    assert made.spec.model_dump()["template"]["command"] == ("python", "eval.py")


def test_a_secret_named_by_a_variable_is_made_once() -> None:
    job = "kind: BatchJob\nname: {}\nsecrets: [{{env: HF_TOKEN}}]\ncommand: [env]\n"
    manifests = loaded("---\n".join(job.format(name) for name in ("a", "b")))
    assert [it.key for it in manifests] == ["batchjob/a", "secret/env-hf-token", "batchjob/b"]
    assert manifests[1].spec.model_dump()["from_env"] == ("HF_TOKEN",)
    assert all(it.spec.model_dump()["template"]["secrets"] == ("env-hf-token",) for it in (
        manifests[0], manifests[2]
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("parallelism: four\ncommand: [a]", "job.yaml:3:14: parallelism is `four`"),
        ("command: [a]\nresources: {gpu: T4, cpus: 2}", "job.yaml:4:22: resources.cpus is an"),
        ("command: [a]\nplacement: Modal!", "job.yaml:4:12: placement is `Modal!`"),
        ("command: [a]\nsource: 5", "job.yaml:4:9: source is `5`"),
        ("command: [a]\ncolour: red", "job.yaml:4:1: colour is an unknown field"),
        ("command: [a]\nmetdata: {}", "job.yaml:4:1: metdata is an unknown field"),
        ("command: [a]\nsecrets: [{env: 5}]", "job.yaml:4:11: secrets[0] is"),
        ("command: [a]\nsecrets: [{env: a-b}]", "job.yaml:4:17: secrets[0].env is `a-b`"),
        ("command: [a]\nmetadata: {name: y}", "job.yaml:2:1: name is given twice"),
        ("command: [a]\ntemplate: {command: [b]}", "job.yaml:3:1: command is given twice"),
        ("command: [a]\nschedule: hourly", "job.yaml:4:11: schedule is `hourly`"),
        ("command: [a]\nspec: {}", "job.yaml:3:1: command is an unknown field"),
    ],
)
def test_a_message_stands_at_the_line_that_was_written(text: str, problem: str) -> None:
    found = problems(f"kind: BatchJob\nname: x\n{text}\n")
    assert any(it.startswith(problem) for it in found), found


def test_a_message_about_any_field_of_an_example_stands_at_its_line() -> None:
    known: set[object] = set()
    refused = 0
    for path in EXAMPLES:
        for value in manifests_in(path):
            for leaf in leaves_of(value):
                field = (value["kind"], *(it for it in leaf if isinstance(it, str)))
                if field in known or leaf[0] in ("apiVersion", "kind"):
                    continue
                known.add(field)
                wrong = with_leaf(value, leaf, WRONG)
                if not is_found_at_its_line(to_yaml(wrong), path):
                    continue  # any text is right there
                refused += 1
                short = to_yaml(shorten_manifest(deepcopy(wrong)))
                assert is_found_at_its_line(short, path), short
    assert refused > 150


WRONG = "zz wrong"  # in place of a value


def is_found_at_its_line(text: str, path: Path) -> bool:
    """Returns whether a message about the wrong value stands at its line."""
    try:
        loaded(text, (ROOT / path).parent)
    except ManifestErrors as error:
        lines = text.splitlines()
        return any(it.line and WRONG in lines[it.line - 1] for it in error.problems)
    return False


def leaves_of(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yields the paths of all values that are neither mappings nor lists."""
    if isinstance(value, dict):
        for key, it in value.items():
            yield from leaves_of(it, (*path, key))
    elif isinstance(value, list):
        for number, it in enumerate(value):
            yield from leaves_of(it, (*path, number))
    else:
        yield path


def with_leaf(value: dict[str, object], path: tuple[str | int, ...], leaf: str) -> dict[str, Any]:
    changed: Any = deepcopy(value)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = leaf
    return cast(dict[str, Any], changed)


def test_a_field_that_could_be_two_is_refused_with_both() -> None:
    (found,) = problems(
        "kind: Sweep\nname: x\nmetrics: [loss]\npython: pass\n"
        "search: {method: grid, parameters: {a: {values: [1]}}}\n"
    )
    assert "metrics could be `spec.metrics` or `spec.template.metrics`" in found


def test_values_of_variables_come_into_the_short_form() -> None:
    text = (
        "kind: Variables\nvariables: {where: {type: string, default: local}}\n---\n"
        'kind: BatchJob\nname: x\nplacement: "${{ where }}"\ncommand: [a]\n'
    )
    (job,) = loaded(FULL + text)
    assert job.spec.model_dump()["placement"]["provider"] == "local"


def test_a_file_without_a_kind_is_still_no_manifest() -> None:
    (found,) = problems("name: x\ncommand: [a]\n")
    assert "is not a manifest" in found


def test_the_full_form_is_left_as_it_is() -> None:
    value = {"apiVersion": API_VERSION, "kind": "BatchJob", "metadata": {"name": "x"}, "spec": {}}
    full = expand_document(value)
    assert full.value is value
    assert full.written_at == {}

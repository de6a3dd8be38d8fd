"""Messages about short files: a mistake that is planted into each field stands where it was
written, a text with two meanings is refused with both, and a field at a wrong level is led to the
right one.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.manifest.document.short import shorten_manifest
from fleetctl.manifest.problems import ManifestProblem
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.manifest.yaml.reader import read_yaml
from fleetctl.specs.kinds.registry import API_VERSION, KINDS

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "specs/examples"
WORK = {"BatchJob": "command: [a]", "TrainingRun": "command: [a]",
        "Sweep": "search: {method: grid, program: a, parameters: {x: {values: [1]}}}"}  # fmt: skip
MISTAKE = {"plantedMistake": 1}
# Below these a mapping is a value like any other.
FREE = ("items", "matrix", "params", "env", "labels", "annotations", "value", "values", "schema",
        "prices", "plantedMistake")  # fmt: skip


def problems(text: str, directory: Path = EXAMPLES) -> tuple[ManifestProblem, ...]:
    with pytest.raises(ManifestErrors) as raised:
        load_manifests([Document("job.yaml", text, str(directory))])
    return raised.value.problems


def short_examples() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(EXAMPLES.rglob("*.yaml")):
        for root in read_yaml(str(path), path.read_text(encoding="utf-8")).roots:
            value = root.value if isinstance(root.value, dict) else {}
            if value.get("kind") in KINDS and value.get("apiVersion") == API_VERSION:
                found.setdefault(value["kind"], []).append(shorten_manifest(deepcopy(value)))
    return found


def paths_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if path and path[-1] in FREE:
        return
    entries = enumerate(value) if isinstance(value, list) else ()
    for key, inner in value.items() if isinstance(value, dict) else entries:
        yield from paths_in(inner, (*path, key))


def planted(value: dict[str, Any], path: tuple[str | int, ...]) -> str:
    changed = deepcopy(value)
    here: Any = changed
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = MISTAKE
    return to_yaml(changed)


@pytest.mark.parametrize("kind", sorted(short_examples()))
def test_a_planted_mistake_stands_where_it_was_written(kind: str) -> None:
    seen: set[tuple[str, ...]] = set()
    for value in short_examples()[kind]:
        for path in paths_in(value):
            names = tuple(it for it in path if isinstance(it, str))
            if names in seen or path == ("kind",) or path[-1] in FREE:
                continue
            seen.add(names)
            text = planted(value, path)
            wanted = frozenset(path[:depth] for depth in range(1, len(path) + 1))
            inner = (*path, "plantedMistake")
            (root,) = read_yaml("job.yaml", text, wanted=wanted | {inner}).roots
            marks = (root.keys, root.values)
            # The form of a search's parameter is refused as a whole.
            parameter = path[: path.index("parameters") + 2] if "parameters" in path else path
            right = {at[it] for at in marks for it in (path, inner, parameter) if it in at}
            found = problems(text)
            assert any((it.line, it.column) in right for it in found), (path, text, found)
            assert "spec" in value or not any(it.message.startswith("spec") for it in found), found
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("line", "first", "second"),
    [
        ("source: github.com/team/code", "`./github.com/team/code`", "`https://github.com/te"),
        ("source: git.example:team/code", '`{path: "git.example', '`{git: {url: "git.example'),
        ("source: me@git.example:team/code", '`{path: "me@git', '`{git: {url: "me@git'),
        ('image: "3.12"', '`{python: "3.12"}`', '`{registry: "3.12"}`'),
        ("image: requirements.txt", "`{requirements: requirements.txt}`", "`{registry: "),
        ("image: docker/Dockerfile", "`{apt: [...], run: [...]}`", "`{registry: "),
        ('volumes: ["data:/data:ro"]', "mountPath: /data, readOnly: true", '"/data:ro"'),
        ("secrets: [HF_TOKEN]", "`{env: HF_TOKEN}`", "the name of a Secret"),
        ("placement: [modal, local]", "`{ordered: [{provider: modal}", "`anyOf`"),
    ],
)
def test_a_text_with_two_meanings_is_refused_with_both(line: str, first: str, second: str) -> None:
    found = problems(f"kind: BatchJob\nname: x\ncommand: [a]\n{line}\n")
    (at,) = [it for it in found if it.line == 4]
    said = f"{at.message}; {at.hint}"
    assert first in said and second in said, said


@pytest.mark.parametrize(
    "line",
    ["source: ./src", "source: a/b", "source: https://h.example/a/b.git",
     "source: git@h.example:a/b", "source: ssh://h.example/a", "image: python:3.12",
     "image: ghcr.io/team/image:1", 'volumes: ["data:/data"]', "placement: local"],
)  # fmt: skip
def test_a_text_with_one_meaning_is_taken(line: str, tmp_path: Path) -> None:
    for name in ("src", "a/b"):
        (tmp_path / name).mkdir(parents=True)
    text = f"kind: BatchJob\nname: x\ncommand: [a]\n{line}\n"
    assert load_manifests([Document("job.yaml", text, str(tmp_path))])


@pytest.mark.parametrize("kind", list(WORK))
@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("parallel: 4", "parallel is an unknown field", "did you mean `parallelism`?"),
        ("gpus: 1", "gpus is an unknown field", "did you mean `resources.gpu`?"),
        ("cpu: 4", "cpu is an unknown field", "did you mean `resources.cpu`?"),
        ("pip: [six]", "pip is an unknown field", "did you mean `image.pip`?"),
        ("timeout: 1h", "timeout is an unknown field", "did you mean `timeoutSeconds`?"),
        ("env: [TOKEN=secret]", "env: each entry", "write `{TOKEN: ...}`"),
        ("labels: {a: b}", "labels is an unknown field", "write it in `metadata: {labels: ...}`"),
        ("on: modal", "on is an unknown field", "did you mean `placement`?"),
        ("schedule: 3", "schedule is `3`; it must be", 'write `schedule: "0 3 * * *"`'),
        ("schedule: {cron: 0 4 * * *}", "schedule is a map", 'write `schedule: "0 4 * * *"`'),
        ("schedule: hourly", "schedule is `hourly`", 'such as `"0 3 * * *"`'),
        ("resources: {gpu: 1}", "resources.gpu is `1`", "write `any:1`"),
        ("resources: A100", "resources is `A100`", "write `{gpu: A100}`"),
        ("secrets: {HF_TOKEN: abc}", "secrets is a mapping", "write `[{env: HF_TOKEN}]`"),
        ("volumes: {/data: data}", "volumes is a mapping", "write `[data:/data]`"),
    ],
)
def test_a_field_in_the_form_of_another_tool_is_led_to_ours(
    kind: str, line: str, message: str, hint: str
) -> None:
    found = problems(f"kind: {kind}\nname: x\n{WORK[kind]}\n{line}\n")
    (at,) = [it for it in found if it.line == 4]
    assert at.message.startswith(message) and at.hint.startswith(hint), at


@pytest.mark.parametrize(
    ("kind", "line", "hint"),
    [
        ("BatchJob", "tasks: 3", "write `completions: 3` in its place"),
        ("BatchJob", "tasks: rows.csv", "write `{fromFile: rows.csv}`"),
        ("BatchJob", "retries: 3", "did you mean `backoffLimitPerIndex`?"),
        ("Sweep", "retries: 3", "did you mean `backoffLimitPerIndex`?"),
        ("TrainingRun", "retries: 3", "did you mean `maxRestarts`?"),
        ("BatchJob", "nodes: 2", "`kind: TrainingRun` has it"),
        ("BatchJob", "trials: 2", "`kind: Sweep` has it"),
        ("Sweep", "tasks: 3", "`kind: BatchJob` has it"),
        ("TrainingRun", "completions: 3", "`kind: BatchJob` has it"),
    ],
)
def test_a_field_of_a_kind_is_led_to_its_name_or_to_the_kind_that_has_it(
    kind: str, line: str, hint: str
) -> None:
    found = problems(f"kind: {kind}\nname: x\n{WORK[kind]}\n{line}\n")
    assert [it.hint for it in found if it.line == 4] == [hint]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("parallelism: 2", "1:1: the document: a template needs exactly one of `python`,"),
        ("scrpt: echo hi", "3:1: scrpt is an unknown field\nhint: did you mean `script`?"),
        ("command: [a]\nimge: x", "4:1: imge is an unknown field\nhint: did you mean `image`?"),
    ],
)
def test_a_short_file_hears_of_its_program_and_not_of_a_level_that_it_lacks(
    text: str, said: str
) -> None:
    with pytest.raises(ManifestErrors) as caught:
        load_manifests([Document("job.yaml", f"kind: BatchJob\nname: one\n{text}\n", ".")])
    assert str(caught.value).startswith(f"job.yaml:{said}")

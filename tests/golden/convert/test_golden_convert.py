"""Files as people have them, and the manifests and warnings that come of them.

`NAME.in.yaml` begins with its format; `NAME.out.txt` holds the manifests, then the warnings.
After a wanted change: `FLEETCTL_GOLDEN=write pytest tests/golden/convert`, then read the diff.
"""

from __future__ import annotations

import io
import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from fleetctl.cli.learn.convert import FORMATS
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.manifest import read_documents
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.loader import load_manifests
from fleetctl.specs.kinds.registry import KINDS
from tests.docs.fleet import EXAMPLES

HERE = Path(__file__).parent
INPUTS = sorted(HERE.glob("*.in.yaml"))
# A few hundred bytes whose anchors stand for ten million values.
BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in pairwise("abcdefg")
)
FORMATS_MIN = 3  # inputs of each format


def format_of(path: Path) -> str:
    return next(name for name in FORMATS if path.name.startswith(f"{name}-"))


def converted(*words: str) -> tuple[int, str, str]:
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(["convert", *words], Screen(out, talk))
    return code, out.getvalue(), talk.getvalue()


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name.removesuffix(".in.yaml"))
def test_a_file_becomes_these_manifests_and_these_warnings(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE)
    code, manifests, warnings = converted("--from", format_of(path), path.name)
    assert code == 0, warnings
    played = manifests + "".join(f"2> {line}\n" for line in warnings.splitlines())
    golden = HERE / path.name.replace(".in.yaml", ".out.txt")
    if os.environ.get("FLEETCTL_GOLDEN") == "write":
        golden.write_text(played, encoding="utf-8")
    assert played == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: path.name.removesuffix(".in.yaml"))
def test_what_comes_out_is_valid_and_the_same_as_json(path: Path) -> None:
    _, text, _ = converted("--from", format_of(path), str(path))
    from_yaml = load_manifests([Document("-", text, str(HERE))])
    _, text, _ = converted("--from", format_of(path), str(path), "-o", "json")
    many = json.loads(text)
    documents = many if isinstance(many, list) else [many]
    from_json = load_manifests([Document("-", json.dumps(one), str(HERE)) for one in documents])
    assert [(m.kind, m.name, m.spec) for m in from_yaml] == [
        (m.kind, m.name, m.spec) for m in from_json
    ]


def test_every_format_is_tried_with_several_files() -> None:
    for name in FORMATS:
        assert sum(path.name.startswith(f"{name}-") for path in INPUTS) >= FORMATS_MIN, name


def test_no_value_of_a_secret_is_shown() -> None:
    _, text, said = converted("--from", "skypilot", str(HERE / "skypilot-train.in.yaml"))
    assert "hf_do_not_show_me" not in text + said


@pytest.mark.parametrize(
    ("name", "text", "field", "word"),
    [
        ("wandb", "{method: bayes, run_cap: 3, metric: {name: x}, program: a.py,"
         " parameters: {a: {values: [1, 2]}}}", "method: bayes", "method"),
        ("wandb", "{method: grid, program: a.py, early_terminate: {type: hyperband, min_iter: 3},"
         " metric: {name: x}, parameters: {a: {values: [1]}}}", "early_terminate:", "early_"),
        ("skypilot", "{num_nodes: 2, run: x}", "nodes: 2", "nodes"),
        ("dstack", "{type: task, nodes: 2, commands: [x]}", "nodes: 2", "nodes"),
    ],
)  # fmt: skip
def test_a_field_is_carried_over_or_told_as_the_loader_takes_it(
    tmp_path: Path, name: str, text: str, field: str, word: str
) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    code, out, talk = converted("--from", name, str(path))
    assert code == 0
    told = any(
        f"spec.search.{word}`" in line or f"spec.{word}`" in line for line in talk.splitlines()
    )
    assert (field in out) != told


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("wandb", "a: 1", "not a W&B sweep"),
        ("wandb", "", "nothing of `wandb`"),
        ("wandb", "a: [", "the `[` is not closed"),
        ("dstack", "a: [", "this is not YAML"),
        ("wandb", "- a", "not a mapping"),
        ("k8s-job", "kind: Deployment\nmetadata: {name: x}\n", "a `Deployment` is left out"),
        ("k8s-job", "kind: Job\nspec: {template: {spec: {containers: [{}]}}}", "ENTRYPOINT"),
        ("k8s-job", "kind: Job\n", "no container"),
        ("skypilot", "setup: x\n", "`run` is missing"),
        ("dstack", "type: service\n", "not batch work"),
        ("dstack", "type: task\nimage: x\n", "no `commands`"),
        ("dstack", BOMB, "more than 200,000 values"),
    ],
)  # fmt: skip
def test_a_file_of_which_nothing_can_be_made_is_an_error(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    code, out, talk = converted("--from", name, str(path))
    assert (code, out) == (2, "") and said in talk


def test_a_file_that_is_not_there_is_not_found() -> None:
    assert converted("--from", "wandb", "nowhere.yaml")[0] == 4
    assert converted("--from", "wandb", ".")[0] == 2
    assert converted("--from", "slurm", "x")[0] == 2


def test_to_a_cluster_a_manifest_goes_as_it_is_but_for_its_metadata() -> None:
    """Of those that name no file, which a cluster does not have."""
    gone = 0
    for path in sorted(EXAMPLES.glob("*.yaml")):
        code, out, talk = converted("--to", "kubernetes", str(path), "--namespace", "team")
        assert code == 0, path.name
        if talk:
            continue
        before = load_manifests(read_documents([str(path)]))
        after = load_manifests([Document("cluster.yaml", out, str(EXAMPLES))])
        assert [(it.kind, it.name, it.spec) for it in after] == [
            (it.kind, it.name, it.spec) for it in before
        ], path.name
        assert all(it.namespace == "team" for it in after if KINDS[it.kind].namespaced), path.name
        gone += 1
    assert gone >= 20

"""What a person reads who validates a file that could never work: every case of wrong.txt.

Each is answered by the whole command, over a store that holds a few objects and a machine with one
GPU, without any account. To add a case, write its title and files there and run this file as a
program; then read the answer: where it is, what it is, what would be right, and what to do.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetctl.apply.write.commit import apply_manifests
from fleetctl.cli.main import run_guarded
from fleetctl.cli.output.screen import Screen
from fleetctl.common.clock import SystemClock
from fleetctl.manifest import Document, load_manifests
from fleetctl.wiring.account_registry import open_store
from tests.golden.manifest.test_manifest_messages import completed

CASES = Path(__file__).with_name("wrong.txt")
CASES_MIN = 60
TITLE, SAYS = "=== ", "--- says"
THERE = """
apiVersion: fleetctl.dev/v1alpha1
kind: Secret
metadata: {name: wandb-key}
spec: {fromFile: {WANDB_API_KEY: /dev/null}}
---
apiVersion: fleetctl.dev/v1alpha1
kind: Secret
metadata: {name: kept}
spec: {fromProvider: hf}
---
apiVersion: fleetctl.dev/v1alpha1
kind: Function
metadata: {name: embedder}
spec: {}
"""
ABSENT = ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN", "UNSET")


@dataclass(frozen=True)
class Case:
    title: str
    manifest: str
    says: str


def cases() -> Iterator[Case]:
    for block in CASES.read_text(encoding="utf-8").split("\n" + TITLE)[1:]:
        title, _, rest = block.partition("\n")
        manifest, _, says = rest.partition("\n" + SAYS)
        yield Case(title, manifest, says.strip("\n"))


def build(home: Path) -> None:
    home.mkdir(parents=True, mode=0o700)
    store = open_store(home, SystemClock())
    apply_manifests(store, load_manifests([Document("there.yaml", THERE, "/")]), 1000.0)
    store.close()


def answer(case: Case) -> str:
    Path("job.yaml").write_text(completed(case.manifest), encoding="utf-8")
    out, talk = io.StringIO(), io.StringIO()
    code = run_guarded(["validate", "-f", "job.yaml"], Screen(out, talk))
    return f"{out.getvalue()}{talk.getvalue()}exit {code}".replace(str(Path.cwd()), "$PWD")


def world(home: Path, here: Path) -> dict[str, str]:
    here.joinpath("rows.csv").write_text("a,b\n1,2\n3\n", encoding="utf-8")
    return {
        "FLEETCTL_HOME": str(home),
        "FLEETCTL_LOCAL_GPUS": "T4",
        "MODAL_CONFIG_PATH": str(here / "none.toml"),
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("refusals") / "home"
    build(place)
    return place


@pytest.mark.parametrize("case", list(cases()), ids=lambda it: it.title)
def test_a_wrong_file_is_answered_word_for_word(
    case: Case, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ABSENT:
        monkeypatch.delenv(name, raising=False)
    for name, value in world(home, tmp_path).items():
        monkeypatch.setenv(name, value)
    assert answer(case) == case.says


def test_there_are_enough_cases_and_each_is_refused_or_warned_about() -> None:
    found = list(cases())
    assert len(found) >= CASES_MIN
    assert len({case.title for case in found}) == len(found)
    for case in found:
        assert case.says.endswith("exit 2") or "warning: " in case.says, case.title
        assert "job.yaml" in case.says or "rows.csv" in case.says, case.title


def test_a_machine_without_any_gpu_may_get_one_later(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in (world(home, tmp_path) | {"FLEETCTL_LOCAL_GPUS": ""}).items():
        monkeypatch.setenv(name, value)
    said = answer(Case("", "spec: {template: {script: x, resources: {gpu: any}}}", ""))
    assert "spec.template.resources.gpu: needs 1 x any, this machine has 0" in said
    assert "`--allow-missing` stores it all the same" in said


def _fill_in() -> None:
    head = CASES.read_text(encoding="utf-8").split("\n" + TITLE)[0]
    known = list(cases())
    for name in ABSENT:
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory() as text:
        place = Path(text).resolve()
        build(place / "home")
        place.joinpath("here").mkdir()
        os.chdir(place / "here")
        os.environ.update(world(place / "home", place / "here"))
        blocks = [f"\n{TITLE}{it.title}\n{it.manifest}\n{SAYS}\n{answer(it)}\n" for it in known]
    CASES.write_text(head + "".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    _fill_in()

"""The example for SkyRL: valid, planned for Modal stage by stage, and changed by `--set`."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.cli.apply.overrides import with_fields
from fleetctl.cli.apply.runs.run_manifest import with_command
from fleetctl.common.errors import UsageError
from fleetctl.manifest import load_manifests
from fleetctl.manifest.files.documents import Document
from fleetctl.specs.blocks.nodes import ray_of
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from tests.unit.planning.test_planning_report import planned

EXAMPLE = Path(__file__).parents[3] / "specs" / "examples" / "skyrl" / "skyrl.yaml"


@pytest.fixture
def document(tmp_path: Path) -> Document:
    """Beside a checkout."""
    (tmp_path / "SkyRL" / "skyrl-train").mkdir(parents=True)
    (tmp_path / "SkyRL" / "skyrl-train" / "pyproject.toml").write_text("")
    return Document("skyrl.yaml", EXAMPLE.read_text("utf-8"), str(tmp_path))


def test_the_data_is_prepared_without_the_gpus_that_train(
    document: Document, tmp_path: Path
) -> None:
    manifests = load_manifests([document])
    found = {it.key: it for it in planned(tmp_path / "home", *manifests).objects}
    work = found["trainingrun/gsm8k"].work
    assert work is not None and found["volume/skyrl-data"].action == "create"
    parts = [(it.name, it.judged.provider, it.gpu) for it in work.places]
    assert parts == [("data", "modal", ""), ("train", "modal", "L4:1")]
    assert all(it.judged.fits for it in work.places)
    spec = manifests[1].spec
    assert isinstance(spec, TrainingRunSpec)
    assert [ray_of(spec.template_of(at)).enabled for at in (0, 1)] == [False, True]


def test_set_gives_fields_otherwise_this_once(document: Document) -> None:
    fields = ["template.resources.gpu=A100:4", "spec.stages[1].script=nvidia-smi", "maxRestarts=5"]
    [changed] = with_fields([document], fields)
    secret, run = load_manifests([changed])
    assert isinstance(run.spec, TrainingRunSpec) and secret.name == "wandb"
    train = run.spec.template_of(1)
    assert (str(train.resources.gpu), train.script) == ("A100:4", "nvidia-smi")
    assert run.spec.max_restarts == 5
    assert with_fields([document], []) == [document]


@pytest.mark.parametrize(
    ("field", "said"),
    [("gpu", "`gpu` is not FIELD=VALUE"), ("stages[7].script=x", "`stages` has 2 entries")],
)
def test_set_refuses_what_is_no_field(document: Document, field: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("[", r"\[")):
        with_fields([document], [field])


def test_set_needs_an_object_that_does_work() -> None:
    text = "apiVersion: fleetctl.dev/v1alpha1\nkind: Volume\nmetadata: {name: v}\n"
    with pytest.raises(UsageError, match="there is none in these files"):
        with_fields([Document("v.yaml", text, "/")], ["maxRestarts=1"])


def test_a_run_has_the_environment_of_a_stage_and_another_command(document: Document) -> None:
    made, key = with_command([document], ["nvidia-smi", "-L"], "train")
    secret, run = load_manifests(made)
    assert (secret.kind, run.key) == ("Secret", key)
    assert key.startswith("trainingrun/gsm8k-run-") and isinstance(run.spec, TrainingRunSpec)
    template = run.spec.template_of(0)
    assert (template.command, template.script) == (("nvidia-smi", "-L"), None)
    assert (str(template.resources.gpu), template.secrets) == ("L4:1", ("wandb",))
    assert ray_of(template).enabled and run.spec.providers() == ("modal",)
    assert (run.spec.stages, run.spec.checkpoint, run.spec.max_restarts) == ((), None, 0)
    [_, data] = load_manifests(with_command([document], ["ls"], "data")[0])
    assert isinstance(data.spec, TrainingRunSpec)
    of_data = data.spec.template_of(0)
    assert (of_data.resources.gpu, of_data.secrets) == (None, ())


def test_a_run_needs_one_object_and_a_stage_that_is_there(document: Document) -> None:
    with pytest.raises(UsageError, match="there is no stage `tarin` in this file"):
        with_command([document], ["ls"], "tarin")
    with pytest.raises(UsageError, match="one object that does work; here are 2"):
        with_command([document, document], ["ls"], None)

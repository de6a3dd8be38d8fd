"""Which checkpoints of each framework are complete, and which only look it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.guest.checkpoints.disk import Disk
from fleetctl.guest.checkpoints.formats import FORMAT_NAMES, find_damaged, format_of, list_unknown
from fleetctl.specs.blocks.checkpoint import Checkpoint
from tests.unit.guest.checkpoints.directories import own, torch_file, write

WHOLE = torch_file(300)
CASES = {
    "huggingface": (
        {
            "checkpoint-10/trainer_state.json": '{"global_step": 10, "loss": NaN}',
            "checkpoint-20/trainer_state.json": '{"global_ste',
            "checkpoint-30/model.safetensors": "x",
            "checkpoint-40/trainer_state.json": "{}",
            "checkpoint-40/checkpoint-is-incomplete.txt": "",
            "checkpoint-99/": "",
            "runs/": "",
        },
        {10: "", 20: "not whole", 30: "missing", 40: "incomplete", 99: "missing"},
    ),
    "lightning": (
        {
            "epoch=0-step=100.ckpt": torch_file(100),
            "epoch=1-step=200.ckpt": torch_file(200)[:-30],
            "last.ckpt": WHOLE,
            "last-v1.ckpt": "",
        },
        {100: "", 200: "ends too soon", 300: "", None: "empty"},
    ),
    "dcp": (
        {
            "step-10/.metadata": "x",
            "step-10/__0_0.distcp": "x",
            "step-20/__0_0.distcp": "x",
            "step-20/.metadata.tmp": "x",
        },
        {10: "", 20: "missing"},
    ),
    "orbax": (
        {
            "10/_CHECKPOINT_METADATA": "{}",
            "20/commit_success.txt": "",
            "30/": "",
            "40.orbax-checkpoint-tmp-7/x": "",
        },
        {10: "", 20: "", 30: "missing", 40: "never renamed"},
    ),
    "deepspeed": (
        {
            "global_step10/mp_rank_00_model_states.pt": "x",
            "global_step20/mp_rank_00_model_states.pt": "x",
            "latest": "global_step10",
        },
        {10: "", 20: "does not name it"},
    ),
    "megatron": (
        {
            "iter_0000010/mp_rank_00/model_optim_rng.pt": "x",
            "iter_0000020/mp_rank_00/model_optim_rng.pt": "x",
            "latest_checkpointed_iteration.txt": "10",
        },
        {10: "", 20: "does not name it"},
    ),
    "skyrl": (
        {
            "global_step_4/trainer_state.pt": "x",
            "global_step_4/data.pt": "x",
            "global_step_8/trainer_state.pt": "x",
            "latest_ckpt_global_step.txt": "8",
        },
        {4: "", 8: "`data.pt` is missing"},
    ),
    "ray-train": (
        {
            "checkpoint_000001/x": "",
            "checkpoint_000002/x": "",
            "checkpoint_manager_snapshot.json": '{"dir": "checkpoint_000001"}',
        },
        {1: "", 2: "does not name it"},
    ),
    "fleetctl": (
        {
            "step-00000005/_COMPLETE.json": '{"files": {"a": [1, null]}}',
            "step-00000005/a": "1",
            "step-00000010/_COMPLETE.json": '{"files": {"a": [2, null]}}',
            "step-00000010/a": "1",
            "step-00000015/_COMPLETE.json": '{"files": {"a": [1, null], "b/c": [1, null]}}',
            "step-00000015/a": "1",
            "step-00000020/_COMPLETE.json": "[]",
            "step-00000025/a": "1",
        },
        {5: "", 10: "has 1 bytes", 15: "`b/c` is missing", 20: "not whole", 25: "is missing"},
    ),
}


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_each_format_is_told_by_what_lies_there(name: str, tmp_path: Path) -> None:
    files, wanted = CASES[name]
    write(tmp_path, dict(files))
    disk = Disk(str(tmp_path))
    kind = format_of(disk)
    assert kind is not None and kind.name == name
    found = {one.step: one for one in kind.find(disk)}
    assert set(found) == set(wanted)
    for step, problem in wanted.items():
        assert problem in found[step].problem
        assert found[step].complete is (problem == "")


def test_the_spec_names_the_same_formats() -> None:
    assert [*Checkpoint.model_json_schema()["properties"]["format"]["enum"]] == [
        "auto", *FORMAT_NAMES, "none",
    ]  # fmt: skip


def test_verl_and_skyrl_are_told_apart_by_their_trackers(tmp_path: Path) -> None:
    write(tmp_path, {"global_step_5/actor/x": "", "latest_checkpointed_iteration.txt": "5"})
    kind = format_of(Disk(str(tmp_path)))
    assert kind is not None and (kind.name, kind.find(Disk(str(tmp_path)))[0].problem) == (
        "megatron", "",
    )  # fmt: skip


def test_an_empty_directory_and_strange_files_are_no_format(tmp_path: Path) -> None:
    assert format_of(Disk(str(tmp_path / "missing"))) is None
    write(tmp_path, {"README": "", "logs/": ""})
    assert format_of(Disk(str(tmp_path))) is None


@pytest.mark.parametrize("name", ["checkpoint-20", "step-20", "20", "epoch=1-step=20.ckpt"])
def test_a_format_is_believed_where_a_complete_checkpoint_of_it_is(
    name: str, tmp_path: Path
) -> None:
    """Names are shared by programs that mark nothing."""
    inside = name if name.endswith(".ckpt") else f"{name}/model.safetensors"
    write(tmp_path, {inside: "weights"})
    disk = Disk(str(tmp_path))
    assert (format_of(disk), list_unknown(disk)) == (None, [name])
    assert format_of(disk, "none") is None


def test_a_hash_that_is_another_one_is_damage(tmp_path: Path) -> None:
    own(tmp_path, 5)
    own(tmp_path, 10, said="weighty")
    disk = Disk(str(tmp_path))
    assert find_damaged(disk, "step-00000005", whole=False) == ""
    assert "SHA-256" in find_damaged(disk, "step-00000010", whole=False)

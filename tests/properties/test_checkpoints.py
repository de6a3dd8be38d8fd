"""In a directory of checkpoints of any layout, known or not, no byte is lost between attempts."""

from __future__ import annotations

import errno
import os
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.guest.checkpoints.disk import NAME, Disk, notebook_of
from fleetctl.guest.checkpoints.formats import ASIDE, FORMAT_NAMES
from fleetctl.guest.checkpoints.prepare import Missing, prepare_checkpoint
from fleetctl.guest.checkpoints.watch import Watch
from fleetctl.guest.journal.record import Journal
from tests.unit.guest.checkpoints.directories import torch_file, write

OWNER = "uid-1"
STEPS = st.sampled_from([1, 2, 3, 10, 300])
NAMES = (
    "checkpoint-{}/", "step-{}/", "step-{:08d}/", "{}/", "{}.orbax-checkpoint-tmp-7/",
    "global_step{}/", "global_step_{}/", "iter_{:07d}/", "checkpoint_{:06d}/",
    "epoch=0-step={}.ckpt", "model-{}.ckpt", "last.ckpt", "weights_{}.pt", "epoch-{}/deep/er/",
    ".incomplete-checkpoint-{}/", ".stepped-back-step-{:08d}/", "state{}.npz",
)  # fmt: skip
INSIDE = {
    "model.safetensors": "w", "optimizer.bin": "o", "random_states_0.pkl": "r",
    "trainer_state.json": "{}", ".metadata": "m", "__0_0.distcp": "d", "commit_success.txt": "",
    "_CHECKPOINT_METADATA": "{}", "_COMPLETE.json": '{"files": {}}', "data.pt": "d",
    "trainer_state.pt": "t", "checkpoint-is-incomplete.txt": "",
}  # fmt: skip
TRACKERS = (
    "latest", "latest_checkpointed_iteration.txt", "latest_ckpt_global_step.txt",
    "checkpoint_manager_snapshot.json", "README",
)  # fmt: skip


@st.composite
def directories(draw: st.DrawFn) -> dict[str, bytes | str]:
    """Files by path, each with a text of its own, unless a format reads it."""
    files: dict[str, bytes | str] = {}
    for number in range(draw(st.integers(0, 6))):
        name, step = draw(st.sampled_from(NAMES)).format(draw(STEPS)), draw(STEPS)
        if not name.endswith("/"):
            whole = torch_file(step)
            files[name] = whole[: -draw(st.integers(1, 40))] if draw(st.booleans()) else whole
            continue
        files[name] = ""
        for one in draw(st.lists(st.sampled_from(sorted(INSIDE)), max_size=3, unique=True)):
            files[name + one] = INSIDE[one] if INSIDE[one][:1] in ("{", "") else f"{one} {number}"
    for tracker in draw(st.lists(st.sampled_from(TRACKERS), max_size=2, unique=True)):
        files[tracker] = draw(st.sampled_from(["{}", "global_step{}", "checkpoint_{:06d}"])).format(
            draw(STEPS)
        )
    return files


ASKED = st.fixed_dictionaries(
    {
        "format": st.sampled_from(["auto", "auto", "none", *FORMAT_NAMES]),
        "verify": st.sampled_from(["Fast", "Full"]),
        "resume": st.sampled_from(["Latest", "Latest", "None", "step:10"]),
        "below": st.none() | STEPS,
        "anew": st.booleans(),
        "owner": st.sampled_from([OWNER, "uid-2"]),
        "keep": st.none(),
    }
)


def contents(top: Path) -> Counter[bytes]:
    """How often each content is there, whatever its name; a link is not followed."""
    return Counter(
        path.read_bytes() for path in top.rglob("*") if path.is_file() and path.name != NAME
    )


def tops(files: dict[str, bytes | str]) -> set[str]:
    return {path.partition("/")[0] for path in files}


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def attempt(top: Path, runs: Path, asked: dict[str, Any], wrote: dict[str, bytes | str]) -> None:
    """One attempt: what is there is looked at, the program writes, and is killed."""
    disk = Disk(str(top))
    directory = os.open(runs, os.O_RDONLY)
    journal = Journal(directory, f"run-{len(os.listdir(runs))}")
    os.close(directory)
    with closing(journal):
        watch = Watch(asked, disk, path="/c", commit=None, say=lambda _: None)
        try:
            prepare_checkpoint(asked, disk)
        except Missing:
            return
        watch.take(journal, whole=True)
        taken = set(os.listdir(top))
        write(top, {path: it for path, it in wrote.items() if path.partition("/")[0] not in taken})
        watch.take(journal, whole=True)


@settings(max_examples=100, deadline=None)
@given(
    directories(),
    st.lists(st.tuples(ASKED, directories()), min_size=1, max_size=4),
    st.booleans(),
)
def test_no_byte_of_a_directory_is_lost_whatever_lies_there(
    there: dict[str, bytes | str],
    attempts: list[tuple[dict[str, Any], dict[str, bytes | str]]],
    renames: bool,
) -> None:
    with (
        tempfile.TemporaryDirectory() as made,
        mock.patch.object(os, "rename", os.rename if renames else refuse),
    ):
        top, runs = Path(made, "ckpt"), Path(made, "runs")
        top.mkdir()
        runs.mkdir()
        write(top, there)
        for asked, wrote in attempts:
            before = contents(top)
            seen = notebook_of(Disk(str(top)), asked["owner"]).writing
            names = set(os.listdir(top))
            attempt(top, runs, asked, wrote)
            assert not before - contents(top)
            fresh = set(os.listdir(top)) - names
            aside = {name for name in fresh if name.startswith(ASIDE)} - tops(wrote)
            assert all(any(ASIDE + one in name for one in seen) for name in aside)
            assert renames or names - {NAME} <= set(os.listdir(top))

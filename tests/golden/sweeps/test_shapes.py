"""39 sweep files as they are found in public repositories, in shape: W&B takes 35 of them and so do
we, unchanged; the 4 others are refused for its reason. Of grids every point and every command line
is known.
"""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

import pytest

from fleetctl.controllers.kinds.sweep import SweepController
from fleetctl.manifest import Document, ManifestErrors, load_manifests
from fleetctl.specs.kinds.sweep import SweepSpec
from tests.golden.sweeps.shapes import shapes
from tests.golden.sweeps.test_oracle import POINTS, TAKEN

MANIFEST = """apiVersion: fleetctl.dev/v1alpha1
kind: Sweep
metadata: {name: x}
spec: {searchFrom: {file: sweep.yaml}, trials: 8}
"""

# What W&B says of each, and what we say of the same.
REFUSED = {
    "shape 7": (
        "Invalid configuration for hyperparameter 'step_limit'",
        "parameters.step_limit is `3e5`; it must be a mapping; for a constant write "
        "`step_limit: {value: 300000.0}`",
    ),
    "shape 29": ("min 0.5 is not less than max 0.05", "must be less than `max`, which is `0.05`"),
    "shape 38": (
        "rate uses log_uniform, where min/max specify base-e exponents",
        "its bounds are exponents of e, which is deprecated; use `log_uniform_values`",
    ),
    "shape 39": ("Additional properties are not allowed", "prior_runs is an unknown field"),
}


def sweep(directory: Path, name: str) -> SweepSpec:
    (directory / "sweep.yaml").write_text(shapes()[name].text)
    (manifest,) = load_manifests([Document("x.yaml", MANIFEST, str(directory))])
    assert isinstance(manifest.spec, SweepSpec)
    return manifest.spec


@pytest.mark.parametrize("name", shapes())
def test_a_sweep_file_is_taken_or_refused_as_by_wandb(tmp_path: Path, name: str) -> None:
    assert TAKEN[name] == shapes()[name].valid
    if name not in REFUSED:
        spec = sweep(tmp_path, name)
        assert shapes()[name].valid and spec.search.parameters
        return
    with pytest.raises(ManifestErrors) as caught:
        sweep(tmp_path, name)
    assert REFUSED[name][1] in str(caught.value)
    assert str(caught.value).startswith("sweep.yaml:")


def test_the_shapes_are_those_of_the_files_that_were_surveyed() -> None:
    """sweeps.md §1: what 39 real files had in common."""
    found = [it.search for it in shapes().values()]
    assert Counter(it["method"] for it in found) == {"grid": 16, "random": 9, "bayes": 14}
    assert sum(it.valid for it in shapes().values()) == 35
    assert sum("early_terminate" in it for it in found) == 9
    assert sum("run_cap" not in it for it in found if it["method"] != "grid") == 22
    assert sum("/" in it.get("metric", {}).get("name", "") for it in found) == 17
    bare = [it for it in found if "command" in it and "${args" not in str(it["command"])]
    assert len(bare) == 12
    assert sum("!!float" in it.text for it in shapes().values()) == 1


# The words of the first trial and of the last, as a shell would be told them, by W&B's rules:
# values are Python's `str`.
TAKES = ("/usr/bin/env", "python", "classify.py")
ASKS = "/usr/bin/env python fit.py"  # such a program asks wandb.init
LINES: dict[str, tuple[str, str]] = {
    "shape 1": (f"{ASKS} --quiet --task Glide-v2 --sweep",) * 2,
    "shape 2": (f"{ASKS} --task Glide-v2",) * 2,
    "shape 3": (f"{ASKS} --task Glide-v2",) * 2,
    "shape 4": (f"{ASKS} --task Glide-v2 --max-steps 4000",) * 2,
    "shape 5": (ASKS, ASKS),
    "shape 6": (f"{ASKS} --task Glide-v2",) * 2,
    "shape 12": (
        "/usr/bin/env python classify.py --lr=0.02 --width=8",
        "/usr/bin/env python classify.py --lr=0.2 --width=24",
    ),
    "shape 13": (
        "/usr/bin/env python3 classify.py decay=0 optim=sgd",
        "/usr/bin/env python3 classify.py decay=0.001 optim=adamw",
    ),
    "shape 14": (
        shlex.join([*TAKES, "--lr=0.01", "--model={'depth': 2, 'width': 32}"]),
        shlex.join([*TAKES, "--lr=0.1", "--model={'depth': 6, 'width': 32}"]),
    ),
    "shape 15": (
        "/usr/bin/env python '-m app.fit' ++data.name=leaves ++optim.lr=0.003 ++trainer.epochs=3",
        "/usr/bin/env python '-m app.fit' ++data.name=leaves ++optim.lr=0.03 ++trainer.epochs=3",
    ),
    "shape 16": (
        "/usr/bin/env python classify.py --augment --half",
        "/usr/bin/env python classify.py --half",
    ),
    "shape 17": (
        "/usr/bin/env python classify.py --fold 1 --size 3000000.0",
        "/usr/bin/env python classify.py --fold 3 --size 3000000.0",
    ),
    "shape 18": (
        "/usr/bin/env torchrun --nproc_per_node 2 classify.py --seed=0",
        "/usr/bin/env torchrun --nproc_per_node 2 classify.py --seed=1",
    ),
    "shape 19": (
        '/usr/bin/env python classify.py --config \'{"mix": {"a": 1}}\'',
        '/usr/bin/env python classify.py --config \'{"mix": {"a": 2, "b": ["x"]}}\'',
    ),
    "shape 20": (
        "/usr/bin/env python classify.py --drop=0.0 --rank=2",
        "/usr/bin/env python classify.py --drop=0.4 --rank=4",
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_each_trial_of_a_grid_has_its_command_line(tmp_path: Path, name: str) -> None:
    spec = sweep(tmp_path, name)
    whole = spec.model_copy(update={"trials": None})
    trials = SweepController(whole, {})
    assert trials.total == len(POINTS[name])
    lines = [shlex.join(trials.template(index).command or ()) for index in range(trials.total)]
    assert (lines[0], lines[-1]) == LINES[name]


def test_every_grid_that_is_taken_is_held() -> None:
    grids = {name for name, it in shapes().items() if it.search["method"] == "grid" and it.valid}
    assert grids == set(LINES) == {name for name in POINTS if name.startswith("shape")}

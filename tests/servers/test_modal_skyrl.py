"""The example for SkyRL as it stands, at the emulated Modal: a checkout of its shape, with
stand-ins for `uv` and for Ray, prepares its data, trains in a Ray cluster, is killed and goes on.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.docs.fleet import EXAMPLES, Fleet
from tests.emulators.modal.running import ModalEmulator

STANDIN = Path(__file__).parents[1] / "training" / "standin"
FILES = {
    "bin/uv": '#!/bin/sh\nshift\nexec python3 "$@"\n',
    "skyrl-gym/pyproject.toml": "",
    "skyrl-train/pyproject.toml": "",
    "skyrl-train/examples/gsm8k/gsm8k_dataset.py": """
import os, sys
assert "WANDB_API_KEY" not in os.environ
os.makedirs(sys.argv[2], exist_ok=True)
open(sys.argv[2] + "/train.parquet", "w").write("7 x 6")
""",
    "skyrl-train/examples/gsm8k/run_generation_gsm8k.sh": """
set -e
[ -d skyrl-gym ] && [ -n "$WANDB_API_KEY" ] && cat /home/ray/data/gsm8k/train.parquet
exec python3 -c '
import os, ray
ray.init()
at = "/root/data/ckpts/"
began = os.environ.get("FLEETCTL_RESUME_STEP", "0")
print("", len(ray.nodes()), "node, from", began, flush=True)
if began == "0":
    os.makedirs(at + "global_step_4")
    for name in ("trainer_state.pt", "data.pt"):
        open(at + "global_step_4/" + name, "w").close()
    open(at + "latest_ckpt_global_step.txt", "w").write("4")
    os.kill(os.getpid(), 9)
'
""",
}


def test_the_example_prepares_trains_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "skyrl" / "skyrl.yaml", tmp_path / "skyrl.yaml")
    checkout = tmp_path / "SkyRL"
    for name, text in FILES.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    for one in STANDIN.iterdir():
        if one.is_file():
            shutil.copy(one, checkout / "bin")
    (checkout / "bin" / "uv").chmod(0o755)
    with ModalEmulator(tmp_path / "service") as emulator:
        fleet = Fleet(tmp_path / "home", {**emulator.env, "WANDB_API_KEY": "k"})
        try:
            file = str(tmp_path / "skyrl.yaml")
            # In the image of the example they are on the path; and no GPU is there to wait for.
            path = "PATH=/root/SkyRL/bin:/usr/local/bin:/usr/bin:/bin"
            added = [f"template.env.{it}" for it in (path, "PYTHONPATH=/root/SkyRL/bin")]
            fields = [word for it in added for word in ("--set", it)]
            shown = fleet.ok("apply", "-f", file, *fields, "--wait", "--logs", "--timeout", "5m")
            assert "7 x 6 1 node, from 0\n" in shown and "7 x 6 1 node, from 4\n" in shown
            data, train = fleet.results("tr/gsm8k")
            assert (data["attempts"], train["attempts"]) == (1, 2)
            saved = fleet.ok("get", "checkpoints", "tr/gsm8k")
            assert "/root/data/ckpts/global_step_4" in saved
            gpus = [one["gpu"] for one in emulator.state()["sandboxes"]]
            assert len(gpus) == 3 and not gpus[0] and all("L4" in str(one) for one in gpus[1:])
        finally:
            fleet.close()
        assert emulator.live() == []

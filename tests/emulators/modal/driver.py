"""The GPU driver of a container, as far as anybody asks it here: `nvidia-smi` with the names of
what the container has. Called for every container that has some.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from .gpus import parse

PLACE = "/usr/bin/nvidia-smi"
# As NVIDIA's own program prints them.
NAMES = {
    "T4": "Tesla T4",
    "L4": "NVIDIA L4",
    "A10": "NVIDIA A10G",
    "L40S": "NVIDIA L40S",
    "A100-40GB": "NVIDIA A100-SXM4-40GB",
    "A100-80GB": "NVIDIA A100-SXM4-80GB",
    "RTX-PRO-6000": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "H100": "NVIDIA H100 80GB HBM3",
    "H200": "NVIDIA H200",
    "B200": "NVIDIA B200",
    "B300": "NVIDIA B300 SXM6 AC",
    "ANY": "Tesla T4",
}


def driver(directory: Path, gpu: str) -> dict[str, Path]:
    """What a box has of it, for a label such as `A100:4`; nothing for an empty one."""
    if not gpu:
        return {}
    kind, count = parse(gpu)
    path = directory / "driver" / f"{kind}-{count}"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        names = " ".join([shlex.quote(NAMES[kind])] * count)
        building = path.with_suffix(".building")
        building.write_text(f"#!/bin/sh\nprintf '%s\\n' {names}\n", encoding="utf-8")
        building.chmod(0o755)
        building.rename(path)
    return {PLACE: path}

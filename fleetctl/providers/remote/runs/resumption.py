"""Finds out whether the checkpoint that `checkpoint.resume` names can be there, before a machine is
paid for. Used by providers that can list a volume without one; pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from fleetctl.common.errors import Refused
from fleetctl.guest.checkpoints.begin import place_of
from fleetctl.providers.contract.base import RunRequest

UNTOLD = ".ckpt"  # files that may keep their step inside


class WantedCheckpoint(NamedTuple):
    """path: of the directory of checkpoints, from the top of the volume, without a `/` before."""

    volume: str
    path: str
    step: int


def wanted_checkpoint(request: RunRequest) -> WantedCheckpoint | None:
    """Returns the checkpoint to list; None where the run takes any checkpoint or starts without, or
    it may come from a mirror.
    """
    asked = request.checkpoint
    if asked is None or asked.mirror or not asked.resume.startswith("step:"):
        return None
    volumes = [
        {"mount": one.mount_path, "links": one.links, "root": f"{one.name}:"}
        for one in request.template.volumes
    ]
    volume, _, path = place_of(asked.path, volumes).partition(":")
    if volume.startswith("/"):  # it is on no volume
        return None
    return WantedCheckpoint(volume, path.strip("/"), int(asked.resume.removeprefix("step:")))


def refuse_what_is_missing(asked: WantedCheckpoint, names: Collection[str]) -> None:
    """names: of what is in the directory. Whether a checkpoint is complete is seen when it is begun
    from. Raises Refused.
    """
    steps = {
        int(digits)
        for name in names
        if not name.startswith(".")
        for digits in re.findall(r"[0-9]+", name)
    }
    if asked.step in steps or any(name.endswith(UNTOLD) for name in names):
        return
    there = ", ".join(map(str, sorted(steps)[-5:])) or "none"
    raise Refused(
        f"`checkpoint.resume` is `step:{asked.step}`, and volume/{asked.volume} has no such"
        f" checkpoint; the newest are: {there}",
        hint="name a step that is there, or `Latest`",
    )

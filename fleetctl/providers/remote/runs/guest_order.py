"""Builds the order for the guest of a remote sandbox, with the checkpoint to resume from, and
separates a task's time limit from a sandbox's age.

Values of secrets are not in the order: they travel in the environment of the guest's `attach`. A
provider ends every sandbox at some age; the guest ends a run before that, as if at a time limit of
its own, and such an end is no failure of the run.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from fleetctl.common.errors import Refused
from fleetctl.controllers.history.retry_limits import MAKE_IT_FIT, MAX_LIFETIME
from fleetctl.controllers.model import Ended, Observation
from fleetctl.guest.checkpoints.begin import place_of
from fleetctl.providers.contract.base import InputFile, MountedFile, RunRequest
from fleetctl.providers.contract.terms import outputs_order
from fleetctl.providers.paths import journal_path
from fleetctl.providers.remote.runs.segments import LOG_BYTES_MAX
from fleetctl.specs.blocks.nodes import ray_job_of, ray_of
from fleetctl.specs.blocks.template import VolumeMount
from fleetctl.specs.values.namespaces import own_name

LINGER_S = 120.0  # of an idle sandbox whose provider does not end it
RAY_PORT, RAY_CLIENT_PORT, RAY_DASHBOARD_PORT = 6379, 10001, 8265  # Ray's own choice
# The largest total of the files of a task: they are a part of its order, which is held in memory
# until it has begun.
INPUTS_BYTES_MAX = 8 * 1024 * 1024
SYNC_S = 60.0  # between commits of volumes while a task runs
RELAY_BASE = "http://relay.invalid"
_RELAY = {"base": RELAY_BASE, "token": "OPENAI_API_KEY"}  # see guest/remote/relay/keeper.py

TASK_S_MIN = 1.0
END_S = 60.0  # after its grace, to commit, to report and to be released
# In the identity that a run's first journal line carries.
MARK = "ends_with_sandbox"
_LINE_BYTES_MAX = 4096

UNTOLD = ".ckpt"  # files that may keep their step inside


@dataclass(frozen=True, slots=True)
class SandboxContext:
    """A provider's knowledge of the sandbox that the run goes to.

    setup: commands to run once a sandbox; source: the directory of the code; syncs: whether writes
        to volumes must be committed; left_s: seconds of the sandbox's life that are left for the
        task; note: a note for users about the sandbox.
    """

    handle: str
    setup: Sequence[Sequence[str]] = ()
    source: str | None = None
    syncs: bool = False
    left_s: float | None = None
    note: str = ""


def secrets_of(request: RunRequest) -> dict[str, str]:
    """Returns the secrets, with the variables by which programs find the run's endpoints: the guest
    puts its listener's own address instead of RELAY_BASE.
    """
    access = request.endpoints
    return {**request.secrets, **(access.variables(RELAY_BASE) if access is not None else {})}


def guest_order(request: RunRequest, place: SandboxContext) -> dict[str, object]:
    """The order as the guest reads it; see guest/remote/run/attempt.py."""
    template = request.template
    asked_s = template.timeout_seconds
    left_s = place.left_s
    by_age = left_s is not None and (asked_s is None or left_s < asked_s)
    writable = [it.mount_path for it in template.volumes if not it.read_only]
    return {
        "run": request.run,
        "index": request.index,
        "attempt": request.attempt,
        "mode": "python" if template.python is not None else "exec",
        "code": template.python,
        "argv": request.arguments(),
        "params": dict(request.params),
        "files": [_file_order(it) for it in request.files],
        "env": {**template.env, **request.variables},
        "secret_names": sorted(secrets_of(request)),
        "masked": request.masked(),
        "relay": _RELAY if request.endpoints is not None else None,
        "wandb": request.wandb.order() if request.wandb is not None else None,
        "metrics": request.followed(),
        "services": request.services(),
        "outputs": outputs_order(template),
        **request.training(),
        "timeout_s": left_s if by_age else asked_s,
        "grace_s": template.termination_grace_period_seconds,
        "workdir": template.workdir,
        "volumes": [_volume_order(mount) for mount in template.volumes],
        "source": {"dir": place.source} if place.source is not None else None,
        "setup": [list(argv) for argv in place.setup],
        "sync": writable if place.syncs else [],
        "sync_s": SYNC_S if place.syncs and writable else None,
        "reusable": request.reusable,
        "log_bytes_max": LOG_BYTES_MAX,
        "ray": _ray_order(request),
        "ray_job": ray_job_of(template, request.own_names, request.unit),
        "samples": template.resources.gpu is not None,
        "linger_s": LINGER_S,
        "memory": template.sandbox_resources.memory,
        "identity": {
            "keeper": place.handle,
            "note": place.note,
            **({MARK: True} if by_age else {}),
        },
    }


def _ray_order(request: RunRequest) -> dict[str, object] | None:
    """Returns the order for a Ray cluster on a single node, in a sandbox whose network is its own;
    see guest/nodes/ray.py. Raises Refused.
    """
    template, asked = request.template, ray_of(request.template)
    if not asked.enabled or asked.address is not None:
        return None
    if template.python is not None:
        raise Refused(
            "`ray` goes with `command` or `script` at this provider, and the work is `python`",
            hint="start Ray in it: `ray.init()`",
        )
    gpu = template.resources.gpu
    cpu = template.resources.cpu
    return {
        "rank": 0,
        "addresses": ["127.0.0.1"],
        "port": asked.port or RAY_PORT,
        "client_port": RAY_CLIENT_PORT,
        "dashboard_port": RAY_DASHBOARD_PORT if asked.dashboard else None,
        "gpus": gpu.count if gpu is not None else 0,
        "cpus": math.ceil(cpu) if cpu else None,
        "memory": asked.object_store_memory,
        "temp": "/tmp/ray",  # Ray wants at most 45 bytes
    }


def _file_order(it: InputFile | MountedFile) -> dict[str, object]:
    if isinstance(it, MountedFile):
        return {"mount": it.mount, "path": it.path}
    return {"name": it.name, "b64": base64.b64encode(it.path.read_bytes()).decode()}


def _volume_order(mount: VolumeMount) -> dict[str, object]:
    name = own_name(mount.name)
    variable = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).upper()
    return {
        "name": name,
        "mount": os.path.normpath(mount.mount_path),
        "links": [os.path.normpath(link) for link in mount.links],
        "read_only": mount.read_only,
        "variable": f"FLEETCTL_VOLUME_{variable}",
    }


def work_s(
    left_s: float,
    *,
    leave_s: float,
    grace_s: float,
) -> float:
    """Returns how long a task may work in a sandbox that lives for `left_s` more: it is asked to
    end, has its whole grace, and its story is sent before that. leave_s: seconds that are kept for
    the end anyway.
    """
    return max(TASK_S_MIN, left_s - max(leave_s, grace_s + min(END_S, leave_s)))


def mark_expired(seen: Observation, runs: Path) -> Observation:
    """A run that its sandbox's age ended is not a failure of its own: another attempt follows."""
    if not isinstance(seen, Ended) or seen.ok or seen.reason != "Timeout":
        return seen
    if not _has_mark(journal_path(runs, seen.run)):
        return seen
    return replace(
        seen,
        infrastructure=True,
        reason=MAX_LIFETIME,
        message="its sandbox was as old as it may be",
        hint=MAKE_IT_FIT,
    )


def _has_mark(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(_LINE_BYTES_MAX)
    try:
        return json.loads(first).get(MARK) is True
    except ValueError:
        return False


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
    """Refuses a step that the directory of checkpoints does not have. names: of what is in the
    directory. Whether a checkpoint is complete is seen when it is begun from. Raises Refused.
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

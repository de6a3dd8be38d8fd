"""Builds the order for the guest of a remote sandbox. Called by providers; reads the files of the
task, which are small, and nothing else.

Values of secrets are not in it: they travel in the environment of the guest's `attach`.
"""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.base import InputFile, MountedFile, RunRequest
from fleetctl.providers.contract.output_limits import outputs_order
from fleetctl.providers.remote.runs.lifetimes import MARK
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

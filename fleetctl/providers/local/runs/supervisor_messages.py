"""Builds the messages for a supervisor: its config (once, no secrets) and each order. Called by the
provider; starts no process.
"""

from __future__ import annotations

import ast
import json
import math
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from fleetctl.common.program import tree_of
from fleetctl.guest.ship.assemble import guest_source
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.contract.orphans import work_mark, work_of
from fleetctl.providers.contract.output_limits import outputs_order
from fleetctl.providers.local.assets.envs import EnvPython
from fleetctl.providers.local.local_layout import LocalLayout
from fleetctl.providers.paths import make_private
from fleetctl.specs.blocks.nodes import procs_of, ray_job_of, ray_of
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.values.hashing import params_hash
from fleetctl.specs.values.namespaces import own_name

LOG_BYTES_MAX = 64 * 1024 * 1024
PROCESSES_MAX = 4096  # for one run; more is taken for a fork bomb
SANDBOX_IDLE_S = 120.0
# Above the limit on the tree's sum, so that this one only stops what grows faster than it is looked
# at.
DATA_HEADROOM_BYTES = 256 * 1024 * 1024
CPU_HEADROOM_S = 60


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """The parts that have to be made before the supervisor can start."""

    python: EnvPython  # of the image
    source: str | None  # a directory with the code, copied for each sandbox
    source_name: str


def supervisor_config(
    layout: LocalLayout,
    request: RunRequest,
    prepared: PreparedRun,
    *,
    tier: str,
) -> dict[str, Any]:
    """Returns the config of a supervisor, sent once, before its first order."""
    template = request.template
    return {
        "owner": request.owner,
        "resource": request.resource,
        "home": str(layout.home),
        "runs_dir": str(layout.runs(request.uid)),
        "work_dir": str(layout.work(request.uid)),
        "top": str(layout.tree),
        "expose": [
            *prepared.python.expose,
            *([prepared.source] if prepared.source else []),
            str(layout.inputs(request.uid)),
        ],
        "tier": tier,
        "mode": "python" if template.python is not None else "exec",
        "code": template.python,
        "preimport": _preimport_names(template),
        "env": _task_environment(template, prepared.python),
        "volumes": [_volume_config(layout, mount) for mount in template.volumes],
        "source": _source_config(template, prepared),
        "per_run_mounts": bool(template.source and template.source.mount_path),
        "workdir": template.workdir,
        "limits": _resource_limits(template),
        "log_bytes_max": int(os.environ.get("FLEETCTL_LOCAL_LOG_BYTES_MAX", LOG_BYTES_MAX)),
        "sandbox_idle_s": SANDBOX_IDLE_S,
    }


def mark_of(request: RunRequest) -> str:
    """Returns the journal's mark of the work; "" where another object takes part in its hash, which
    may change between two calls for one run.
    """
    if request.function is not None or request.template.function is not None:
        return ""
    return work_mark(request.template_hash, params_hash(request.params))


def start_message(
    request: RunRequest,
    gpus: dict[int, str],
    nodes: int,
    files: list[dict[str, str]],
) -> dict[str, Any]:
    """Returns a run's order, with all values that may change while the supervisor lives. gpus: of
    all nodes together. files: as the guest reads them; see guest/task/inputs.py.
    """
    template = request.template
    gpu = template.resources.gpu
    return {
        "op": "start",
        "run": request.run,
        "sandbox": request.sandbox,
        "index": request.index,
        "attempt": request.attempt,
        "work": work_of(request),
        "mark": mark_of(request),
        "argv": request.arguments(),  # a sweep's trials have arguments of their own
        "params": dict(request.params),
        "params_text": json.dumps(request.params),
        "files": files,
        "timeout_s": template.timeout_seconds,
        "cpu_s": _cpu_s(template),
        "grace_s": template.termination_grace_period_seconds,
        "reusable": request.reusable,
        "secrets": _secret_variables(request),
        "masked": request.masked(),
        "variables": dict(request.variables),
        "nodes": nodes,
        "procs": procs_of(template),
        "ray": _ray_config(template),
        "ray_job": ray_job_of(template, request.own_names, request.unit),
        "wandb": request.wandb.order() if request.wandb is not None else None,
        "metrics": request.followed(),
        "services": request.services(),
        "outputs": outputs_order(template),
        **request.training(),
        "gpus": list(gpus),
        # Its journal names the one that it got of a list.
        "gpu_names": list(gpus.values()) if gpu is not None and gpu.otherwise else [],
    }


def _secret_variables(request: RunRequest) -> dict[str, str]:
    """With the token of its endpoints, which it calls at the gateway's own port: no relay here."""
    access = request.endpoints
    return {**request.secrets, **(access.variables(access.base_url) if access else {})}


def _ray_config(template: Template) -> dict[str, Any] | None:
    """Returns Ray's config for the supervisor's gang; None without a cluster of our own."""
    ray = ray_of(template)
    cpu = template.resources.cpu
    if not ray.enabled or ray.address is not None:
        return None
    return {
        "port": ray.port,
        "dashboard": ray.dashboard,
        "memory": ray.object_store_memory,
        "cpus": math.ceil(cpu) if cpu else None,
    }


def _task_environment(template: Template, python: EnvPython) -> dict[str, str]:
    """Returns the task's environment without the controller's own: that holds tokens that are not
    the task's, and otherwise depends on the shell that happened to start it.
    """
    image = template.image.env if template.image else {}
    base = {**python.variables, "PYTHONUNBUFFERED": "1"}
    if template.resources.cpu is not None:
        # Numeric libraries would otherwise start a thread for each core of the machine.
        base["OMP_NUM_THREADS"] = str(max(1, math.ceil(template.resources.cpu)))
    return {**base, **image, **template.env}


def _volume_config(layout: LocalLayout, mount: Any) -> dict[str, Any]:
    name = own_name(mount.name)
    variable = "".join(c if c.isascii() and c.isalnum() else "_" for c in name).upper()
    return {
        "name": name,
        "dir": str(layout.volume(mount.name)),
        "mount_path": os.path.normpath(mount.mount_path),
        "links": [os.path.normpath(link) for link in mount.links],
        "read_only": mount.read_only,
        "variable": f"FLEETCTL_VOLUME_{variable}",
    }


def _source_config(template: Template, prepared: PreparedRun) -> dict[str, Any] | None:
    if template.source is None:
        return None
    mount_path = template.source.mount_path
    return {
        "dir": prepared.source,
        "name": prepared.source_name,
        "mount_path": os.path.normpath(mount_path) if mount_path else None,
    }


def _resource_limits(template: Template) -> dict[str, Any]:
    resources = template.resources
    memory = 0
    if resources.memory is not None:  # of all that runs there, services too
        memory = template.sandbox_resources.memory or 0
    return {
        "memory": memory,
        "data": memory + max(memory // 4, DATA_HEADROOM_BYTES) if memory else 0,
        "file": resources.disk or 0,
        "processes": PROCESSES_MAX,
    }


def _cpu_s(template: Template) -> int:
    """Returns the CPU seconds of a run, for processes that outlive the supervisor; 0 = no limit."""
    timeout_s = template.timeout_seconds
    if timeout_s is None:
        return 0
    cores = template.resources.cpu or os.cpu_count() or 1
    return math.ceil(timeout_s * max(1.0, cores)) + CPU_HEADROOM_S


def guest_file(layout: LocalLayout) -> Path:
    """The assembled guest on disk, named by its content."""
    text = guest_source()
    path = make_private(layout.guests) / f"{sha256(text.encode()).hexdigest()[:16]}.py"
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    return path


def _preimport_names(template: Template) -> list[str]:
    """Installed modules that the task's top level imports: done once in the supervisor, every task
    starts with them.

    Not with GPUs: a library that has touched one does not survive a fork. Nor where a path of the
    task's own goes before what is installed: its directories are known when a run begins.
    """
    if template.python is None or template.resources.gpu is not None:
        return []
    if "PYTHONPATH" in {**(template.image.env if template.image else {}), **template.env}:
        return []
    try:
        tree = tree_of(template.python)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return list(dict.fromkeys(names))

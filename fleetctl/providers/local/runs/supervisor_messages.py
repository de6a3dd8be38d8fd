"""Prepares all that a supervisor needs before its start, and builds its messages: its config, once
and without secrets, and each order.

Slow parts run as child processes or threads.
"""

from __future__ import annotations

import ast
import fcntl
import json
import math
import os
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from fleetctl.common.errors import Refused
from fleetctl.common.program import tree_of
from fleetctl.guest.nodes.gang import build_group_variables
from fleetctl.guest.ship.assemble import guest_source
from fleetctl.guest.supervision.processes import data_limit
from fleetctl.providers.contract.base import MountedFile, RunRequest
from fleetctl.providers.contract.orphans import work_mark, work_of
from fleetctl.providers.contract.terms import outputs_order
from fleetctl.providers.local.assets import envs, local_source
from fleetctl.providers.local.assets.envs import EnvPython
from fleetctl.providers.local.local_layout import (
    COVERING_HINT,
    LocalLayout,
    covering_mount,
    supervisor_name,
)
from fleetctl.providers.paths import make_private
from fleetctl.specs.blocks.nodes import procs_of, ray_job_of, ray_of
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.values.hashing import params_hash
from fleetctl.specs.values.namespaces import own_name

LOG_BYTES_MAX = 64 * 1024 * 1024
PROCESSES_MAX = 4096  # for one run; more is taken for a fork bomb
SANDBOX_IDLE_S = 120.0
CPU_HEADROOM_S = 60
# 127.1.0.0 and on: 127.0.0.x has the nodes of runs without groups, and services of the machine.
LOOPBACK_BLOCKS = int(IPv4Address("127.1.0.0"))
LOOPBACK_BLOCKS_COUNT = 253 * 256


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
    all nodes together. files: as the guest reads them; see guest/task/parameters.py.
    """
    template = request.template
    gpu = template.resources.gpu
    groups = _list_groups(request)
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
        "variables": {**request.variables, **(_lone_variables(groups) if nodes == 1 else {})},
        "nodes": nodes,
        "groups": groups,
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


def _list_groups(request: RunRequest) -> list[dict[str, Any]]:
    """Returns the groups of its run, as guest/nodes/gang.py reads them, its own first; empty
    without any.

    Their nodes have addresses of the loopback network, known before any of them begins: a block by
    the run, and in it 256 for each group by its index, so that another number of nodes moves no
    address. Elsewhere than on Linux the loopback has one address, and ports distinguish nodes.
    """
    if request.groups is None:
        return []
    block = int(sha256(request.uid.encode()).hexdigest()[:4], 16)
    made = []
    for group in request.groups.members:
        first = LOOPBACK_BLOCKS + 256 * ((block + group.index) % LOOPBACK_BLOCKS_COUNT)
        linux = sys.platform == "linux"
        hosts = [str(IPv4Address(first + rank)) for rank in range(group.nodes)]
        hosts = hosts if linux else ["127.0.0.1"] * group.nodes
        ports = [] if group.port is None else [group.port] * group.nodes
        ports = ports if linux else [port + rank for rank, port in enumerate(ports)]
        addresses = hosts
        if ports:
            addresses = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
        made.append({"name": group.name, "addresses": addresses, "hosts": hosts, "ports": ports})
    own = request.groups.own
    made.sort(key=lambda it: it["name"] != own)
    return made


def _lone_variables(groups: list[dict[str, Any]]) -> dict[str, str]:
    """Returns the variables of the only node of a group; empty where there are no groups."""
    if not groups:
        return {}
    return build_group_variables(groups[0], 0, groups)


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
        "data": data_limit(memory) if memory else 0,
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


async def prepare_run(
    layout: LocalLayout,
    request: RunRequest,
    *,
    tier: str,
) -> tuple[str, dict[str, Any]]:
    """Returns (interpreter of the supervisor, its config). Raises Refused or Unavailable."""
    if (hidden := covering_mount(request.template, layout.home)) is not None:
        raise Refused(hidden[1], hint=COVERING_HINT)
    for mount in request.template.volumes:
        make_private(layout.volume(mount.name))
    _spread_directory(make_private(layout.jobs))
    make_private(layout.runs(request.uid))
    make_private(layout.work(request.uid))
    make_private(layout.inputs(request.uid))
    image = await envs.python_of(layout, request.template.image, layout.job(request.uid))
    supervisor = make_private(
        layout.supervisor(supervisor_name(request.uid, request.template_hash))
    )
    source = await local_source.fetch_source(layout, request.template.source, supervisor)
    prepared = PreparedRun(
        python=image,
        source=str(source.directory) if source else None,
        source_name=source.name if source else "",
    )
    return image.python, supervisor_config(layout, request, prepared, tier=tier)


def show_inputs(layout: LocalLayout, request: RunRequest) -> list[dict[str, str]]:
    """Puts the contents of a task's files where its supervisor reads them; returns the files as the
    guest takes them. A content is linked, not copied: runs cannot write to it there.
    """
    shown = []
    for it in request.files:
        if isinstance(it, MountedFile):
            shown.append({"mount": it.mount, "path": it.path})
            continue
        here = layout.inputs(request.uid) / it.digest
        with suppress(FileExistsError):
            here.hardlink_to(it.path)
        shown.append({"name": it.name, "from": str(here)})
    return shown


def _spread_directory(directory: Path) -> None:
    """Asks ext4 to give each directory in here a part of the disk of its own (`chattr +T`).

    A directory is otherwise put beside its parent, and where many files were deleted in the last
    minutes, ext4 takes 30 times as long to make a new one. Other file systems refuse, which is
    fine.
    """
    if sys.platform != "linux":
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = struct.unpack("l", fcntl.ioctl(handle, _GET_FLAGS, struct.pack("l", 0)))[0]
        if not flags & _TOP_DIRECTORY:
            fcntl.ioctl(handle, _SET_FLAGS, struct.pack("l", flags | _TOP_DIRECTORY))
    except OSError:
        return
    finally:
        os.close(handle)


# From linux/fs.h and fs/ext4/ext4.h.
_GET_FLAGS = 0x80086601
_SET_FLAGS = 0x40086602
_TOP_DIRECTORY = 0x00020000

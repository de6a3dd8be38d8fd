"""Makes the readers of metrics beside a run on this machine: for a program that uses wandb, see
fleetctl/guest/wandb/trial.py, and for a template with `metrics`, see
fleetctl/guest/metrics/followed.py; and the watcher of its checkpoints. Called by supervise.py.
"""

from __future__ import annotations

import os
import time
from typing import Any

from fleetctl.guest.checkpoints.begin import place_of
from fleetctl.guest.checkpoints.disk import Disk
from fleetctl.guest.checkpoints.formats import NONE
from fleetctl.guest.checkpoints.mirror import mirror_of
from fleetctl.guest.checkpoints.watch import Watch
from fleetctl.guest.metrics.followed import Followed
from fleetctl.guest.supervision.gpus import Gpus
from fleetctl.guest.supervision.pace import Pace
from fleetctl.guest.wandb.trial import Trial

from ..sandbox import RunSandbox, SupervisedRun
from .concluding import start_of
from .record import PRIVATE


def follow_reports(
    config: dict[str, Any],
    sandbox: RunSandbox,
    run: SupervisedRun,
) -> None:
    """Starts the readers; to be called before the run's process is forked."""
    if run.order["wandb"]:
        run.wandb = _start_trial(config, sandbox, run.order)
        run.followers.append(run.wandb)
    if run.order["metrics"]:
        run.followers.append(_follow_metrics(config, sandbox, run))
    if run.order["gpus"]:
        run.followers.append(Gpus(run.order["gpus"]))
    if run.order.get("rank"):
        return  # node 0 looks for all nodes; others may well be silent
    if run.order.get("checkpoint") and run.order["checkpoint"]["format"] != NONE:
        asked = run.order["checkpoint"]
        disk = Disk(checkpoints_at(config, asked["path"]))
        mirror = mirror_of(run.order, disk.path, {**os.environ, **_own_variables(run.order)})
        run.checkpoints = Watch(
            asked,
            disk,
            path=asked["path"],
            commit=None,
            say=run.say,
            mirror=mirror,
        )
        run.followers.append(run.checkpoints)
    if run.order.get("progress"):
        run.pace = Pace(run.order["progress"], time.monotonic())


def _own_variables(order: dict[str, Any]) -> dict[str, str]:
    return {**order["secrets"], **order.get("variables", {})}


def checkpoints_at(config: dict[str, Any], path: str) -> str:
    """Returns the directory of checkpoints for us: on the volume that holds it."""
    roots = {one["mount"]: one["root"] for one in config["guest_volumes"]}
    volumes = [
        {"mount": one["mount_path"], "links": one["links"], "root": roots[one["mount_path"]]}
        for one in config["volumes"]
    ]
    return place_of(path, volumes)


def _start_trial(
    config: dict[str, Any],
    sandbox: RunSandbox,
    order: dict[str, Any],
) -> Trial:
    known = {**os.environ, "HOME": sandbox.work, **order["secrets"]}
    files = os.path.join(sandbox.work, PRIVATE)
    trial = Trial(order, files, known, _start_dir(config, sandbox))
    trial.begin()
    return trial


def _follow_metrics(
    config: dict[str, Any],
    sandbox: RunSandbox,
    run: SupervisedRun,
) -> Followed:
    asked = run.order["metrics"]
    source = config["source"]
    mounted = source["mount_path"] if source else None
    if mounted and asked["path"] and f"{asked['path']}/".startswith(f"{mounted}/"):
        # Only the run itself sees its source where that is mounted.
        own = os.path.join(sandbox.work, source["name"])
        asked = {**asked, "path": own + asked["path"][len(mounted) :]}
    followed = Followed(asked, _start_dir(config, sandbox), run.say)
    followed.begin()
    run.hear = followed.hear
    return followed


def _start_dir(config: dict[str, Any], sandbox: RunSandbox) -> str:
    workdir = config["workdir"] or ""
    if os.path.isabs(workdir):
        return workdir
    return start_of(config, sandbox.work)

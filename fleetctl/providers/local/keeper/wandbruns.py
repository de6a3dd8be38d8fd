"""What a run on this machine tells wandb; see fleetctl/guest/wandbtrial.py. Called by supervise.py
for the trials of a sweep that may ask wandb for their parameters.
"""

from __future__ import annotations

import os
from typing import Any

from fleetctl.guest.wandbtrial import Trial

from .concluding import start_of
from .record import PRIVATE
from .sandbox import Sandbox


def trial_of(config: dict[str, Any], sandbox: Sandbox, order: dict[str, Any]) -> Trial:
    """To be called before the run's process is forked."""
    known = {**os.environ, "HOME": sandbox.work, **order["secrets"]}
    files = os.path.join(sandbox.work, PRIVATE)
    workdir = config["workdir"] or ""
    start = workdir if os.path.isabs(workdir) else start_of(config, sandbox.work)
    trial = Trial(order, files, known, start)
    trial.begin()
    return trial

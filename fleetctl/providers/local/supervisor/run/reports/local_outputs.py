"""Keeps the outputs of runs on this machine, before their end records are written. Called by
supervise.py.

A few small files are kept at once. More of them get a process of its own, so that the supervisor
does not wait; the run's end waits for that.
"""

from __future__ import annotations

import os
from typing import Any

from fleetctl.guest.outputs.keeping import (
    KEPT_ENDINGS,
    KeepLimits,
    OutputKeeper,
    TooMuchNow,
    count_left,
)
from fleetctl.guest.outputs.pack import pack_name, read_index
from fleetctl.guest.outputs.selection import OutputPatterns

from ..sandbox import RunSandbox, SupervisedRun
from .concluding import start_of
from .record import PRIVATE


class LocalOutputs:
    """runs: the open directory of journals."""

    def __init__(self, config: dict[str, Any], runs: int) -> None:
        self._config = config
        self._runs = runs
        self._keeping: dict[int, tuple[RunSandbox, SupervisedRun]] = {}  # by pid of its keeper

    def knows(self, pid: int) -> bool:
        return pid in self._keeping

    def settle(self, sandbox: RunSandbox, run: SupervisedRun) -> bool:
        """Returns whether the outputs of an ended run are kept, or never will be. False: a process
        keeps them, and `ended` returns the sandbox when it is done.
        """
        if run.outputs is not None:
            return True
        if any(run is it for _, it in self._keeping.values()):
            return False
        if run.ending not in KEPT_ENDINGS or run.order.get("rank") or not run.began_ns:
            run.outputs = {}
        elif not run.order.get("outputs"):
            run.outputs = {"left": self._count_left(sandbox, run)}
        else:
            return self._keep(sandbox, run)
        return True

    def ended(self, pid: int) -> RunSandbox:
        """Takes the report of a keeper that has ended; returns the sandbox of its run."""
        sandbox, run = self._keeping.pop(pid)
        try:
            index = read_index(pack_name(run.name), dir_fd=self._runs)
            run.outputs = {**index, "count": len(index.pop("files"))}
        except (OSError, ValueError) as error:
            run.outputs = {"failure": f"the process that keeps them ended early ({error})"}
        return sandbox

    def _keep(self, sandbox: RunSandbox, run: SupervisedRun) -> bool:
        try:
            run.outputs = self._keeper(sandbox, run, quick=True).keep(
                self._runs, run.name, blobs=True
            )
        except TooMuchNow:
            return self._keep_beside(sandbox, run)
        except OSError as error:
            run.outputs = {"failure": str(error)}
        return True

    def _keep_beside(self, sandbox: RunSandbox, run: SupervisedRun) -> bool:
        try:
            pid = os.fork()
        except OSError as error:
            run.outputs = {"failure": str(error)}
            return True
        if pid == 0:
            code = 1
            try:
                keeper = self._keeper(sandbox, run, quick=False)
                keeper.keep(self._runs, run.name, blobs=True)
                code = 0
            finally:
                os._exit(code)
        self._keeping[pid] = (sandbox, run)
        return False

    def _keeper(
        self,
        sandbox: RunSandbox,
        run: SupervisedRun,
        *,
        quick: bool,
    ) -> OutputKeeper:
        order = run.order["outputs"]
        top = start_of(self._config, sandbox.work)
        patterns = OutputPatterns(order["patterns"])
        return OutputKeeper(
            KeepLimits(order),
            patterns,
            top,
            run.began_ns,
            quick=quick,
        )

    def _count_left(self, sandbox: RunSandbox, run: SupervisedRun) -> str:
        """Returns a sentence on what a run left in a directory that goes with it; or empty."""
        if run.order["reusable"]:
            return ""  # the next task finds the files
        if self._config["source"] is None and os.listdir(sandbox.work) == [PRIVATE]:
            return ""
        return count_left(start_of(self._config, sandbox.work), run.began_ns)

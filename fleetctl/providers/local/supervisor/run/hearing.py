"""Reads the output of a run's processes into its log, their events into its record, and makes the
readers of metrics beside it.

A task could write anything on its channel; invalid lines are dropped.
"""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Optional

from fleetctl.guest.checkpoints.begin import place_of
from fleetctl.guest.checkpoints.formats import NONE
from fleetctl.guest.wandb.trial import Trial

from ..clients import Poller
from .concluding import PRIVATE, start_of
from .sandbox import CHANNEL_LINE_BYTES_MAX, RunSandbox, SupervisedRun

READ_BYTES_MAX = 1024 * 1024
DRAIN_READS_MAX = (
    256  # reads of the last output of a run, while a process of an open sandbox goes on writing
)


class WorkerEvents:
    def __init__(
        self,
        poller: Poller,
        changed: Callable[[str], None],
        done: Callable[[RunSandbox, SupervisedRun], None],
        ready: Callable[[RunSandbox], None],
    ) -> None:
        """changed: a run reported something; done: a worker finished a run and lives on; ready: a
        node waits for the others.
        """
        self._poller = poller
        self._changed = changed
        self._done = done
        self._ready = ready

    def attend(self, sandbox: RunSandbox, run: SupervisedRun) -> None:
        """Listens to the output of a run, and to the channel of its sandbox if that is new."""
        assert run.output is not None
        os.set_blocking(run.output, False)
        self._poller.watch(run.output, self._pump, run)
        channel = sandbox.channel
        if channel is not None and not sandbox.heard:
            sandbox.heard = True
            os.set_blocking(channel, False)
            self._poller.watch(channel, self._listen, sandbox)

    def hang_up(self, sandbox: RunSandbox) -> None:
        """Closes the channel; a worker that waits for a task leaves then."""
        if sandbox.channel is not None:
            if sandbox.heard:
                self._poller.forget(sandbox.channel)
            os.close(sandbox.channel)
            sandbox.channel = None
            sandbox.heard = False
            sandbox.received = b""

    def finish(self, sandbox: RunSandbox, run: SupervisedRun) -> None:
        """Reads the last output of a finished run, then stops listening to it."""
        if sandbox.status is not None:
            for _ in range(DRAIN_READS_MAX):
                if not self._listen(sandbox):
                    break
            self.hang_up(sandbox)
        for _ in range(DRAIN_READS_MAX):
            if not self._pump(run):
                break
        self._forget_output(run)

    def _pump(self, run: SupervisedRun) -> bool:
        """Moves some output to the log; False without output now."""
        if run.output is None:
            return False
        data = _read_pipe(run.output)
        if data is None:
            return False
        if data:
            run.log.write(data)
            run.hear(data)
        else:
            self._forget_output(run)
        return bool(data)

    def _forget_output(self, run: SupervisedRun) -> None:
        if run.output is not None:
            self._poller.forget(run.output)
            os.close(run.output)
            run.output = None

    def _listen(self, sandbox: RunSandbox) -> bool:
        """Takes in some events; False without events now."""
        if sandbox.channel is None:
            return False
        data = _read_pipe(sandbox.channel)
        if data is None:
            return False
        if not data:
            self.hang_up(sandbox)
            return False
        *lines, sandbox.received = (sandbox.received + data).split(b"\n")
        for line in lines:
            self._handle_event(sandbox, line)
        if len(sandbox.received) > CHANNEL_LINE_BYTES_MAX:
            if sandbox.run is not None:
                sandbox.run.error = _TOO_LONG
            self.hang_up(sandbox)
        return True

    def _handle_event(self, sandbox: RunSandbox, line: bytes) -> None:
        run = sandbox.run
        try:
            event = json.loads(line)
            kind = event["e"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        if run is None:
            return
        if run.take_event(event):
            self._changed(run.name)
        elif kind == "began" and isinstance(event.get("ns"), int):
            run.began_ns = run.began_ns or event["ns"]
        elif kind == "ready":
            self._ready(sandbox)
        elif kind == "done" and sandbox.serves and isinstance(event.get("exit"), int):
            run.exit_code = event["exit"] & 0xFF
            self._done(sandbox, run)


def _read_pipe(handle: int) -> Optional[bytes]:
    """Returns b"" when the pipe has no writer any more, None when it is empty now."""
    try:
        return os.read(handle, READ_BYTES_MAX)
    except BlockingIOError:
        return None
    except OSError:
        return b""


_TOO_LONG = {"reason": "ResultInvalid", "message": "the task sent more than a result may hold"}


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
        run.follow_metrics(_located_metrics(config, sandbox, run), _start_dir(config, sandbox))
    if run.order["gpus"]:
        run.sample_gpus(run.order["gpus"])
    if run.order.get("rank"):
        return  # node 0 looks for all nodes; others may well be silent
    asked = run.order.get("checkpoint")
    if asked and asked["format"] != NONE:
        place = checkpoints_at(config, asked["path"])
        run.watch_checkpoints(run.order, place, lambda: _own_variables(run.order))
    if run.order.get("progress"):
        run.limit_stalls(run.order["progress"])


def _own_variables(order: dict[str, Any]) -> dict[str, str]:
    return {**os.environ, **order["secrets"], **order.get("variables", {})}


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


def _located_metrics(
    config: dict[str, Any], sandbox: RunSandbox, run: SupervisedRun
) -> dict[str, Any]:
    """Returns the run's metrics with their path as the supervisor sees it."""
    asked: dict[str, Any] = run.order["metrics"]
    source = config["source"]
    mounted = source["mount_path"] if source else None
    if mounted and asked["path"] and f"{asked['path']}/".startswith(f"{mounted}/"):
        # Only the run itself sees its source where that is mounted.
        own = os.path.join(sandbox.work, source["name"])
        return {**asked, "path": own + asked["path"][len(mounted) :]}
    return asked


def _start_dir(config: dict[str, Any], sandbox: RunSandbox) -> str:
    workdir = config["workdir"] or ""
    if os.path.isabs(workdir):
        return workdir
    return start_of(config, sandbox.work)

"""A store whose objects run on the emulated Modal, under real controllers and real commands.

Used by the tests that kill the controller, and by those that look at screens.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import FleetctlError
from fleetctl.daemon.client.socket_client import ping_controller
from tests.emulators.driving.modal import PATIENCE_S, eventually
from tests.servers.forked import Forked, run
from tests.soak.killing import Life

# The simulation plays deaths at every point of a start and an end; a real controller dies after
# replies were sent, and in `make test-all` before, too.
FURTHER_KILLS = pytest.mark.only_all(
    reason="a controller killed amid further replies of a cloud",
    of=("before", "SandboxTerminateV2"),
)
# Variables that Python or the SDK reads when it is loaded: a fork has read them before.
READ_AT_START = {"PYTHONPATH", "MODAL_CONFIG_PATH"}


@dataclass(slots=True)
class ModalLife(Life):
    """changes: to the environment of every command; None takes a variable out."""

    changes: dict[str, str | None] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        given = {**Life.env.fget(self), "HOME": str(self.root), **self.changes}  # type: ignore[attr-defined]
        return {name: value for name, value in given.items() if value is not None}

    def start(self) -> None:
        """Until it answers; otherwise the next command would start a controller of its own."""
        log = self.root / "controller.log"
        self.controller = Forked(["up"], env=self.env, streams=[Path(os.devnull), log, log])
        eventually(self.ready)

    def command(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        if READ_AT_START & {*self.changes}:
            return Life.command(self, *args, stdin=stdin)
        return run(args, env=self.env, stdin=stdin)

    def apply_job(self, template: dict[str, Any], *, name: str = "job", tasks: int = 1) -> None:
        """A BatchJob on Modal."""
        done = self.command("apply", "-f", "-", stdin=job(template, name=name, tasks=tasks))
        assert done.returncode == 0, done.stderr
        self.acknowledged.append(name)

    def restart_after(self, happened: Callable[[], Any]) -> None:
        """Kill the controller once that has happened, and start the next one."""
        eventually(happened)
        self.kill()
        self.start()

    def ready(self) -> bool:
        """Asked as the commands ask it, without a process for each time."""
        try:
            return bool((ping_controller(self.root / "home") or {}).get("ready"))
        except FleetctlError:
            return False  # it is not there yet, or just ends

    def succeed(self) -> None:
        """Until every job has."""
        names = [f"job/{name}" for name in self.acknowledged]
        done = self.command("wait", *names, "--for=finished", "--timeout", f"{PATIENCE_S:.0f}s")
        assert done.returncode == 0, done.stderr
        phases = self.phases()
        assert {name: phases[name] for name in self.acknowledged} == dict.fromkeys(
            self.acknowledged, "Succeeded"
        )


def job(template: dict[str, Any], *, name: str = "job", tasks: int = 1) -> str:
    """The manifest of a BatchJob on Modal."""
    manifest = {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "BatchJob",
        "metadata": {"name": name},
        "spec": {
            "tasks": {"completions": tasks},
            "placement": {"provider": "modal"},
            "template": template,
        },
    }
    return json.dumps(manifest)

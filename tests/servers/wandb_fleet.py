"""A store, a real engine on this machine, and a sweep at the emulated W&B, whose trials are
programs of the emulator's light sort.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetctl.engine.engine import EngineServices
from fleetctl.engine.execute.secrets import SecretValues
from fleetctl.providers.contract.base import Backend
from fleetctl.providers.local.local_provider import LocalProvider
from fleetctl.providers.remote.runs.follower import FollowPace
from fleetctl.wandb.calls import make_connector
from tests.contracts.provider_worlds import eventually
from tests.emulators.wandb.light import LIGHT
from tests.emulators.wandb.running import WandbEmulator
from tests.servers import fleets

SETTINGS = replace(fleets.BRISK, wandb_beat_s=0.05)
# Says that it has begun, waits until the file that it is given is gone, and goes on as a light one.
HELD = """
import os, runpy, sys, time
while os.path.exists({gate!r}):
    time.sleep(0.01)
sys.argv = ["light.py", *sys.argv[1:]]
runpy.run_path({light!r}, run_name="__main__")
"""
GRID: Mapping[str, Any] = {
    "method": "grid",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"lr": {"values": [1, 2, 3, 4]}},
}


class Fleet(fleets.Fleet):
    """gate: while this file is there, no trial ends."""

    name, kind = "local", "Sweep"

    def __init__(self, home: Path, emulator: WandbEmulator, *, key: str = "") -> None:
        self.emulator, self.gate = emulator, home.with_name("gate")
        self.environment = {"WANDB_API_KEY": key or emulator.api_key}
        super().__init__(home, settings=SETTINGS)
        if self.store.resources.get("Secret", "wandb") is None:
            self.apply_kind("Secret", "wandb", {"fromEnv": ["WANDB_API_KEY"]})

    def parts(self) -> dict[str, Any]:
        secrets = SecretValues(self.store, self.environment)
        return {"secrets": secrets.resolve, "outside": EngineServices(wandb=make_connector())}

    async def restart(self) -> None:
        """The controller ends wherever it is, and another one begins."""
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self.provider.close()
        self.store.close()
        self._open()

    def build(self, home: Path, pace: FollowPace) -> Backend:
        return LocalProvider(home, store_id=self.store.store_id, notify=self.told)

    def live(self) -> list[dict[str, Any]]:
        return [{"run": it.name} for it in self.runs("lr") if it.ended_at_s is None]

    def command(self) -> list[str]:
        return [sys.executable, "-c", held(self.gate), "${args}"]

    def sweep(self, search: Mapping[str, Any] | None = GRID, **spec: Any) -> None:
        """Named `lr`; two trials at once, with the search's own command."""
        own = {"project": "digits", "baseUrl": self.emulator.url, **spec.pop("wandb", {})}
        made = {} if search is None else {"search": {"command": self.command(), **search}}
        whole = {"backend": "wandb", "wandb": own, "parallelism": 2, **made, **spec}
        whole.setdefault("template", {})["secrets"] = ["wandb"]
        self.apply_kind("Sweep", "lr", whole)

    def hold(self) -> None:
        self.gate.touch()

    def let_go(self) -> None:
        self.gate.unlink(missing_ok=True)

    async def at(self, wandb: Mapping[str, Any]) -> dict[str, Any]:
        """The status once `status.wandb` has these."""

        async def has() -> bool:
            assert not self._running.done()
            found = self.status("lr").get("wandb", {})
            return all(found.get(key) == value for key, value in wandb.items())

        try:
            await eventually(has, f"W&B said {wandb}")
        except AssertionError as error:
            raise AssertionError(f"{error}; its status: {self.status('lr')}") from None
        return self.status("lr")

    async def begun(self, count: int) -> None:
        """So many trials run at once."""

        async def run() -> bool:
            return sum(it.state == "Running" for it in self.runs("lr")) >= count

        await eventually(run, f"{count} trials ran")

    @property
    def name_there(self) -> str:
        return str(self.status("lr")["wandb"]["id"])


def held(gate: Path) -> str:
    return HELD.format(gate=str(gate), light=str(LIGHT))


def handed(emulator: WandbEmulator) -> list[tuple[str, int, tuple[int, ...]]]:
    """(parameters, how many processes began it, their exit codes) of each run that there is."""
    runs = emulator.state()["runs"]
    return [(json.dumps(it["params"]), it["begun"], tuple(it["exit_codes"])) for it in runs]


def told_of(home: Path) -> bytes:
    """All that is on disk below a home."""
    files = [Path(top, name) for top, _, names in os.walk(home) for name in names]
    return b"".join(path.read_bytes() for path in files if path.is_file())

"""A store that has nothing at a cloud any more costs nothing there: its next controller does not
even import the SDK.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts import daytona_worlds, kubernetes_worlds, modal_worlds
from tests.contracts.provider_worlds import World, python

NEXT_CONTROLLER = """
import asyncio, sys
from pathlib import Path
from fleetctl.wiring.account_registry import AccountRegistry

async def sweep():
    made = AccountRegistry(Path(sys.argv[1]), store_id=sys.argv[3], notify=print).backends
    found = await made[sys.argv[2]].owned()
    for provider in made.values():
        await provider.close()
    return len(found)

print(asyncio.run(sweep()), sys.argv[2] in sys.modules)
"""


async def _swept(world: World, store_id: str, name: str) -> str:
    """How many sandboxes the next controller finds, and whether it imported the SDK."""
    arguments = [str(world.directory / "home"), name, store_id]
    reply = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", NEXT_CONTROLLER, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return reply.stdout.strip()


async def _used_and_left(world: World, store_id: str, name: str) -> None:
    try:
        ref = await world.start(python("import time; time.sleep(600)"))
        assert await _swept(world, store_id, name) == "1 True"
        await world.provider.stop(ref, grace_s=0.0)
        await world.lost(ref)
        await world.provider.remove_scratch(ref.uid, keep_logs=False)
        assert await world.provider.owned() == []  # it was there, and goes on looking
        assert await _swept(world, store_id, name) == "0 False"
    finally:
        await world.close()


@pytest.mark.only_all(reason="a store that is idle, on further clouds")
def test_a_controller_after_the_last_job_asks_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kubernetes_worlds.emulated() as emulator:
        monkeypatch.setenv("KUBECONFIG", str(emulator.kubeconfig))
        world = kubernetes_worlds.KubernetesWorld(tmp_path, emulator)
        del world.settings["namespace"]  # as no Provider object names one
        asyncio.run(_used_and_left(world, f"{world.store_id}-{world.salt}", "kubernetes"))


@pytest.mark.only_all(reason="a store that is idle, on further clouds", of=("modal",))
@pytest.mark.parametrize("name", ["modal", "daytona"])
def test_a_controller_after_the_last_job_asks_nothing(name: str, tmp_path: Path) -> None:
    if name == "modal":
        with modal_worlds.emulated() as modal:
            world = modal_worlds.ModalWorld(tmp_path, modal)
            asyncio.run(_used_and_left(world, f"{world.store_id}-{world.salt}", name))
    else:
        with daytona_worlds.emulated() as daytona:
            other = daytona_worlds.DaytonaWorld(tmp_path, daytona)
            asyncio.run(_used_and_left(other, f"{other.store_id}-{other.salt}", name))

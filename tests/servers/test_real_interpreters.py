"""A task on each cloud with interpreters that are started for it, as in the real service; elsewhere
emulators fork their own (see tests/emulators/boxes/inner/program.py).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fleetctl.controllers.model import Ended
from tests.contracts import daytona_worlds, modal_worlds
from tests.contracts.provider_worlds import World, python
from tests.emulators.boxes.nursery import COLD_VARIABLE

TASK = "import json\nprint(json.dumps(params))\nSUBMIT(total=sum(params['given']))"


async def _task_of(world: World) -> Ended:
    try:
        return await world.run(python(TASK), params={"given": [1, 2, 3]})
    finally:
        await world.close()


def test_modal_with_real_interpreters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COLD_VARIABLE, "1")
    with modal_worlds.emulated() as emulator:
        ended = asyncio.run(_task_of(modal_worlds.ModalWorld(tmp_path, emulator)))
        assert (ended.ok, ended.result) == (True, '{"total":6}')
        assert emulator.live() == []


def test_daytona_with_real_interpreters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COLD_VARIABLE, "1")
    with daytona_worlds.emulated() as emulator:
        ended = asyncio.run(_task_of(daytona_worlds.DaytonaWorld(tmp_path, emulator)))
        assert (ended.ok, ended.result) == (True, '{"total":6}')

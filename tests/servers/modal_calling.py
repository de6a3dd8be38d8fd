"""Helps the tests of runs in functions on Modal: quick looks, and the truth about calls, containers
and apps of one store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fleetctl.providers.modal.connection.modal_connection import ModalConnection
from fleetctl.providers.modal.functions.deployments import fleet_name
from fleetctl.providers.modal.functions.latches import Latches
from tests.contracts.provider_worlds import eventually
from tests.servers.modal_fleet import Fleet

QUICK_LOOKS = {"FLEETCTL_MODAL_LOOK_S": "0.2", "FLEETCTL_MODAL_CALL_WAIT_S": "0.5"}


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUICK_LOOKS.items():
        monkeypatch.setenv(name, value)


def called(code: str, **fields: Any) -> dict[str, Any]:
    """The template of a Python task that runs in a function of its own."""
    return {"python": code, "runtime": "function", **fields}


class Truth:
    """What the emulator knows of the functions of one store."""

    def __init__(self, fleet_: Fleet) -> None:
        self._emulator = fleet_.emulator
        self._latches = Latches(ModalConnection("truth"), fleet_.store.store_id)
        self._prefix = f"fleetctl-fn-{fleet_name(fleet_.store.store_id)}-"

    def apps(self, *, live: bool = True) -> list[dict[str, Any]]:
        apps = self._emulator.state()["apps"]
        mine = [one for one in apps if one["name"].startswith(self._prefix)]
        return [one for one in mine if one["state"] == "deployed" or not live]

    def latches(self, uid: str) -> int:
        """How much is kept at Modal for the runs of a resource."""
        dicts: dict[str, int] = self._emulator.state()["dicts"]
        return dicts.get(self._latches.name(uid), 0)

    def _functions(self) -> set[str]:
        ids = {one["app_id"] for one in self.apps(live=False)}
        functions = self._emulator.state()["functions"]["functions"]
        return {one["function_id"] for one in functions if one["app_id"] in ids}

    def containers(self, *, live: bool = False) -> list[dict[str, Any]]:
        mine = self._functions()
        found = self._emulator.state()["functions"]["containers"]
        return [it for it in found if it["function_id"] in mine and (it["live"] or not live)]

    def inputs(self) -> list[dict[str, Any]]:
        """One for each call that was ever made, oldest first."""
        mine = self._functions()
        calls = self._emulator.state()["functions"]["calls"]
        return [
            {**one, "call_id": call["call_id"]}
            for call in calls
            if call["function_id"] in mine
            for one in call["inputs"]
        ]


async def until(holds: Callable[[], Any], what: str) -> None:
    async def asked() -> bool:
        return bool(holds())

    await eventually(asked, what)


async def dropped(fleet_: Fleet) -> None:
    """Until nothing is stored: all that there was is confirmed gone."""
    await until(lambda: not list(fleet_.store.resources.list()), "every object was dropped")

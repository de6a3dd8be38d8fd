"""A Volume object at Daytona, through the engine: it is deleted after its last user is gone."""

from __future__ import annotations

from typing import Any

from tests.contracts.provider_worlds import eventually
from tests.servers.daytona_fleet import Fleet, Play


def test_a_volume_that_is_used_is_kept_and_deleted_after_its_last_user(on_daytona: Play) -> None:
    async def tale(fleet: Fleet) -> None:
        def volumes() -> list[dict[str, Any]]:
            found = fleet.emulator.state()["volumes"]
            return [one for one in found if one["name"] == "kept" and one["state"] != "deleted"]

        def status() -> str:
            """As it is stored, also of what is being deleted."""
            rows = fleet.store.resources.list()
            return next((str(row.status) for row in rows if row.name == "kept"), "")

        async def ready() -> bool:
            return '"phase":"Ready"' in status().replace(" ", "")

        fleet.apply_kind("Volume", "kept", {"provider": "daytona", "deletionPolicy": "Delete"})
        await eventually(ready, "the volume was ready")
        mount = {"name": "kept", "mountPath": "/data"}
        fleet.apply({"script": "echo kept >/data/a; exec sleep 600", "volumes": [mount]})

        async def runs() -> bool:
            return bool(fleet.live()) and fleet.status().get("active") == 1

        await eventually(runs, "the job ran")
        fleet.delete_kind("Volume", "kept")

        async def waits() -> bool:
            return "still used by batchjob/job" in status()

        await eventually(waits, "the volume's deletion said whom it waits for")
        assert [one["state"] for one in volumes()] == ["ready"]
        fleet.delete()
        await fleet.gone()
        await fleet.gone("kept")
        assert volumes() == []
        assert fleet.live() == []

    on_daytona(tale)

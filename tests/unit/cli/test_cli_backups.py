"""The process that makes a backup for the controller: what it wrote, or why it could not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import FleetctlError
from fleetctl.daemon.background_work import make_backup
from fleetctl.stores import backup
from fleetctl.stores.sqlite.store import open_store
from fleetctl.stores.sqlite_errors import describe_way_back


def test_a_backup_is_made_while_a_controller_holds_the_store(tmp_path: Path) -> None:
    async def story() -> None:
        home, to = tmp_path / "home", tmp_path / "copies"
        store = open_store(home, SystemClock())
        made = await make_backup(home, str(to), 2, {"SECRET": "hunter2"})
        store.close()
        assert Path(made.url).parent == to and made.bytes == Path(made.url).stat().st_size
        assert backup.read_manifest(Path(made.url)).store_id == store.store_id
        assert f"fleetctl restore {made.url}" in describe_way_back(home)

    asyncio.run(story())


def test_a_failure_is_told_in_its_own_words_with_its_hint(tmp_path: Path) -> None:
    async def story() -> None:
        open_store(tmp_path, SystemClock()).close()
        with pytest.raises(FleetctlError, match="no protocol `nowhere`") as failed:
            await make_backup(tmp_path, "nowhere://x", 2, {})
        assert "s3://bucket/backups" in failed.value.hint

    asyncio.run(story())

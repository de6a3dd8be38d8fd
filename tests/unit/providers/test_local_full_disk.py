"""A full disk: starts wait, and a run that began without enough space is lost, not failed."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from fleetctl.guest.journal.ending import decide_outcome
from fleetctl.guest.task.program import start_failure
from tests.unit.stores.stores_disks import on_a_small_disk

STARTS = """
import asyncio, sys
from pathlib import Path
from fleetctl.common.errors import Unavailable
from fleetctl.providers.local.local_provider import LocalProvider
from tests.contracts.local_worlds import LocalWorld

async def main():
    world = LocalWorld(Path(sys.argv[1]))
    (world.directory / "home").mkdir()
    filler = world.directory / "filler"
    with open(filler, "wb") as file:
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass
    order = world.order()
    try:
        await world.provider.start(order)
    except Unavailable as error:
        print(error.reason, "is full" in str(error), flush=True)
    filler.unlink()
    print((await world.ended(await world.begin(order))).ok)
    await world.close()

asyncio.run(main())
"""


def test_a_start_on_a_full_disk_waits_and_begins_when_there_is_room(tmp_path: Path) -> None:
    done = on_a_small_disk(tmp_path, "60m", [sys.executable, "-c", STARTS, str(tmp_path)])
    assert done.stdout.split("\n")[:2] == ["Crowded True", "True"], done.stderr


def test_what_found_no_room_to_begin_is_lost_and_has_not_failed() -> None:
    full = start_failure(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    ended = decide_outcome("", full, 127, None)
    assert (ended["ok"], ended["infra"], ended["reason"]) == (False, True, "DiskFull")
    other = decide_outcome("", start_failure(OSError(errno.ENOENT, "no such program")), 127, None)
    assert (other["infra"], other["reason"]) == (False, "StartFailed")

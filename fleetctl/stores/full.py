"""A disk without room, which is the one refusal of it that passes by itself."""

from __future__ import annotations

from fleetctl.common.errors import StoreError


class DiskFull(StoreError):
    """The disk has no room: nothing of the transaction was written. Later ones work once there is
    room.
    """


def disk_full(path: object) -> DiskFull:
    return DiskFull(
        f"the disk that holds `{path}` is full; nothing was written",
        hint="free some space; work goes on by itself once there is room",
    )

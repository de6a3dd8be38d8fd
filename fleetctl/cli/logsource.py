"""Where a run's output is read from, by the provider that ran it. The place to add another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.errors import FleetctlError

if TYPE_CHECKING:
    from fleetctl.stores.reader import RunRow


def read_bytes(place: Path, uid: str, run: RunRow, offset: int) -> Iterator[tuple[bytes, int]]:
    """What there is now from `offset` on, in pieces, each with the offset that follows it."""
    if run.provider != "local":
        raise FleetctlError(f"logs of provider `{run.provider}` cannot be read yet")
    from fleetctl.providers.local.logs import LogReader
    from fleetctl.providers.local.paths import Layout

    reader = LogReader(Layout(place), uid, run.name)
    while True:
        data, offset = reader.read(offset)
        if not data:
            return
        yield data, offset

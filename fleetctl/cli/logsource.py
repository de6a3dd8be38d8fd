"""A run's output, read from this machine's disk: every provider keeps it in the same place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.stores.reader import RunRow


def read_bytes(place: Path, uid: str, run: RunRow, offset: int) -> Iterator[tuple[bytes, int]]:
    """What there is now from `offset` on, in pieces, each with the offset that follows it."""
    from fleetctl.providers.rundir.logs import LogReader
    from fleetctl.providers.rundir.places import runs_dir

    reader = LogReader(runs_dir(place, run.provider, uid), run.name)
    while True:
        data, offset = reader.read(offset)
        if not data:
            return
        yield data, offset

"""A run's output, read from this machine's disk: every provider keeps it in the same place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.providers.rundir.logs import LogReader
    from fleetctl.stores.read.rows import RunRow


def read_bytes(
    state_dir: Path, uid: str, run: RunRow, offset: int, *, node: int = 0, service: str = ""
) -> Iterator[tuple[bytes, int]]:
    """What there is now from `offset` on, in pieces, each with the offset that follows it. service:
    whose output it is, in place of the work's.
    """
    reader = _reader(state_dir, uid, run, node, service)
    while True:
        data, offset = reader.read(offset)
        if not data:
            return
        yield data, offset


def read_times(
    state_dir: Path, uid: str, run: RunRow, *, node: int = 0, service: str = ""
) -> list[tuple[int, float]]:
    """(offset, when the byte there came), ascending; the first byte came when the run began."""
    begun_s = run.created_at_s if run.started_at_s is None else run.started_at_s
    return [(0, begun_s), *_reader(state_dir, uid, run, node, service).times()]


def log_exists(state_dir: Path, uid: str, run: RunRow, *, node: int) -> bool:
    """Whether that node of the run has begun to write."""
    return _reader(state_dir, uid, run, node).exists()


def past_s(state_dir: Path, uid: str, run: RunRow) -> float | None:
    """When retention took its log, in seconds since the epoch; None where it did not."""
    from fleetctl.providers.paths import runs_dir
    from fleetctl.providers.rundir.logs import past_s as taken_s

    return taken_s(runs_dir(state_dir, run.provider, uid), run.name)


def _reader(state_dir: Path, uid: str, run: RunRow, node: int, service: str = "") -> LogReader:
    from fleetctl.guest.nodes.names import node_name
    from fleetctl.guest.supervision.services.names import service_name
    from fleetctl.providers.paths import runs_dir
    from fleetctl.providers.rundir.logs import LogReader

    name = node_name(run.name, node)
    name = service_name(name, service) if service else name
    return LogReader(runs_dir(state_dir, run.provider, uid), name)

"""Reads a run's output from this machine's disk: every provider stores it under the same path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.remote import REMOTE

if TYPE_CHECKING:
    from fleetctl.common.remote import RemoteLog
    from fleetctl.providers.rundir.run_log_reader import RunLogReader
    from fleetctl.stores.read.rows import RunRow


def read_bytes(
    state_dir: Path,
    uid: str,
    run: RunRow,
    offset: int,
    *,
    node: int = 0,
    service: str = "",
) -> Iterator[tuple[bytes, int]]:
    """Yields the output from `offset` on, in pieces, each with the offset that follows it. service:
    the service that wrote it, instead of the work.
    """
    reader = _open_reader(
        state_dir,
        uid,
        run,
        node,
        service,
    )
    while True:
        data, offset = reader.read(offset)
        if not data:
            return
        yield data, offset


def read_times(
    state_dir: Path,
    uid: str,
    run: RunRow,
    *,
    node: int = 0,
    service: str = "",
) -> list[tuple[int, float]]:
    """Returns (offset, when the byte there came), ascending; the first byte came when the run
    began."""
    begun_s = run.created_at_s if run.started_at_s is None else run.started_at_s
    return [
        (0, begun_s),
        *_open_reader(
            state_dir,
            uid,
            run,
            node,
            service,
        ).times(),
    ]


def log_exists(
    state_dir: Path,
    uid: str,
    run: RunRow,
    *,
    node: int,
) -> bool:
    """Returns true where that node of the run has begun to write."""
    return _open_reader(state_dir, uid, run, node).exists()


def past_s(
    state_dir: Path,
    uid: str,
    run: RunRow,
) -> float | None:
    """Returns when retention removed its log, in seconds since the epoch; None where it did not."""
    if (remote := REMOTE.get()) is not None:
        return remote.log(run.name, 0, "").past_s()
    from fleetctl.providers.paths import runs_dir
    from fleetctl.providers.rundir.run_log_reader import past_s as taken_s

    return taken_s(runs_dir(state_dir, run.provider, uid), run.name)


def _open_reader(
    state_dir: Path,
    uid: str,
    run: RunRow,
    node: int,
    service: str = "",
) -> RunLogReader | RemoteLog:
    if (remote := REMOTE.get()) is not None:
        return remote.log(run.name, node, service)
    from fleetctl.guest.nodes.names import node_name
    from fleetctl.guest.supervision.services.names import service_name
    from fleetctl.providers.paths import runs_dir
    from fleetctl.providers.rundir.run_log_reader import RunLogReader

    name = node_name(run.name, node)
    name = service_name(name, service) if service else name
    return RunLogReader(runs_dir(state_dir, run.provider, uid), name)

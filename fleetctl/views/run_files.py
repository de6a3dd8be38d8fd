"""Finds what this machine has of a task: the output of its run, and the outputs that are kept, of
its newest attempt with any or of the one that a user names.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from fleetctl.common.remote import REMOTE
from fleetctl.common.text import format_timestamp
from fleetctl.providers.paths import runs_dir
from fleetctl.providers.rundir.kept_outputs import KeptFile, KeptOutputs, find_outputs
from fleetctl.views.tasks import CACHED

if TYPE_CHECKING:
    from fleetctl.common.remote import RemoteLog
    from fleetctl.providers.rundir.run_log_reader import RunLogReader
    from fleetctl.stores.read.rows import RunRow
    from fleetctl.views.objects import View
    from fleetctl.views.store_reading import StoreReading
    from fleetctl.views.tasks import Task


TASKS_LOOKED_MAX = 2_000  # for a page: each costs the look at a file, some 20 us


class Artifact(NamedTuple):
    """A kept file. index: of its task, of the present spec. run: the attempt that wrote it;
    kept: the pack that holds it.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index
    run: RunRow
    file: KeptFile
    kept: KeptOutputs


class TaskOutputs(NamedTuple):
    """run: the attempt that wrote them."""

    run: RunRow
    kept: KeptOutputs


class ArtifactDocument(TypedDict):
    """A kept file. run: the attempt's name; path: bytes that are no text are escapes."""

    index: int
    attempt: int
    run: str
    path: str
    bytes: int
    sha256: str
    modified: str


def artifact_document(one: Artifact) -> ArtifactDocument:
    return {
        "index": one.index,
        "attempt": one.run.attempt,
        "run": one.run.name,
        "path": escape_path(one.file.path),
        "bytes": one.file.size,
        "sha256": one.file.sha256,
        "modified": format_timestamp(one.file.modified_at_s),
    }


def escape_path(path: str) -> str:
    """Returns a path whose bytes that are no text are shown as escapes."""
    return path.encode("utf-8", "backslashreplace").decode()


def find_file(kept: KeptOutputs, path: str) -> KeptFile | None:
    """Returns the file with a path, also where its bytes that are no text are escapes."""
    exact = (it for it in kept.files if it.path == path)
    escaped = (it for it in kept.files if escape_path(it.path) == path)
    return next(chain(exact, escaped), None)


class ArtifactCursor(NamedTuple):
    """A position among the artifacts of an object: a task, and the number of its files before."""

    index: int = 0  # type: ignore[assignment]  # hides tuple.index
    at: int = 0


def page_artifacts(
    state_dir: Path,
    seen: View,
    reading: StoreReading,
    *,
    begin: ArtifactCursor,
    limit: int,
    index: int | None = None,
) -> tuple[list[Artifact], ArtifactCursor | None]:
    """Returns up to `limit` artifacts, and where the next ones begin; None after the last. Looks at
    TASKS_LOOKED_MAX tasks at most: a page may be empty though others follow. index: this task
    alone."""
    page: list[Artifact] = []
    for number, task in enumerate(reading.tasks(seen, index=index, begin=begin.index)):
        own = task.run.index
        if number >= TASKS_LOOKED_MAX:
            return page, ArtifactCursor(own)
        found = find_task_outputs(state_dir, seen, task, reading)
        if found is None:
            continue
        at = begin.at if own == begin.index else 0
        room = limit - len(page)
        files = found.kept.files[at : at + room]
        page += [Artifact(own, found.run, it, found.kept) for it in files]
        if at + room < len(found.kept.files):
            return page, ArtifactCursor(own, at + room)
    return page, None


def list_artifacts(
    state_dir: Path,
    seen: View,
    reading: StoreReading,
    index: int | None = None,
) -> Iterator[Artifact]:
    """Yields the files that are kept of each task, by index and path. index: of one task."""
    for task in reading.tasks(seen, index=index):
        found = find_task_outputs(state_dir, seen, task, reading)
        if found is not None:
            run, kept = found
            yield from (Artifact(task.run.index, run, it, kept) for it in kept.files)


def find_task_outputs(
    state_dir: Path,
    seen: View,
    task: Task,
    reading: StoreReading,
) -> TaskOutputs | None:
    """Returns what is kept; None without any."""
    if task.state == CACHED:
        found = reading.source_of(task.run)
        if found is None:
            return None
        uid, _, run = found
        return _of_run(state_dir, uid, run)
    for run in (task.run, *reversed(task.older)):
        kept = _of_run(state_dir, seen.resource.uid, run)
        if kept is not None:
            return kept
    return None


def _of_run(
    state_dir: Path,
    uid: str,
    run: RunRow,
) -> TaskOutputs | None:
    if not run.name:
        return None
    if (remote := REMOTE.get()) is not None:
        kept: KeptOutputs | None = remote.outputs(run.name)
    else:
        kept = find_outputs(runs_dir(state_dir, run.provider, uid), run.name)
    if kept is not None and kept.files:
        return TaskOutputs(run, kept)
    return None


def is_below(file: KeptFile, path: str) -> bool:
    """Returns whether the file is at `path`, as a user writes it, or below."""
    wanted = posixpath.normpath(path)
    return wanted in (".", file.path) or file.path.startswith(f"{wanted}/")


def write_output(
    kept: KeptOutputs,
    file: KeptFile,
    place: Path,
) -> None:
    """Writes one file, over what is there: readers see the old one or the new one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".fleetctl-{os.getpid()}.part")
    try:
        with temporary.open("wb") as target:
            for piece in kept.contents(file):
                target.write(piece)
        temporary.chmod(file.mode)
        os.utime(temporary, (file.modified_at_s, file.modified_at_s))
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


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
    from fleetctl.guest.nodes.gang import node_name
    from fleetctl.guest.supervision.services.names import service_name
    from fleetctl.providers.paths import runs_dir
    from fleetctl.providers.rundir.run_log_reader import RunLogReader

    name = node_name(run.name, node)
    name = service_name(name, service) if service else name
    return RunLogReader(runs_dir(state_dir, run.provider, uid), name)

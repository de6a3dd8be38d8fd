"""Copies between this machine and a task: one that runs, one that has ended, and the outputs that
are kept of it.

A running task is reached through `tar` in its sandbox, as `kubectl cp` does it; tar.py makes and
reads the archives. Volumes outlast a task, and on this machine the files of a failed one
do. For a path in neither, the message names the setting that would have preserved it.
"""

from __future__ import annotations

import base64
import io
import os
import posixpath
import re
import tarfile
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from fleetctl.cli.access.tar import (
    PIECE_BYTES,
    CopySummary,
    means_contents,
    pack_archive,
    resolve_upload,
    unpack_archive,
)
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.task import TaskAccess, TaskChoice, VolumePath, find_task_access
from fleetctl.common.errors import FleetctlError, NotFound, Refused
from fleetctl.common.remote import REMOTE
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import byte_size, count_noun, escape_line
from fleetctl.controllers.model import LIVE_STATES
from fleetctl.providers.rundir.kept_outputs import KeptFile, KeptOutputs
from fleetctl.specs.kinds.registry import find_kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.views.exec_targets import describe_task, load_accounts, template_of
from fleetctl.views.kinds import Target, kind_of, parse_target
from fleetctl.views.objects import View, as_mapping
from fleetctl.views.run_files import TaskOutputs, find_task_outputs, is_below
from fleetctl.views.store_reading import StoreReading, must_find, open_reading

if TYPE_CHECKING:
    from fleetctl.providers.contract.account import Account
    from fleetctl.providers.contract.sandbox_access import ExecStreams
    from fleetctl.views.tasks import Task


MISSING = 66
NO_PROGRAM = 127
SAID_BYTES_MAX = 4096
_INDEXED = re.compile(r"([0-9]{1,10})(?:/(.*))?", re.DOTALL)
_LOOK = (
    'if [ -d "$1" ]; then echo directory; elif [ -e "$1" ]; then echo file; else echo missing; fi'
)
_SEND = (
    f'[ -e "$1" ] || exit {MISSING}; command -v tar >/dev/null || exit {NO_PROGRAM}; '
    'cd "$(dirname -- "$1")" && tar -cf - -- "$(basename -- "$1")"'
)
_TAKE = f'command -v tar >/dev/null || exit {NO_PROGRAM}; mkdir -p -- "$1" && tar -xof - -C "$1"'


class RunPath(NamedTuple):
    """A path in a task. `path` is relative to the task's first directory, unless it begins with a
    slash."""

    key: str
    index: int | None  # type: ignore[assignment]  # hides tuple.index
    path: str
    namespace: str = DEFAULT_NAMESPACE

    @property
    def target(self) -> Target:
        return parse_target(self.key, self.namespace)

    @property
    def whole(self) -> str:
        """Returns the words for all files of the task."""
        if self.index is None:
            return self.key
        return f"{self.key}:{self.index}"

    @property
    def shown(self) -> str:
        index = "" if self.index is None else f"{self.index}/"
        return f"{self.key}:{index}{self.path}"


def parse_run_path(text: str, namespace: str = DEFAULT_NAMESPACE) -> RunPath | None:
    """Reads `job/x:3/path`, `job/x:3//absolute`, `job/x:path`; None for text that names no task."""
    key, colon, rest = text.partition(":")
    word, slash, name = key.partition("/")
    kind = find_kind(word) if slash else None
    if kind is None or not kind.runs or not colon or not name or "/" in name:
        return None
    indexed = _INDEXED.fullmatch(rest)
    if indexed is None:
        return RunPath(key, None, rest or ".", namespace)
    return RunPath(key, int(indexed[1]), indexed[2] or ".", namespace)


async def copy_from_run(
    source: RunPath,
    target: str,
    screen: Screen,
) -> int:

    left = find_left_path(source.target, source.index, source.path)
    if left is not None and left.volume is not None:
        from fleetctl.cli.access.cp_volume import copy_from_volume

        return await copy_from_volume(left.volume, target, screen)
    if left is not None and left.outputs is not None:
        copied = copy_outputs(left.outputs, source.path, target)
        return _report_copied(copied, str(Path(target)), screen)
    if left is not None:
        return _report_copied(copy_left_files(left, source.path, target), str(Path(target)), screen)
    found = find_task_access(source.target, TaskChoice(source.index), find_state_dir())
    try:
        with tempfile.TemporaryFile() as file:
            await _receive_archive(found, source, file)
            file.seek(0)
            moved = unpack_archive(file, target, contents=means_contents(source.path))
    finally:
        await found.entering.close()
    return _report_copied(moved, str(Path(target)), screen)


async def copy_to_run(
    source: str,
    target: RunPath,
    screen: Screen,
) -> int:
    origin = Path(source)
    if not origin.exists():
        raise NotFound(f"there is no file or directory `{source}`")
    found = find_task_access(target.target, TaskChoice(target.index), find_state_dir())
    try:
        with tempfile.TemporaryFile() as errors:
            await _run_script(
                found,
                _LOOK,
                target.path,
                errors,
                target.shown,
            )
            errors.seek(0)
            sort = errors.read().decode().strip()
        into = resolve_upload(origin, source, target.path, sort)
        with tempfile.TemporaryFile() as file, tempfile.TemporaryFile() as errors:
            moved = pack_archive(origin, into.name, file)
            file.seek(0)
            await _run_script(
                found,
                _TAKE,
                into.directory,
                errors,
                target.shown,
                stdin=_read_pieces(file),
            )
    finally:
        await found.entering.close()
    return _report_copied(moved, target.shown, screen)


async def _receive_archive(
    found: TaskAccess,
    source: RunPath,
    file: IO[bytes],
) -> None:
    if found.entering.binary:
        await _run_script(
            found,
            _SEND,
            source.path,
            file,
            source.shown,
        )
        return
    # A text channel would not carry other bytes; four bytes for three.
    with tempfile.TemporaryFile() as text:
        await _run_script(
            found,
            f"{{ {_SEND}; }} | base64",
            source.path,
            text,
            source.shown,
        )
        text.seek(0)
        base64.decode(text, file)
    if not file.tell():
        raise NotFound(f"there is no `{source.shown}`, or the image has no `tar`")


async def _run_script(
    found: TaskAccess,
    script: str,
    path: str,
    out: IO[bytes],
    shown: str,
    *,
    stdin: AsyncIterator[bytes] | None = None,
) -> None:
    """Runs a script with one argument in the sandbox. Raises NotFound, Refused and
    FleetctlError."""
    from fleetctl.providers.contract.sandbox_access import ExecStreams

    errors = bytearray()
    streams: ExecStreams = ExecStreams(
        stdin=stdin,
        out=lambda data: _write_all(out, data),
        err=errors.extend,
    )
    code = await found.entering.execute(
        found.place, ("sh", "-c", script, "fleetctl", path), streams
    )
    if code == MISSING:
        raise NotFound(f"there is no `{shown}`")
    if code == NO_PROGRAM:
        raise Refused(
            "the image of this task has no `tar`, which copying needs",
            hint="let the task write to a volume, or install tar (`image.apt`)",
        )
    if code:
        words = bytes(errors[:SAID_BYTES_MAX]).decode(errors="replace").strip()
        raise FleetctlError(f"`{shown}` cannot be copied: {words or f'exit code {code}'}")


def _write_all(file: IO[bytes], data: bytes) -> None:
    file.write(data)


async def _read_pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    while data := file.read(PIECE_BYTES):
        yield data


def _report_copied(
    moved: CopySummary,
    to: str,
    screen: Screen,
) -> int:
    for path in moved.skipped:
        screen.warn(f"{escape_line(path)} is left out")
    screen.data(
        f"copied {count_noun(moved.files, 'file')} ({byte_size(moved.size)}) to {escape_line(to)}"
    )
    return 0


class EndedTaskPath(NamedTuple):
    """The location of a path of an ended task: in a volume, in its kept outputs, or in the work
    directory that it left on this machine.

    top: the directory of all that the task left; links must not lead out of it.
    """

    volume: VolumePath | None
    path: Path
    top: Path
    outputs: KeptOutputs | None = None


def find_left_path(
    wanted: Target,
    index: int | None,
    path: str,
) -> EndedTaskPath | None:
    """Returns the location of a path of an ended task; None for a running task, and where `wanted`
    and `index` name no single task: then the caller enters the running task.

    Raises NotFound for a path that the task did not leave, and Refused for one that was deleted.
    """
    with open_reading(find_state_dir()) as reading:
        seen = must_find(wanted, reading)
        task = _find_ended_task(seen, index, reading) if seen.kind.runs else None
        if task is None:
            return None
        template = template_of(seen, task.run)
        account = load_accounts(reading).get(task.run.provider)
        outputs = find_task_outputs(find_state_dir(), seen, task, reading)
    volume = _find_volume_path(template, path, seen.resource.namespace)
    if volume is not None:
        return EndedTaskPath(volume, Path(), Path())
    work_dir = _find_work_dir(seen, task, account)
    if outputs is not None and work_dir is None and select_outputs(outputs.kept, path):
        return EndedTaskPath(None, Path(), Path(), outputs.kept)
    if work_dir is None or path.startswith("/"):
        raise _explain_missing_path(
            seen,
            task,
            template,
            path,
            has_work_dir=work_dir is not None,
            outputs=outputs,
        )
    location = Path(os.path.realpath(work_dir / path))
    top = work_dir.parent.resolve()
    if not location.is_relative_to(top) or not location.exists():
        raise NotFound(
            f"{describe_task(seen, task.run)} of {escape_line(seen.key)} left no "
            f"`{escape_line(path)}`",
            hint=f"fleetctl cp "
            f"{escape_line(seen.resource.kind.lower())}/{escape_line(seen.resource.name)}:"
            f"{task.run.index}/. ./left   copies all that it left",
        )
    return EndedTaskPath(None, location, top)


def copy_left_files(
    left: EndedTaskPath,
    path: str,
    target: str,
) -> CopySummary:
    """Copies files that a task left to `target`, by the rules of a copy out of a running task.

    path: as the user wrote it; `dir/.` copies the content of `dir`.
    """
    contents = means_contents(path)
    with tempfile.TemporaryFile() as file:
        name = "." if contents else left.path.name
        packed = pack_archive(left.path, name, file, within=left.top)
        file.seek(0)
        moved = unpack_archive(file, target, contents=contents)
    return moved._replace(skipped=(*packed.skipped, *moved.skipped))


def _find_ended_task(
    seen: View,
    index: int | None,
    reading: StoreReading,
) -> Task | None:
    if index is not None:
        found = reading.task(seen, index)
        if found is not None and found.run.state not in LIVE_STATES:
            return found
        return None
    tasks = list(reading.tasks(seen))
    only = tasks[0] if len(tasks) == 1 else None
    if only is not None and only.run.state not in LIVE_STATES:
        return only
    return None


def _find_volume_path(
    template: Mapping[str, object],
    path: str,
    namespace: str,
) -> VolumePath | None:
    """Returns the volume, and the path in it, that the task saw at `path`; None for a path in
    none.
    """
    start = str(template.get("workdir") or "")
    whole = os.path.normpath(os.path.join(start, path))
    if not whole.startswith("/"):
        return None
    whole = f"/{whole.lstrip('/')}"  # POSIX lets two slashes stand

    # Of two mounts the inner one holds the path.
    mounts = sorted(_list_mounts(template), key=lambda it: len(it[0]), reverse=True)
    for top, name in mounts:
        if whole != top and not whole.startswith(top + "/"):
            continue
        volume = Target(kind_of("volume"), name, namespace)
        inside = whole[len(top) :] or "/"
        ends = path[len(path.rstrip("/.")) :] if path.endswith(("/", "/.")) else ""
        return VolumePath(volume, inside + ends)
    return None


def _list_mounts(template: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yields each path at which the task sees a volume, links included, and the volume's name."""
    mounts = template.get("volumes")
    if not isinstance(mounts, list):
        return
    for mount in map(as_mapping, mounts):
        links = mount.get("links")
        paths = [mount.get("mountPath")]
        if isinstance(links, list):
            paths += links
        for path in filter(None, paths):
            yield os.path.normpath(str(path)), str(mount.get("name"))


def _find_work_dir(
    seen: View,
    task: Task,
    account: Account | None,
) -> Path | None:
    """Returns the work directory that the task left on this machine; None where there is none.

    account: None for a provider whose object was deleted, and its disks with it.
    """
    if account is None or REMOTE.get() is not None:
        return None
    from fleetctl.wiring.plugins import find_left_files

    return find_left_files(account.sort, find_state_dir(), seen.resource.uid, task.run.name)


def _explain_missing_path(
    seen: View,
    task: Task,
    template: Mapping[str, object],
    path: str,
    *,
    has_work_dir: bool,
    outputs: TaskOutputs | None,
) -> Refused:
    """Returns the refusal for a path that is not there, with the setting that would have kept
    it.
    """
    unit = f"{describe_task(seen, task.run)} of {escape_line(seen.key)}"
    if outputs is not None:
        where = f"{escape_line(seen.key)}:{task.run.index}"
        what = f"`{escape_line(path)}` is not among the outputs that are kept of {unit}"
        return Refused(what, hint=f"fleetctl ls {where}")
    names = [str(as_mapping(it).get("name")) for it in _as_list(template.get("volumes"))]
    if has_work_dir:
        what = (
            f"{unit} left the files of its work directory, and `{escape_line(path)}` is "
            f"not among them"
        )
    elif seen.status.get("scratchFreed"):
        what = f"{unit} has ended ({task.state.lower()}), and what it left is past retention"
    else:
        what = f"{unit} has ended ({task.state.lower()}), and its own disk was deleted with it"
    if names:
        advice = f"its volumes stay: fleetctl ls volume/{escape_line(names[0])}"
    else:
        advice = "`template.outputs` keeps files of a task, and a volume what tasks write to it"
    results = f"what it submitted: fleetctl results {escape_line(seen.key)}"
    local = "; on `local` a failed task's files are kept too" if not has_work_dir else ""
    return Refused(what, hint=f"{advice}{local}; {results}")


def _as_list(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    return []


def select_outputs(kept: KeptOutputs, path: str) -> list[KeptFile]:
    """Returns the file at `path`, or the files below it; all for `.`."""
    return [it for it in kept.files if is_below(it, path)]


def copy_outputs(
    kept: KeptOutputs,
    path: str,
    target: str,
) -> CopySummary:
    """Copies the outputs at `path`, of which there must be some. Raises NotFound and UsageError."""
    contents = means_contents(path)
    with tempfile.TemporaryFile() as file:
        _pack_outputs(kept, posixpath.normpath(path.removesuffix("/.")), file, contents=contents)
        file.seek(0)
        return unpack_archive(file, target, contents=contents)


def _pack_outputs(
    kept: KeptOutputs,
    wanted: str,
    file: IO[bytes],
    *,
    contents: bool,
) -> None:
    """Writes them as an archive whose top has the last name of `wanted`."""
    top = "." if contents else posixpath.basename(wanted)
    found = select_outputs(kept, wanted)
    with tarfile.open(
        fileobj=file,
        mode="w",
        format=tarfile.GNU_FORMAT,
    ) as archive:
        if contents or found[0].path != wanted:
            entry = tarfile.TarInfo(top)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o755
            archive.addfile(entry)
        for one in found:
            below = one.path if wanted == "." else one.path[len(wanted) :].lstrip("/")
            entry = tarfile.TarInfo(f"{top}/{below}" if below else top)
            entry.mode, entry.mtime, entry.size = one.mode, int(one.modified_at_s), one.size
            archive.addfile(entry, io.BufferedReader(PieceReader(kept.contents(one))))


class PieceReader(io.RawIOBase):
    """Reads pieces of a content as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._rest = self._rest or next(self._pieces, b"")
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

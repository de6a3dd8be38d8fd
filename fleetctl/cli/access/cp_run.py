"""Copies between this machine and a running task: `fleetctl cp job/x:3/out.txt .`.

Through `tar` in the sandbox, as `kubectl cp` does it; tar.py makes and reads the archives.
"""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import AsyncIterator
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
from fleetctl.cli.targets.task import TaskAccess, TaskChoice, find_task_access
from fleetctl.common.errors import FleetctlError, NotFound, Refused
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import byte_size, count_noun, escape_line
from fleetctl.specs.kinds.registry import find_kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.views.kinds import Target, parse_target

if TYPE_CHECKING:
    from fleetctl.providers.contract.exec import ExecStreams

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
    from fleetctl.cli.access import cp_ended

    left = cp_ended.find_left_path(source.target, source.index, source.path)
    if left is not None and left.volume is not None:
        from fleetctl.cli.access.cp_volume import copy_from_volume

        return await copy_from_volume(left.volume, target, screen)
    if left is not None and left.outputs is not None:
        from fleetctl.cli.access.cp_outputs import copy_outputs

        copied = copy_outputs(left.outputs, source.path, target)
        return _report_copied(copied, str(Path(target)), screen)
    if left is not None:
        return _report_copied(
            cp_ended.copy_left_files(left, source.path, target), str(Path(target)), screen
        )
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
    from fleetctl.providers.contract.exec import ExecStreams

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

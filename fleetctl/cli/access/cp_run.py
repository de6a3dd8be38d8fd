"""Copying between this machine and a task that runs: `fleetctl cp job/x:3/out.txt .`.

Through `tar` in the sandbox, as `kubectl cp` does it; what the files look like is tar.py's.
"""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from fleetctl.cli.access.tar import PIECE_BYTES, Moved, means_contents, pack, unpack, upload_place
from fleetctl.cli.output.render import Screen
from fleetctl.cli.targets.task import Beside, Which, beside
from fleetctl.common.errors import FleetctlError, NotFound, Refused
from fleetctl.common.home import home
from fleetctl.common.text import byte_size, plural, safe
from fleetctl.specs.kinds.registry import find_kind
from fleetctl.specs.values.namespaces import DEFAULT_NAMESPACE
from fleetctl.views.kinds import Target, target

if TYPE_CHECKING:
    from fleetctl.providers.contract.exec import Streams

MISSING, NO_PROGRAM = 66, 127
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


class RunPlace(NamedTuple):
    """`path` is relative to where the task began, unless it begins with a slash."""

    key: str
    index: int | None  # type: ignore[assignment]  # hides tuple.index
    path: str
    namespace: str = DEFAULT_NAMESPACE

    @property
    def target(self) -> Target:
        return target(self.key, self.namespace)

    @property
    def shown(self) -> str:
        index = "" if self.index is None else f"{self.index}/"
        return f"{self.key}:{index}{self.path}"


def run_place(text: str, namespace: str = DEFAULT_NAMESPACE) -> RunPlace | None:
    """`job/x:3/path`, `job/x:3//absolute`, `job/x:path`; None for what names no task."""
    key, colon, rest = text.partition(":")
    word, slash, name = key.partition("/")
    kind = find_kind(word) if slash else None
    if kind is None or not kind.runs or not colon or not name or "/" in name:
        return None
    indexed = _INDEXED.fullmatch(rest)
    if indexed is None:
        return RunPlace(key, None, rest or ".", namespace)
    return RunPlace(key, int(indexed[1]), indexed[2] or ".", namespace)


async def download(source: RunPlace, target: str, screen: Screen) -> int:
    from fleetctl.cli.access import cp_ended

    left = cp_ended.left(source.target, source.index, source.path)
    if left is not None and left.volume is not None:
        from fleetctl.cli.access.cp_volume import out_of

        return await out_of(left.volume, target, screen)
    if left is not None:
        return _told(cp_ended.copy(left.path, source.path, target), str(Path(target)), screen)
    found = beside(source.target, Which(source.index), home())
    try:
        with tempfile.TemporaryFile() as file:
            await _receive(found, source, file)
            file.seek(0)
            moved = unpack(file, target, contents=means_contents(source.path))
    finally:
        await found.entering.close()
    return _told(moved, str(Path(target)), screen)


async def upload(source: str, target: RunPlace, screen: Screen) -> int:
    origin = Path(source)
    if not origin.exists():
        raise NotFound(f"there is no file or directory `{source}`")
    found = beside(target.target, Which(target.index), home())
    try:
        with tempfile.TemporaryFile() as errors:
            await _run(found, _LOOK, target.path, errors, target.shown)
            errors.seek(0)
            sort = errors.read().decode().strip()
        into = upload_place(origin, source, target.path, sort)
        with tempfile.TemporaryFile() as file, tempfile.TemporaryFile() as errors:
            moved = pack(origin, into.name, file)
            file.seek(0)
            await _run(found, _TAKE, into.directory, errors, target.shown, stdin=_pieces(file))
    finally:
        await found.entering.close()
    return _told(moved, target.shown, screen)


async def _receive(found: Beside, source: RunPlace, file: IO[bytes]) -> None:
    if found.entering.binary:
        await _run(found, _SEND, source.path, file, source.shown)
        return
    # What comes as text would not survive otherwise; four bytes for three.
    with tempfile.TemporaryFile() as text:
        await _run(found, f"{{ {_SEND}; }} | base64", source.path, text, source.shown)
        text.seek(0)
        base64.decode(text, file)
    if not file.tell():
        raise NotFound(f"there is no `{source.shown}`, or the image has no `tar`")


async def _run(
    found: Beside,
    script: str,
    path: str,
    out: IO[bytes],
    shown: str,
    *,
    stdin: AsyncIterator[bytes] | None = None,
) -> None:
    """A script with one argument in the sandbox. Raises NotFound, Refused and FleetctlError."""
    from fleetctl.providers.contract.exec import Streams

    errors = bytearray()
    streams: Streams = Streams(stdin=stdin, out=lambda data: _put(out, data), err=errors.extend)
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


def _put(file: IO[bytes], data: bytes) -> None:
    file.write(data)


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    while data := file.read(PIECE_BYTES):
        yield data


def _told(moved: Moved, to: str, screen: Screen) -> int:
    for path in moved.skipped:
        screen.warn(f"{safe(path)} is left out")
    screen.data(f"copied {plural(moved.files, 'file')} ({byte_size(moved.size)}) to {safe(to)}")
    return 0

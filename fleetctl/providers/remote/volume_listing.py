"""Lists, copies and removes the files of a volume in a helper, the small sandbox that shows the
volume for the time of a verb, and remembers the volumes that this store has used.

Volumes carry no tag, and may be shared with other programs.
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.volume_files import (
    CONTENT_BYTES_MAX,
    CONTENTS_BYTES_MAX,
    CONTENTS_FILES_MAX,
    CONTENTS_READ_S,
    FileCopy,
    FileEntry,
    Tell,
    clean_path,
    contents_too_large,
    contents_too_slow,
    contents_unread,
    download_beside,
    is_a_directory,
    path_missing,
    split_batches,
)
from fleetctl.providers.paths import checked_name, make_private

# Exit codes of the command: no such path, too much to read, reading takes too long, and a file that
# cannot be read.
NOTHING, TOO_MUCH, TOO_SLOW, UNREAD = 44, 45, 46, 47
_FIND = "find {path} {depth} \\( -type f -o -type d \\) -printf '%y %s %T@ %p\\0'"
# An entry without a name sets the listing apart from the digests. `find` rounds sizes up.
_DIGESTS = """
found() {{ find {path} {depth} -type f -name {names} -size -{kib}k "$@"; }}
set -- $(found -printf '%s\\n' | awk '{{ n += $1 }} END {{ printf "%d %.0f", NR, n }}')
[ "$1" -le {files} ] && [ "$2" -le {bytes} ] || exit {too_much}
printf '= \\0'
found -print0 | timeout {seconds} xargs -0 -r sha256sum -z --
code=$?
[ $code -ne 124 ] || exit {too_slow}
[ $code -eq 0 ] || exit {unread}
"""

DIRECTORY = "volumes-used"

MOUNT = "/volume"  # in a helper
LIST_S = 300.0  # a volume may have many thousand files
TRANSFER_S = 3600.0  # for a batch, the download of a file, or the removal of a directory
BATCH_BYTES_MAX = 256 * 1024**2
OUTPUT_CHARS_MAX = 300  # of a failed command, for its error


class VolumeHelper(Protocol):
    """A sandbox that shows one volume at MOUNT. Its verbs raise Refused and Unavailable."""

    async def run(self, command: str, *, path: str = "", deadline_s: float = TRANSFER_S) -> str:
        """Returns the output of a shell command. path: the command's path, for errors."""
        ...

    async def upload(self, batch: Sequence[FileCopy]) -> None:
        """Copies files into the volume, over what is there; directories above them are made."""
        ...

    async def download(self, one: FileCopy, target: Path) -> None: ...


class HelperFiles(ABC):
    """The files of a service whose volumes only its sandboxes show."""

    batch_files_max: int

    @abstractmethod
    def _helper(self, volume: str) -> AbstractAsyncContextManager[VolumeHelper]:
        """Yields a helper for the time of a verb. Raises NotFound without such a volume."""

    async def entries(
        self, volume: str, path: str, *, recursive: bool = False, contents: str = ""
    ) -> Sequence[FileEntry]:
        wanted = clean_path(path)
        async with self._helper(volume) as helper:
            return await _list_entries(helper, wanted, recursive=recursive, contents=contents)

    async def put(self, volume: str, files: Sequence[FileCopy], *, tell: Tell) -> None:
        async with self._helper(volume) as helper:
            for batch in split_batches(
                files, files_max=self.batch_files_max, bytes_max=BATCH_BYTES_MAX
            ):
                await helper.upload(batch)
                tell(sum(one.size for one in batch))

    async def get(self, volume: str, files: Sequence[FileCopy], *, tell: Tell) -> None:
        async with self._helper(volume) as helper:
            for one in files:
                with download_beside(one.local) as temporary:
                    await helper.download(one, temporary)
                tell(one.size)

    async def remove(self, volume: str, path: str, *, recursive: bool = False) -> None:
        wanted = clean_path(path)
        quoted = shlex.quote(f"./{wanted}")
        async with self._helper(volume) as helper:
            reply = await _list_entries(helper, wanted, recursive=False)
            if not recursive and [one.path for one in reply] != [wanted]:
                raise is_a_directory(path)
            # The volume's top stays: it is a mount.
            command = f"rm -rf {quoted}" if wanted else "find . -mindepth 1 -delete"
            await helper.run(look_command(MOUNT, quoted) + command, path=path)

    async def size(self, volume: str) -> int | None:
        del volume
        return None  # a sandbox for a number would cost more than it is worth


async def _list_entries(
    helper: VolumeHelper, path: str, *, recursive: bool, contents: str = ""
) -> list[FileEntry]:
    command = list_command(MOUNT, path, recursive=recursive, contents=contents)
    deadline_s = LIST_S + CONTENTS_READ_S if contents else LIST_S
    return parse_listing(await helper.run(command, path=path, deadline_s=deadline_s), path)


def look_command(top: str, path: str) -> str:
    """Returns the beginning of a command about a path, in the volume's directory; it exits with
    NOTHING where there is no such path. path: quoted.
    """
    return f"cd {top} && [ -e {path} ] || exit {NOTHING}; "


def list_command(top: str, path: str, *, recursive: bool, contents: str) -> str:
    """Returns the command. path: below the volume's top; contents: as `VolumeFiles.entries` has
    it.
    """
    quoted = shlex.quote(f"./{path}" if path else ".")
    depth = "" if recursive else "-maxdepth 1"
    command = "export LC_ALL=C; " + look_command(top, quoted)
    command += _FIND.format(path=quoted, depth=depth)
    if not contents:
        return command
    return command + _DIGESTS.format(
        path=quoted,
        depth=depth,
        names=shlex.quote(contents),
        kib=CONTENT_BYTES_MAX // 1024 + 1,
        files=CONTENTS_FILES_MAX,
        bytes=CONTENTS_BYTES_MAX,
        seconds=CONTENTS_READ_S,
        too_much=TOO_MUCH,
        too_slow=TOO_SLOW,
        unread=UNREAD,
    )


def parse_listing(output: str, path: str) -> list[FileEntry]:
    """Returns the entries by their paths. path: as `list_command` got it."""
    lines = output.split("\0")
    apart = lines.index("= ") if "= " in lines else len(lines)
    digests = dict(_parse_digest(it) for it in lines[apart + 1 :] if it)
    found = [_parse_entry(it, digests) for it in lines[:apart] if it]
    # A directory that was asked for is not in itself.
    return sorted(it for it in found if not (it.is_directory and it.path == path))


def check_exit(code: int, output: str, *, volume: str, path: str) -> None:
    """Raises the error of a helper's command that failed. output: for errors that are not ours."""
    if code == NOTHING:
        raise path_missing(volume, path)
    if code == TOO_MUCH:
        raise contents_too_large(volume)
    if code == TOO_SLOW:
        raise contents_too_slow(volume)
    if code == UNREAD:
        raise contents_unread(volume)
    if code:
        words = " ".join(output.split())[-OUTPUT_CHARS_MAX:]
        raise Refused(f"volume/{volume}: {words}", hint=f"fleetctl ls volume/{volume}")


def _parse_entry(line: str, digests: dict[str, str]) -> FileEntry:
    sort, size, modified, path = line.split(" ", 3)
    is_directory = sort == "d"
    shown = _below_top(path)
    size_bytes = 0 if is_directory else int(size)
    return FileEntry(shown, is_directory, size_bytes, float(modified), digests.get(shown, ""))


def _parse_digest(line: str) -> tuple[str, str]:
    digest, _, path = line.partition("  ")
    return _below_top(path), digest


def _below_top(path: str) -> str:
    return path.removeprefix(".").removeprefix("/")


def note_used(provider: Path, volume: str) -> None:
    """Notes that an account has used a volume. provider: the directory of its account."""
    (make_private(provider / DIRECTORY) / checked_name(volume)).touch(mode=0o600)


def forget_used(provider: Path, volume: str) -> None:
    (provider / DIRECTORY / checked_name(volume)).unlink(missing_ok=True)


def list_used(provider: Path) -> list[str]:
    """The names of the volumes, sorted."""
    place = provider / DIRECTORY
    if place.is_dir():
        return sorted(path.name for path in place.iterdir())
    return []

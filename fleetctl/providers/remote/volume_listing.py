"""Makes the shell command that lists a volume in the sandbox that shows it, reads its output, and
remembers the volumes that this store has used.

Volumes carry no tag, and may be shared with other programs.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from fleetctl.common.errors import FleetctlError
from fleetctl.providers.contract.volume_files import (
    CONTENT_BYTES_MAX,
    CONTENTS_BYTES_MAX,
    CONTENTS_FILES_MAX,
    CONTENTS_READ_S,
    FileEntry,
    contents_too_large,
    contents_too_slow,
    contents_unread,
    path_missing,
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


def listing_error(code: int, volume: str, path: str) -> FleetctlError | None:
    """Returns the error of an exit code of ours; None for any other code."""
    if code == NOTHING:
        return path_missing(volume, path)
    if code == TOO_MUCH:
        return contents_too_large(volume)
    if code == TOO_SLOW:
        return contents_too_slow(volume)
    if code == UNREAD:
        return contents_unread(volume)
    return None


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
    """provider: the directory of its account."""
    (make_private(provider / DIRECTORY) / checked_name(volume)).touch(mode=0o600)


def forget_used(provider: Path, volume: str) -> None:
    (provider / DIRECTORY / checked_name(volume)).unlink(missing_ok=True)


def list_used(provider: Path) -> list[str]:
    """The names of the volumes, sorted."""
    place = provider / DIRECTORY
    if place.is_dir():
        return sorted(path.name for path in place.iterdir())
    return []

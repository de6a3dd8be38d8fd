"""`fleetctl ls`: what is in a volume."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.output.render import Screen
from fleetctl.cli.output.rows import Rows, write_rows
from fleetctl.cli.targets.volume import VolumePlace, files_of, must_be_a_place
from fleetctl.common.home import home
from fleetctl.common.text import byte_size, safe, timestamp

if TYPE_CHECKING:
    from fleetctl.providers.contract.volume_files import FileEntry


PAGE = """\
volume/NAME[:/path] [-R] [-o table|name|json]

List the files in a volume, wherever its provider keeps it.

examples:
  fleetctl ls volume/ckpt
  fleetctl ls volume/ckpt:/run-1
  fleetctl ls volume/ckpt:/run-1 -R -o name

exit codes:
  0 ok, 2 wrong usage, 3 refused, 4 no such volume or path
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("place", metavar="volume/NAME[:/path]", help="what to list")
    made.add_argument(
        "-R", "--recursive", action="store_true", help="directories with all that is in them"
    )
    add_output(made, "table", "name", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    place = must_be_a_place(args.place, args.namespace)
    files = files_of(place, home())
    found = asyncio.run(files.entries(place.name, place.path, recursive=args.recursive))
    written = Rows(
        table=lambda: (("SIZE", "MODIFIED", "NAME"), map(_row, found)),
        documents=lambda: map(_document, found),
        names=lambda: (safe(_name(entry)) for entry in found),
    )
    if not write_rows(written, args.output, screen):
        _say_empty(place, screen)
    return 0


def _say_empty(place: VolumePlace, screen: Screen) -> None:
    screen.talk(f"{safe(place.shown)} is empty")


def _name(entry: FileEntry) -> str:
    """From the volume's top, as `cp` takes it; a directory ends with `/`."""
    return f"/{entry.path}/" if entry.is_directory else f"/{entry.path}"


def _row(entry: FileEntry) -> Sequence[str]:
    size = "-" if entry.is_directory else byte_size(entry.size)
    at = timestamp(entry.modified_at_s) if entry.modified_at_s else "-"
    return (size, at, safe(_name(entry)))


def _document(entry: FileEntry) -> dict[str, object]:
    return {
        "path": f"/{entry.path}",
        "type": "directory" if entry.is_directory else "file",
        "size": entry.size,
        "modified": timestamp(entry.modified_at_s) if entry.modified_at_s else None,
    }

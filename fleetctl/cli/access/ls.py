"""`fleetctl ls`: lists the files of a volume, or those that are kept of a task."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.output.output_rows import OutputRows, write_rows
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.task import VolumePath, files_of, require_volume_path
from fleetctl.common.errors import NotFound
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import byte_size, escape_line, format_timestamp
from fleetctl.views.store_reading import must_find, open_reading

if TYPE_CHECKING:
    from fleetctl.cli.access.cp_run import RunPath
    from fleetctl.providers.contract.volume_files import FileEntry


PAGE = """\
volume/NAME[:/path] | job/NAME:INDEX[/path] [-R] [-o table|name|json]

List the files in a volume, wherever its provider keeps it; or the outputs that are
kept of a task, all of them: `template.outputs` names them.

examples:
  fleetctl ls job/chunks:3
  fleetctl ls volume/ckpt
  fleetctl ls volume/ckpt:/run-1
  fleetctl ls volume/ckpt:/run-1 -R -o name

exit codes:
  0 ok, 2 wrong usage, 3 refused, 4 no such volume, task or path
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("place", metavar="PLACE", help="volume/NAME[:/path] or job/NAME:INDEX[/path]")
    made.add_argument(
        "-R", "--recursive", action="store_true", help="directories with all that is in them"
    )
    add_output(made, "table", "name", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    from fleetctl.cli.access.cp_run import parse_run_path

    task = parse_run_path(args.place, args.namespace)
    if task is not None:
        return _list_outputs(task, args, screen)
    place = require_volume_path(args.place, args.namespace)
    files = files_of(place, find_state_dir())
    found = asyncio.run(files.entries(place.name, place.path, recursive=args.recursive))
    written = OutputRows(
        table=lambda: (("SIZE", "MODIFIED", "NAME"), map(_build_row, found)),
        documents=lambda: map(_build_document, found),
        names=lambda: (escape_line(_format_path(entry)) for entry in found),
    )
    if not write_rows(written, args.output, screen):
        _say_empty(place, screen)
    return 0


def _list_outputs(
    place: RunPath,
    args: Namespace,
    screen: Screen,
) -> int:
    from fleetctl.cli.output.artifacts import say_none, write_artifacts
    from fleetctl.views.run_files import is_below, list_artifacts

    state_dir = find_state_dir()
    with open_reading(state_dir) as reading:
        seen = must_find(place.target, reading)
        if not any(reading.tasks(seen, index=place.index)):
            raise NotFound(f"{seen.key} has started no task {place.index}")
        found = list(list_artifacts(state_dir, seen, reading, place.index))
        below = [it for it in found if is_below(it.file, place.path)]
        if found and not below:
            raise NotFound(
                f"no output of {place.shown} is kept there", hint=f"fleetctl ls {place.whole}"
            )
        if not write_artifacts(iter(below), seen, args.output, screen):
            say_none(seen, screen)
    return 0


def _say_empty(place: VolumePath, screen: Screen) -> None:
    screen.talk(f"{escape_line(place.shown)} is empty")


def _format_path(entry: FileEntry) -> str:
    """Returns the path from the volume's top, as `cp` takes it; a directory ends with `/`."""
    if entry.is_directory:
        return f"/{entry.path}/"
    return f"/{entry.path}"


def _build_row(entry: FileEntry) -> Sequence[str]:
    size = "-" if entry.is_directory else byte_size(entry.size)
    at = format_timestamp(entry.modified_at_s) if entry.modified_at_s else "-"
    return (size, at, escape_line(_format_path(entry)))


def _build_document(entry: FileEntry) -> dict[str, object]:
    return {
        "path": f"/{entry.path}",
        "type": "directory" if entry.is_directory else "file",
        "size": entry.size,
        "modified": format_timestamp(entry.modified_at_s) if entry.modified_at_s else None,
    }

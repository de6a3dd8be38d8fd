"""`fleetctl rm`: removes files from a volume."""

from __future__ import annotations

import asyncio
from argparse import Namespace

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.targets.task import files_of, require_volume_path
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line

PAGE = """\
volume/NAME:/path [-r]

Remove a file from a volume, or with -r a directory and all that is in it.

examples:
  fleetctl rm volume/ckpt:/old.pt
  fleetctl rm volume/ckpt:/run-1/last.pt
  fleetctl rm volume/ckpt:/run-1 -r

exit codes:
  0 removed, 2 wrong usage, 3 refused, 4 no such volume or path
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("place", metavar="volume/NAME:/path", help="file or directory to remove")
    made.add_argument("-r", "--recursive", action="store_true", help="also a whole directory")
    return made


def run(args: Namespace, screen: Screen) -> int:
    place = require_volume_path(args.place, args.namespace)
    if not place.path.strip("/."):
        raise UsageError(
            f"`{args.place}` names no file in the volume",
            hint=f"`fleetctl delete {place.target.key}` is for the volume itself",
        )
    files = files_of(place, find_state_dir())
    asyncio.run(files.remove(place.name, place.path, recursive=args.recursive))
    screen.data(f"{escape_line(place.shown)} removed")
    return 0

"""`fleetctl rm`: remove files from a volume."""

from __future__ import annotations

import asyncio
from argparse import Namespace

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.render import Screen
from fleetctl.cli.targets.volume import files_of, must_be_a_place
from fleetctl.common.errors import UsageError
from fleetctl.common.home import home
from fleetctl.common.text import safe

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
    made.add_argument("place", metavar="volume/NAME:/path", help="what to remove")
    made.add_argument("-r", "--recursive", action="store_true", help="also a whole directory")
    return made


def run(args: Namespace, screen: Screen) -> int:
    place = must_be_a_place(args.place, args.namespace)
    if not place.path.strip("/."):
        raise UsageError(
            f"`{args.place}` names no file in the volume",
            hint=f"`fleetctl delete {place.target.key}` is for the volume itself",
        )
    files = files_of(place, home())
    asyncio.run(files.remove(place.name, place.path, recursive=args.recursive))
    screen.data(f"{safe(place.shown)} removed")
    return 0

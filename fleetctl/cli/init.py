"""`fleetctl init`: a first manifest with comments, that runs on this machine as it is."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path

from fleetctl.cli.flags import Parser, one_of
from fleetctl.cli.render import Screen
from fleetctl.cli.text import safe
from fleetctl.errors import Refused, UsageError

KINDS = ("batchjob", "sweep", "trainingrun")


def parser(verb: str) -> Parser:
    made = Parser(
        verb=verb,
        usage="[DIR] [--kind batchjob|sweep|trainingrun]",
        summary=(
            "Write a first manifest, with comments. It runs on this machine as it is; a file\n"
            "that is there is never written over."
        ),
        examples=(
            "fleetctl init",
            "fleetctl init my-search --kind sweep",
            "fleetctl init train --kind trainingrun",
        ),
        codes="0 written, 2 wrong usage, 3 there is such a file already",
    )
    made.add_argument(
        "directory", nargs="?", default=".", metavar="DIR", help="where to; made if need be"
    )
    made.add_argument(
        "--kind",
        type=one_of(*KINDS),
        default=KINDS[0],
        metavar="|".join(KINDS),
        help="what to begin with (default %(default)s)",
    )
    return made


def run(args: Namespace, screen: Screen) -> int:
    starter = Path(__file__).parent / "starters" / f"{args.kind}.yaml"
    place = Path(args.directory) / starter.name
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("x", encoding="utf-8") as file:
            file.write(starter.read_text(encoding="utf-8"))
    except FileExistsError:
        _refuse(place)
    except (NotADirectoryError, PermissionError) as error:
        raise UsageError(
            f"`{place}` cannot be made: {(error.strerror or 'no reason given').lower()}"
        ) from error
    screen.data(f"{safe(str(place))} written")
    if screen.talk_is_terminal:
        screen.hint(f"fleetctl apply -f {safe(shlex.quote(str(place)))} --wait")
    return 0


def _refuse(place: Path) -> None:
    """Raises: something is in the way, the file itself or a file in place of its directory."""
    if not place.parent.is_dir():
        raise UsageError(f"`{place.parent}` is a file, not a directory")
    raise Refused(
        f"`{place}` is there already, and would be lost",
        hint="name another directory: `fleetctl init DIR`",
    )

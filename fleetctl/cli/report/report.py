"""`fleetctl report`: the overview of a fleet as one HTML file that needs no server."""

from __future__ import annotations

import argparse
from argparse import Namespace
from pathlib import Path

from fleetctl.cli.command.flags import Parser, add_all_namespaces
from fleetctl.cli.output.screen import Screen
from fleetctl.cli.report.query import choose_namespace
from fleetctl.common.clock import SystemClock
from fleetctl.common.errors import UsageError
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.views.spending import open_asking
from fleetctl.views.store_reading import open_reading

SUFFIX = ".html"
PAGE = """\
-o FILE.html [-n NS | -A]

Write one page that needs no server and no network: how much runs, what failed or waits
with the reason and the fix, what the last 7 days cost, and the table of each kind. To
mail it, or to publish it from a job; `fleetctl serve` shows the same as it changes.

examples:
  fleetctl report -o fleet.html
  fleetctl report -A -o team.html
  fleetctl report -n nightly -o nightly.html

exit codes:
  0 ok, 2 wrong usage, or a file that cannot be written
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument(
        "-o", "--output", type=_parse_file, required=True, metavar="FILE", help="an .html file"
    )
    add_all_namespaces(made)
    return made


def _parse_file(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() != SUFFIX:
        raise argparse.ArgumentTypeError(f"`{text}` must end in {SUFFIX}")
    return path


def run(args: Namespace, screen: Screen) -> int:
    from fleetctl.views.overview import render_overview

    home = find_state_dir()
    with open_reading(home) as reading, open_asking(home) as asking:
        page = render_overview(
            reading, asking, namespace=choose_namespace(args), now_s=SystemClock().now_s()
        )
    try:
        args.output.write_text(page, encoding="utf-8")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(f"`{escape_line(str(args.output))}` cannot be written: {why}") from None
    screen.talk(f"{escape_line(str(args.output))} written")
    return 0

"""`fleetctl version`, and the number itself, for package metadata is slow to read."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.output.screen import Screen
from fleetctl.common.version import VERSION
from fleetctl.specs.kinds.registry import API_VERSION

__all__ = ["VERSION", "parser", "run"]


PAGE = """\
[-o table|json]

Print the version.

examples:
  fleetctl version
  fleetctl version -o json
  fleetctl version -o json | jq -r .version

exit codes:
  0 ok, 2 wrong usage
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    add_output(made, "table", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    python = ".".join(str(part) for part in sys.version_info[:3])
    if args.output == "json":
        screen.data(json.dumps({"version": VERSION, "apiVersion": API_VERSION, "python": python}))
    else:
        screen.data(f"fleetctl {VERSION} ({API_VERSION}, Python {python})")
    return 0

"""`fleetctl render`: manifests as an apply would take them, with variables and overlays put in."""

from __future__ import annotations

from argparse import Namespace

from fleetctl.cli.apply.request import collect_documents
from fleetctl.cli.command.flags import Parser, add_manifests, add_output, add_set
from fleetctl.cli.output.documents import write_all
from fleetctl.cli.output.screen import Screen

PAGE = """\
-f FILE|DIR|URL|- [-f ...] [-R] [--values FILE] [--set NAME=VALUE] [-o yaml|json]

Print manifests with the values of their variables in them, and overlays laid over
their bases: what an apply would store, before it is checked. Paths of files stay as
they are written, so read them beside the files they came from.

examples:
  fleetctl render -f jobs/
  fleetctl render -f jobs/ --values prod.yaml --set gpu=H100:8
  fleetctl render -f overlays/prod/ -o json

exit codes:
  0 ok, 2 a variable or an overlay is wrong, 4 no such file
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    add_manifests(made)
    add_set(made)
    add_output(made, "yaml", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    from fleetctl.manifest.rendering.render import rendered_values

    write_all(rendered_values(collect_documents(args, screen)), args.output, screen)
    return 0

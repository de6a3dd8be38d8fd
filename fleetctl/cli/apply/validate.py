"""`fleetctl validate`: check manifests in this process. Stores nothing and needs no controller."""

from __future__ import annotations

from argparse import Namespace

from fleetctl.cli.apply.request import documents_meant
from fleetctl.cli.command.flags import (
    Parser,
    add_allow_missing,
    add_manifests,
    add_set,
    said_namespace,
)
from fleetctl.cli.output.render import Screen
from fleetctl.common.home import home
from fleetctl.common.text import safe

PAGE = """\
-f FILE|DIR|URL|- [-f ...] [-R]

Check manifests and tell everything that is wrong with them, also what is known to
be refused by what is stored and set up here. Stores nothing and asks no cloud.

examples:
  fleetctl validate -f sweep.yaml
  fleetctl validate -f jobs/ -f volumes.yaml
  fleetctl validate -f jobs/ --values prod.yaml --set gpu=A100:4
  generate.py | fleetctl validate -f -

exit codes:
  0 all is right, 2 something is wrong, 4 no such file
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    add_manifests(made)
    add_set(made)
    add_allow_missing(made)
    return made


def run(args: Namespace, screen: Screen) -> int:
    from fleetctl.cli.apply.predictions import checked
    from fleetctl.stores.read.read_only import open_readonly

    order: dict[str, object] = {"allowMissing": args.allow_missing, **said_namespace(args)}
    state_dir = home()
    documents = documents_meant(args, screen)
    with open_readonly(state_dir) as stored:
        manifests, doubts = checked(state_dir, stored, documents, order)
    for manifest in manifests:
        screen.data(f"{safe(manifest.key)} valid")
        for warning in manifest.warnings:
            screen.warn(safe(warning))
    for warning in doubts:
        screen.warn(safe(warning))
    return 0

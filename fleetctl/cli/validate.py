"""`fleetctl validate`: check manifests in this process. Stores nothing and needs no controller."""

from __future__ import annotations

from argparse import Namespace

from fleetctl.cli.flags import Parser, add_recursive
from fleetctl.cli.render import Screen
from fleetctl.cli.text import safe


def parser(verb: str) -> Parser:
    made = Parser(
        verb=verb,
        usage="-f FILE|DIR|URL|- [-f ...] [-R]",
        summary="Check manifests and tell everything that is wrong with them. Stores nothing.",
        examples=(
            "fleetctl validate -f sweep.yaml",
            "fleetctl validate -f jobs/ -f volumes.yaml",
            "generate.py | fleetctl validate -f -",
        ),
        codes="0 all is right, 2 something is wrong, 4 no such file",
    )
    made.add_argument(
        "-f", "--filename", action="append", required=True, metavar="FILE", dest="files",
        help="a manifest, a directory of them, an https:// address, or - for stdin; repeatable",
    )  # fmt: skip
    add_recursive(made)
    return made


def run(args: Namespace, screen: Screen) -> int:
    from fleetctl.cli.loading import chosen_of, load_files

    manifests = load_files(args.files, chosen_of(args), recursive=args.recursive, tell=screen.hint)
    for manifest in manifests:
        screen.data(f"{safe(manifest.key)} valid")
        for warning in manifest.warnings:
            screen.warn(safe(warning))
    return 0

"""`fleetctl schema`: the JSON Schema of a kind, for editors and checkers. Needs no store."""

from __future__ import annotations

from argparse import Namespace

from fleetctl.cli.flags import Parser
from fleetctl.cli.kinds import kind_of
from fleetctl.cli.render import Screen
from fleetctl.manifest.fields import schema_text


def parser(verb: str) -> Parser:
    made = Parser(
        verb=verb,
        usage="--kind KIND",
        summary="Print the JSON Schema (draft 2020-12) that manifests of a kind are held to.",
        examples=(
            "fleetctl schema --kind Sweep",
            "fleetctl schema --kind job > batchjob.schema.json",
            "fleetctl schema --kind TrainingRun | jq '.\"$defs\" | keys'",
        ),
        codes="0 ok, 2 no such kind",
    )
    made.add_argument("--kind", required=True, metavar="KIND", help="such as Sweep or job")
    return made


def run(args: Namespace, screen: Screen) -> int:
    screen.data(schema_text(kind_of(args.kind).name).rstrip())
    return 0

"""`fleetctl schema`: prints the JSON Schema of a kind, for editors and checkers. Needs no store."""

from __future__ import annotations

from argparse import Namespace

from fleetctl.cli.command.flags import Parser
from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import UsageError
from fleetctl.manifest.hints.fields import rendered_kind, schema_text
from fleetctl.views.kinds import kind_of

PAGE = """\
KIND

Print the JSON Schema (draft 2020-12) that manifests of a kind are held to.

examples:
  fleetctl schema Sweep
  fleetctl schema job > batchjob.schema.json
  fleetctl schema --kind TrainingRun | jq '."$defs" | keys'

exit codes:
  0 ok, 2 no such kind
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("kind_word", nargs="?", metavar="KIND", help="such as Sweep or job")
    made.add_argument("--kind", metavar="KIND", help="the same")
    return made


def run(args: Namespace, screen: Screen) -> int:
    if bool(args.kind_word) == bool(args.kind):
        raise UsageError("`fleetctl schema` takes one KIND", hint="fleetctl schema BatchJob")
    word = args.kind_word or args.kind
    screen.data(schema_text(rendered_kind(word) or kind_of(word).name).rstrip())
    return 0

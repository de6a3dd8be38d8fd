"""`fleetctl api-resources`: the kinds, their short names, and their verbs."""

from __future__ import annotations

from argparse import Namespace
from typing import NamedTuple

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.command.verbs import VERBS, VerbTargets
from fleetctl.cli.output.output_rows import OutputRows, write_rows
from fleetctl.cli.output.screen import Screen
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, Kind
from fleetctl.views.kinds import ATTEMPTS, CHECKPOINTS, METRICS, TASKS


class KindRow(NamedTuple):
    name: str
    short: tuple[str, ...]
    kind: str
    verbs: tuple[str, ...]
    summary: str = ""

    def document(self) -> dict[str, object]:
        shown = {"name": self.name, "shortNames": self.short, "apiVersion": API_VERSION}
        return {**shown, "kind": self.kind, "summary": self.summary, "verbs": self.verbs}


PAGE = """\
[-o table|wide|name|json]

List the kinds, their short names and, with -o wide, what each is and the verbs that
take it.

examples:
  fleetctl api-resources
  fleetctl api-resources -o wide
  fleetctl api-resources -o name

exit codes:
  0 ok, 2 wrong usage
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    add_output(
        made,
        "table",
        "wide",
        "name",
        "json",
    )
    return made


def run(args: Namespace, screen: Screen) -> int:
    rows = list_resources()
    wide = args.output == "wide"
    header = ["NAME", "SHORTNAMES", "APIVERSION", "KIND", *(["WHAT", "VERBS"] if wide else [])]
    cells = (
        [row.name, ",".join(row.short) or "-", API_VERSION, row.kind]
        + ([row.summary or "-", ",".join(row.verbs)] if wide else [])
        for row in rows
    )
    written = OutputRows(
        table=lambda: (header, cells),
        documents=lambda: (row.document() for row in rows),
        names=lambda: (row.name for row in rows),
    )
    write_rows(written, args.output, screen)
    return 0


_OF_KIND = {"Schedule": VerbTargets.SCHEDULES, "Source": VerbTargets.SOURCES}


def list_resources() -> list[KindRow]:
    """Returns every kind of object, then the resources below one."""
    objects = [
        KindRow(one.plural, one.short, one.name, _list_verbs(one), one.summary)
        for one in KINDS.values()
    ]
    others = (TASKS, ATTEMPTS, METRICS, CHECKPOINTS)
    return objects + [KindRow(it[0], it[1:], it[1].capitalize(), ("get",)) for it in others]


def _list_verbs(kind: Kind) -> tuple[str, ...]:
    more = VerbTargets.VOLUMES if kind.name == "Volume" else VerbTargets.NOTHING
    more |= VerbTargets.RUNS if kind.runs else _OF_KIND.get(kind.name, VerbTargets.NOTHING)
    return tuple(
        sorted(name for name, verb in VERBS.items() if verb.takes & (VerbTargets.OBJECTS | more))
    )

"""`fleetctl api-resources`: the kinds, their short names, and what can be done to them."""

from __future__ import annotations

from argparse import Namespace
from typing import NamedTuple

from fleetctl.cli.command.flags import Parser, add_output
from fleetctl.cli.command.verbs import VERBS, Takes
from fleetctl.cli.output.render import Screen
from fleetctl.cli.output.rows import Rows, write_rows
from fleetctl.specs.kinds.registry import API_VERSION, KINDS, Kind
from fleetctl.views.kinds import ATTEMPTS, CHECKPOINTS, METRICS, TASKS


class Row(NamedTuple):
    name: str
    short: tuple[str, ...]
    kind: str
    verbs: tuple[str, ...]

    def document(self) -> dict[str, object]:
        shown = {"name": self.name, "shortNames": self.short, "apiVersion": API_VERSION}
        return {**shown, "kind": self.kind, "verbs": self.verbs}


PAGE = """\
[-o table|wide|name|json]

List the kinds, their short names and, with -o wide, the verbs that take them.

examples:
  fleetctl api-resources
  fleetctl api-resources -o wide
  fleetctl api-resources -o name

exit codes:
  0 ok, 2 wrong usage
"""


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    add_output(made, "table", "wide", "name", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    rows = resources()
    wide = args.output == "wide"
    header = ["NAME", "SHORTNAMES", "APIVERSION", "KIND", *(["VERBS"] if wide else [])]
    cells = (
        [row.name, ",".join(row.short) or "-", API_VERSION, row.kind]
        + ([",".join(row.verbs)] if wide else [])
        for row in rows
    )
    written = Rows(
        table=lambda: (header, cells),
        documents=lambda: (row.document() for row in rows),
        names=lambda: (row.name for row in rows),
    )
    write_rows(written, args.output, screen)
    return 0


_OF_KIND = {"Schedule": Takes.SCHEDULES, "Source": Takes.SOURCES}


def resources() -> list[Row]:
    """Every kind of object, then what hangs on one."""
    objects = [Row(one.plural, one.short, one.name, _verbs(one)) for one in KINDS.values()]
    others = (TASKS, ATTEMPTS, METRICS, CHECKPOINTS)
    return objects + [Row(it[0], it[1:], it[1].capitalize(), ("get",)) for it in others]


def _verbs(kind: Kind) -> tuple[str, ...]:
    more = Takes.VOLUMES if kind.name == "Volume" else Takes.NOTHING
    more |= Takes.RUNS if kind.runs else _OF_KIND.get(kind.name, Takes.NOTHING)
    return tuple(
        sorted(name for name, verb in VERBS.items() if verb.takes & (Takes.OBJECTS | more))
    )

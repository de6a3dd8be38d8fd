"""`fleetctl graph`: which objects depend on which, and how each stands."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping

from fleetctl.cli.command.flags import Parser, add_manifests, add_output, add_variables
from fleetctl.cli.output.render import Screen
from fleetctl.common.home import home
from fleetctl.common.text import safe
from fleetctl.views.graph import NEW, Graph, Node, graph, node_of
from fleetctl.views.kinds import target
from fleetctl.views.objects import View
from fleetctl.views.reading import must_find, open_reading

PAGE = """\
[KIND/NAME ...] [-f FILE|DIR|URL|- ...] [-R] [--set NAME=VALUE]
    [--values FILE] [-o text|mermaid|svg|json]

Draw which objects depend on which: by `dependsOn`, `tasks.fromResults`, `paramsFrom`
and `priorTrials`. Of named objects, all that they come after and all that comes after
them. With -f what the files say, each object with how it stands where it is stored.

examples:
  fleetctl graph
  fleetctl graph job/report
  fleetctl graph -f chain.yaml -o svg > chain.svg
  fleetctl graph -o mermaid

exit codes:
  0 ok, 2 wrong usage, 4 no such object or file
"""

Specs = dict[str, tuple[str, Mapping[str, object]]]


def parser(verb: str) -> Parser:
    made = Parser(verb, PAGE)
    made.add_argument("objects", nargs="*", metavar="KIND/NAME", help="only what has to do with it")
    add_manifests(made, required=False)
    add_variables(made)
    add_output(made, "text", "mermaid", "svg", "json")
    return made


def run(args: Namespace, screen: Screen) -> int:
    drawn = _drawn(args, screen)
    if args.output == "text":
        _text(drawn, screen)
    elif args.output == "json":
        screen.data(json.dumps(_document(drawn), indent=2))
    else:
        for line in _lines(drawn, args.output):
            screen.data(line)
    return 0


def _drawn(args: Namespace, screen: Screen) -> Graph:
    with open_reading(home()) as reading:
        wanted = [target(text, args.namespace) for text in args.objects]
        if not args.files:
            chosen = [must_find(it, reading).key for it in wanted]
            views = reading.views(specs=True, namespace=args.namespace)
            running = [it for it in views if it.kind.runs]
            return graph(map(node_of, running), {it.key: _spec(it) for it in running}, chosen)
        from fleetctl.cli.targets.manifests import chosen_of, load_files
        from fleetctl.specs.kinds.registry import dump_spec

        found = load_files(args, chosen_of(args), tell=screen.hint)
        stored = {it.key: it for it in reading.views()}
        specs: Specs = {it.key: (it.namespace, json.loads(dump_spec(it.spec))) for it in found}
        nodes = {it.key: Node(it.key, NEW) for it in found}
        nodes |= {key: node_of(it) for key, it in stored.items() if it.kind.runs}
        return graph(nodes.values(), specs, [it.key for it in wanted])


def _spec(seen: View) -> tuple[str, Mapping[str, object]]:
    return seen.resource.namespace, seen.spec()


def _text(drawn: Graph, screen: Screen) -> None:
    from fleetctl.cli.report.graphs.text import HEADER, rows

    if not screen.table(HEADER, rows(drawn)):
        screen.talk("no object depends on another one")


def _lines(drawn: Graph, output: str) -> list[str]:
    if output == "svg":
        from fleetctl.cli.report.graphs.svg import lines
    else:
        from fleetctl.cli.report.graphs.mermaid import lines
    return list(map(safe, lines(drawn)))


def _document(drawn: Graph) -> dict[str, object]:
    return {
        "objects": [it._asdict() for it in drawn.nodes],
        "dependencies": [{"object": it.head, "on": it.tail, "by": it.told} for it in drawn.links],
    }

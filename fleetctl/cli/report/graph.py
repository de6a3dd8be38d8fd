"""`fleetctl graph`: shows which objects depend on which, and the state of each."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping

from fleetctl.cli.command.flags import Parser, add_manifests, add_output, add_variables
from fleetctl.cli.output.screen import Screen
from fleetctl.common.state_paths import find_state_dir
from fleetctl.common.text import escape_line
from fleetctl.views.graph import NEW, DependencyGraph, GraphNode, build_graph, node_of
from fleetctl.views.kinds import parse_target
from fleetctl.views.objects import View
from fleetctl.views.store_reading import must_find, open_reading

PAGE = """\
[KIND/NAME ...] [-f FILE|DIR|URL|- ...] [-R] [--set NAME=VALUE]
    [--values FILE] [-o text|mermaid|svg|json]

Draw which objects depend on which: by `dependsOn`, `tasks.fromResults`, `paramsFrom`
and `priorTrials`. Of named objects, all that they come after and all that comes after
them. With -f the objects of the files, each with its phase where it is stored.

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
    add_output(
        made,
        "text",
        "mermaid",
        "svg",
        "json",
    )
    return made


def run(args: Namespace, screen: Screen) -> int:
    drawn = _load_graph(args, screen)
    if args.output == "text":
        _print_tree(drawn, screen)
    elif args.output == "json":
        screen.data(json.dumps(_build_document(drawn), indent=2))
    else:
        for line in _render_lines(drawn, args.output):
            screen.data(line)
    return 0


def _load_graph(args: Namespace, screen: Screen) -> DependencyGraph:
    with open_reading(find_state_dir()) as reading:
        wanted = [parse_target(text, args.namespace) for text in args.objects]
        if not args.files:
            chosen = [must_find(it, reading).key for it in wanted]
            views = reading.views(specs=True, namespace=args.namespace)
            running = [it for it in views if it.kind.runs]
            read = {it.key: _read_spec(it) for it in running}
            return build_graph(map(node_of, running), read, chosen)

        from fleetctl.cli.targets.manifests import chosen_of, load_files
        from fleetctl.specs.kinds.registry import dump_spec

        specs: Specs = {}
        nodes: dict[str, GraphNode] = {}
        for manifest in load_files(args, chosen_of(args), tell=screen.hint):
            spec = json.loads(dump_spec(manifest.spec))
            specs[manifest.key] = (manifest.namespace, spec)
            nodes[manifest.key] = GraphNode(manifest.key, NEW)

        stored = {it.key: it for it in reading.views()}
        nodes |= {key: node_of(it) for key, it in stored.items() if it.kind.runs}
        return build_graph(nodes.values(), specs, [it.key for it in wanted])


def _read_spec(seen: View) -> tuple[str, Mapping[str, object]]:
    return seen.resource.namespace, seen.spec()


def _print_tree(drawn: DependencyGraph, screen: Screen) -> None:
    from fleetctl.cli.report.graph_drawings import HEADER, draw_rows

    if not screen.table(HEADER, draw_rows(drawn)):
        screen.talk("no object depends on another one")


def _render_lines(drawn: DependencyGraph, output: str) -> list[str]:
    if output == "svg":
        from fleetctl.cli.report.graph_drawings import draw_svg as draw_lines
    else:
        from fleetctl.cli.report.graph_drawings import draw_mermaid as draw_lines
    return list(map(escape_line, draw_lines(drawn)))


def _build_document(drawn: DependencyGraph) -> dict[str, object]:
    return {
        "objects": [it._asdict() for it in drawn.nodes],
        "dependencies": [{"object": it.head, "on": it.tail, "by": it.told} for it in drawn.links],
    }

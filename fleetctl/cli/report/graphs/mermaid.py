"""The graph as a mermaid flowchart, which GitHub, GitLab and notebooks draw. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.cli.report.graphs.colours import COLOURS, OTHER
from fleetctl.views.graph import DependencyGraph, GraphNode


def draw_lines(drawn: DependencyGraph) -> Iterator[str]:
    yield "flowchart LR"
    names = {node.key: f"n{number}" for number, node in enumerate(drawn.nodes)}
    for node in drawn.nodes:
        yield f'  {names[node.key]}["{_format_label(node)}"]:::{node.state}'
    for link in drawn.links:
        yield f'  {names[link.tail]} -->|"{link.told}"| {names[link.head]}'
    for state in dict.fromkeys(node.state for node in drawn.nodes):
        fill, line = COLOURS.get(state, OTHER)
        yield f"  classDef {state} fill:{fill},stroke:{line},color:#111"


def _format_label(node: GraphNode) -> str:
    # Names of objects have no character that means something in a label.
    return "<br/>".join(filter(None, (node.key, f"{node.state} {node.done}".strip())))

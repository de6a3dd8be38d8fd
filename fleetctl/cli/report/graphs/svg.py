"""The graph as an SVG: layers from left to right, a box an object. Pure.

A hundred lines of our own: programs that lay graphs out better are written in other languages, and
users chain a dozen objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from fleetctl.cli.report.graphs.colours import COLOURS, OTHER
from fleetctl.views.graph import DependencyGraph, GraphLink, GraphNode, split_layers

# In pixels. A character of the font is about 7.3 wide.
CHAR = 7.3
HEIGHT = 44
GAP_X = 90
GAP_Y = 18
MARGIN = 16
PADDING = 12
FONT = "font-family='ui-monospace,Menlo,Consolas,monospace' font-size='12'"
LABEL_LIFT = 5
WIDTH_MIN = 90

Boxes = dict[str, tuple[float, float, float]]  # key -> left, top, width


def draw_lines(drawn: DependencyGraph) -> Iterator[str]:
    boxes, width, height = _lay_out_boxes(drawn)
    yield (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0f}' height='{height:.0f}'"
        f" viewBox='0 0 {width:.0f} {height:.0f}' {FONT} role='img'>"
    )
    yield "<title>what depends on what</title>"
    yield (
        "<defs><marker id='end' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='7'"
        " markerHeight='7' orient='auto'><path d='M0,0 L8,4 L0,8 z' fill='#555'/></marker></defs>"
    )
    yield f"<rect width='{width:.0f}' height='{height:.0f}' fill='#ffffff'/>"
    for link in drawn.links:
        yield from _draw_arrow(link, boxes)
    for node in drawn.nodes:
        yield from _draw_box(node, boxes)
    yield "</svg>"


def _lay_out_boxes(drawn: DependencyGraph) -> tuple[Boxes, float, float]:
    """Returns the position of each box, and the size of the whole."""
    boxes: Boxes = {}
    left = float(MARGIN)
    bottom = 0.0
    for layer in split_layers(drawn):
        width = max((_measure_width(node) for node in layer), default=0.0)
        for row, node in enumerate(layer):
            top = MARGIN + row * (HEIGHT + GAP_Y)
            boxes[node.key] = left, float(top), width
            bottom = max(bottom, top + HEIGHT)
        left += width + GAP_X
    return boxes, max(left - GAP_X, MARGIN) + MARGIN, bottom + MARGIN


def _measure_width(node: GraphNode) -> float:
    longest = max(len(node.key), len(_format_state(node)))
    return max(WIDTH_MIN, longest * CHAR + 2 * PADDING)


def _format_state(node: GraphNode) -> str:
    return f"{node.state} {node.done}".strip()


def _draw_box(node: GraphNode, boxes: Boxes) -> Iterator[str]:
    left, top, width = boxes[node.key]
    fill, line = COLOURS.get(node.state, OTHER)
    yield f"<g><title>{escape(node.why or node.state)}</title>"
    yield (
        f"<rect x='{left:.1f}' y='{top:.1f}' width='{width:.1f}' height='{HEIGHT}' rx='6'"
        f" fill='{fill}' stroke='{line}'/>"
    )
    middle = left + width / 2
    for lift, text, weight in ((18, node.key, "600"), (34, _format_state(node), "400")):
        yield (
            f"<text x='{middle:.1f}' y='{top + lift:.1f}' text-anchor='middle'"
            f" font-weight='{weight}' fill='#111'>{escape(text)}</text>"
        )
    yield "</g>"


def _draw_arrow(link: GraphLink, boxes: Boxes) -> Iterator[str]:
    left, top, width = boxes[link.tail]
    to_left, to_top, _ = boxes[link.head]
    x1 = left + width
    y1 = top + HEIGHT / 2
    x2 = to_left
    y2 = to_top + HEIGHT / 2
    bend = max(GAP_X / 2, (x2 - x1) / 2)
    yield (
        f"<path d='M{x1:.1f},{y1:.1f} C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f}"
        f" {x2:.1f},{y2:.1f}' fill='none' stroke='#555' marker-end='url(#end)'/>"
    )
    yield (
        f"<text x='{(x1 + x2) / 2:.1f}' y='{(y1 + y2) / 2 - LABEL_LIFT:.1f}'"
        f" text-anchor='middle' font-size='10' fill='#555'>{escape(link.told)}</text>"
    )

"""The graph of objects as a drawing: an SVG in layers, a mermaid flowchart, or a tree for
terminals. Pure; called by `fleetctl graph`.

The layout is a hundred lines of our own: programs that lay graphs out better are written in other
languages, and users chain a dozen objects. In the tree an object with several dependencies stands
below the first; under the others it is only named.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from fleetctl.common.text import escape_line
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

HEADER = ("OBJECT", "STATUS", "DONE", "AFTER")
NONE = "-"
ABOVE = "see above"

COLOURS = {
    "Succeeded": ("#d3f2d9", "#2e8540"),
    "Ready": ("#d3f2d9", "#2e8540"),
    "Running": ("#d6e8fb", "#1f6fbf"),
    "Failed": ("#fbd9d7", "#c0392b"),
    "Missing": ("#fbd9d7", "#c0392b"),
    "Pending": ("#fdf0cd", "#b7860b"),
    "Suspended": ("#fdf0cd", "#b7860b"),
}
OTHER = ("#eeeeee", "#777777")


def draw_svg(drawn: DependencyGraph) -> Iterator[str]:
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


def draw_mermaid(drawn: DependencyGraph) -> Iterator[str]:
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


def draw_rows(drawn: DependencyGraph) -> Iterator[tuple[str, str, str, str]]:
    """Yields cells by HEADER. Plain ASCII, so that it looks the same wherever it is pasted."""
    below: dict[str, list[GraphLink]] = {}
    for link in drawn.links:
        below.setdefault(link.tail, []).append(link)
    known = {it.key: it for it in drawn.nodes}
    heads = {it.head for it in drawn.links}
    shown: set[str] = set()
    # A cycle has no root; it begins at any of its objects.
    for node in [*(it for it in drawn.nodes if it.key not in heads), *drawn.nodes]:
        if node.key not in shown:
            yield from _walk_tree(node, below, known, shown)


def _walk_tree(
    root: GraphNode,
    below: dict[str, list[GraphLink]],
    known: dict[str, GraphNode],
    shown: set[str],
) -> Iterator[tuple[str, str, str, str]]:
    # (node, how it hangs on the one above, what stands before its name, and before those below it)
    left = [(root, "", "", "")]
    while left:
        node, told, prefix, indent = left.pop()
        if node.key in shown:
            yield escape_line(f"{prefix}{node.key}"), ABOVE, "", told
            continue
        shown.add(node.key)
        yield escape_line(f"{prefix}{node.key}"), node.state, node.done or NONE, told or NONE
        links = below.get(node.key, [])
        for number, link in reversed(list(enumerate(links))):
            last = number == len(links) - 1
            mark, rest = ("`-- ", "    ") if last else ("|-- ", "|   ")
            left.append((known[link.head], link.told, indent + mark, indent + rest))

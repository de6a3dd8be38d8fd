"""Writes a spec as lines of `describe`, with long programs and lists cut. The whole, to be read
back, is `get -o yaml`; this one loads no YAML library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from fleetctl.common.text import count_noun, escape_line, format_scalar
from fleetctl.manifest.plain_scalars import resolve_scalar

LINES_SHOWN_MAX = 6
ITEMS_SHOWN_MAX = 6
LINE_CELLS_MAX = 120
STEP = "  "
# A plain text of YAML cannot begin with these, as far as `scalar` leaves it bare.
_MARKS = frozenset("-?:&*!|>%@`#")


def spec_lines(spec: Mapping[str, object]) -> Iterator[str]:
    """Yields lines that are safe for a terminal."""
    for name, value in spec.items():
        yield from _format_field(escape_line(name), value)


def _format_field(name: str, value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield f"{name}:"
        yield from (STEP + line for line in spec_lines(value))
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        yield f"{name}:"
        yield from _format_items(value)
    elif isinstance(value, list):
        shown = [_format_spec_value(item) for item in value[:ITEMS_SHOWN_MAX]]
        yield f"{name}: [{', '.join([*shown, *_format_rest(value)])}]"
    elif isinstance(value, str) and len(lines := value.splitlines()) > 1:
        yield f"{name}: |"
        yield from (STEP + _cut_text(line) for line in lines[:LINES_SHOWN_MAX])
        left = len(lines) - LINES_SHOWN_MAX
        if left > 0:
            yield f"{STEP}... {count_noun(left, 'more line')}"
    else:
        yield f"{name}: {_format_spec_value(value)}"


def _format_items(value: list[object]) -> Iterator[str]:
    for item in value[:ITEMS_SHOWN_MAX]:
        lines = list(spec_lines(item)) if isinstance(item, dict) else [_format_spec_value(item)]
        for mark, line in zip(["- ", *[STEP] * len(lines)], lines, strict=False):
            yield mark + line
    yield from _format_rest(value)


def _format_rest(value: list[object]) -> list[str]:
    left = len(value) - ITEMS_SHOWN_MAX
    if left > 0:
        return [f"... {left} more"]
    return []


def _format_spec_value(value: object) -> str:
    if isinstance(value, str) and _needs_quotes(value):
        return _cut_text(json.dumps(value, ensure_ascii=False))
    return _cut_text("null" if value is None else format_scalar(value))


def _needs_quotes(text: str) -> bool:
    """Returns true where YAML would read it as a number, a truth value or null, or as a mark of its
    own."""
    try:
        return text[:1] in _MARKS or text.endswith(":") or not isinstance(resolve_scalar(text), str)
    except ValueError:  # a number that is too large
        return True


def _cut_text(text: str) -> str:
    return escape_line(text if len(text) <= LINE_CELLS_MAX else f"{text[:LINE_CELLS_MAX]} ...")

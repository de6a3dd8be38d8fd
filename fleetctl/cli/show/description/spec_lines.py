"""The spec in `describe`: laid out as YAML, with long programs and lists cut. The whole, to be
read back, is `get -o yaml`; this one loads no YAML library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from fleetctl.common.text import plural, safe, scalar
from fleetctl.manifest.plain import resolve

LINES_SHOWN_MAX = 6
ITEMS_SHOWN_MAX = 6
LINE_CELLS_MAX = 120
STEP = "  "
# What a plain text of YAML cannot begin with, as far as `scalar` leaves it bare.
_MARKS = frozenset("-?:&*!|>%@`#")


def spec_lines(spec: Mapping[str, object]) -> Iterator[str]:
    """Each made safe for a terminal."""
    for name, value in spec.items():
        yield from _field(safe(name), value)


def _field(name: str, value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield f"{name}:"
        yield from (STEP + line for line in spec_lines(value))
    elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        yield f"{name}:"
        yield from _items(value)
    elif isinstance(value, list):
        shown = [_one(item) for item in value[:ITEMS_SHOWN_MAX]]
        yield f"{name}: [{', '.join([*shown, *_left(value)])}]"
    elif isinstance(value, str) and len(lines := value.splitlines()) > 1:
        yield f"{name}: |"
        yield from (STEP + _cut(line) for line in lines[:LINES_SHOWN_MAX])
        left = len(lines) - LINES_SHOWN_MAX
        if left > 0:
            yield f"{STEP}... {plural(left, 'more line')}"
    else:
        yield f"{name}: {_one(value)}"


def _items(value: list[object]) -> Iterator[str]:
    for item in value[:ITEMS_SHOWN_MAX]:
        lines = list(spec_lines(item)) if isinstance(item, dict) else [_one(item)]
        for mark, line in zip(["- ", *[STEP] * len(lines)], lines, strict=False):
            yield mark + line
    yield from _left(value)


def _left(value: list[object]) -> list[str]:
    left = len(value) - ITEMS_SHOWN_MAX
    return [f"... {left} more"] if left > 0 else []


def _one(value: object) -> str:
    if isinstance(value, str) and _needs_quotes(value):
        return _cut(json.dumps(value, ensure_ascii=False))
    return _cut("null" if value is None else scalar(value))


def _needs_quotes(text: str) -> bool:
    """Whether YAML would read it as a number, a truth value or nothing, or as a mark of its own."""
    try:
        return text[:1] in _MARKS or text.endswith(":") or not isinstance(resolve(text), str)
    except ValueError:  # a number that is too large
        return True


def _cut(text: str) -> str:
    return safe(text if len(text) <= LINE_CELLS_MAX else f"{text[:LINE_CELLS_MAX]} ...")

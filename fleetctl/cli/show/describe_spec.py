"""The spec in `describe`: as YAML, with long programs and lists cut. The whole is `get -o yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.common.text import plural, safe_lines
from fleetctl.manifest.yaml.emit import to_yaml

LINES_SHOWN_MAX = 6
ITEMS_SHOWN_MAX = 4
LINE_CELLS_MAX = 120


def spec_lines(spec: Mapping[str, object]) -> Iterator[str]:
    """One line of YAML each, made safe for a terminal."""
    text = to_yaml(_short(spec)).removesuffix("\n")
    yield from safe_lines(text)


def _short(value: object) -> object:
    if isinstance(value, dict):
        return {key: _short(inner) for key, inner in value.items()}
    if isinstance(value, list):
        shown = [_short(item) for item in value[:ITEMS_SHOWN_MAX]]
        left = len(value) - len(shown)
        return [*shown, f"... {left} more"] if left > 0 else shown
    return _cut(value) if isinstance(value, str) else value


def _cut(text: str) -> str:
    lines = text.splitlines()
    left = len(lines) - LINES_SHOWN_MAX
    if left <= 0 and max(map(len, lines), default=0) <= LINE_CELLS_MAX:
        return text
    shown = [
        line if len(line) <= LINE_CELLS_MAX else f"{line[:LINE_CELLS_MAX]} ..."
        for line in lines[:LINES_SHOWN_MAX]
    ]
    return "\n".join([*shown, f"... {plural(left, 'more line')}"] if left > 0 else shown)

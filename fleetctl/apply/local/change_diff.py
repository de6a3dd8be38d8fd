"""Formats the difference between a stored object and its manifest as a unified diff."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from fleetctl.apply.change import Change
from fleetctl.common.text import escape_line
from fleetctl.controllers.model import Resource
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.tracking.annotations import NOTES
from fleetctl.tracking.by_hand import field_note, format_paths

CONTEXT_LINES = 3


def format_diff(change: Change) -> Iterator[str]:
    """Yields a unified diff with file names as kubectl gives them; no line for equal objects."""
    if change.outcome == "unchanged":
        return
    gone = change.after.deleted_at_s is not None
    name = escape_line(f"{change.after.kind.lower()}.{change.after.namespace}.{change.after.name}")
    before = _render_yaml(change.before) if change.before is not None else []
    after = [] if gone else _render_yaml(change.after)
    made = difflib.unified_diff(
        before,
        after,
        f"live/{name}",
        f"file/{name}",
        lineterm="",
        n=CONTEXT_LINES,
    )
    line_of_live = 0
    for moved in change.fields:
        if moved.difference and change.before is not None:
            yield f"# {name}: {moved.path} {escape_line(moved.difference)}"
    if change.before is not None and (hand := field_note(change.after.annotations).hand):
        yield f"# {name}: {escape_line(format_paths(hand))} set by hand stays"
    for line in made:
        if line.startswith("@@"):
            line_of_live = int(line[4:].partition(",")[0].partition(" ")[0])
            yield f"{line} {_find_section(before or after, line_of_live)}".rstrip()
        else:
            yield escape_line(line)


def _render_yaml(resource: Resource) -> list[str]:
    """Returns the canonical YAML of the fields that a user may change. Secrets are references here,
    never values."""
    shown: dict[str, object] = {}
    if resource.labels:
        shown["labels"] = dict(sorted(resource.labels.items()))
    fields = {key: text for key, text in resource.annotations.items() if key not in NOTES}
    if fields:
        shown["annotations"] = dict(sorted(fields.items()))
    shown["spec"] = _as_written(json.loads(resource.spec))
    return to_yaml(shown).splitlines()


def _as_written(value: Any) -> Any:
    """Returns whole seconds without `.0`, as users write them."""
    if isinstance(value, dict):
        return {key: _as_written(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_written(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _find_section(lines: Sequence[str], number: int) -> str:
    """Returns the key of the outermost block that the hunk begins in, as git names a function
    there."""
    for line in reversed(lines[: max(number, 1)]):
        if line[:1].strip() and line.endswith(":"):
            return line.removesuffix(":")
    return ""

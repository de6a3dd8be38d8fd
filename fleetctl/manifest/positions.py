"""Where a finding stands in the text that was read, and the problem that this makes of it.

Called by loader.py for what it finds itself, and by who finds more in a loaded manifest. A text is
walked a second time for it: only what is wrong pays for positions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.plain import resolve
from fleetctl.manifest.problems import Path, Problem, path_text
from fleetctl.manifest.yaml.errors import Position
from fleetctl.manifest.yaml.reader import Root, read


def _places(found: Iterable[Finding]) -> frozenset[Path]:
    """The paths of the findings and everything above them."""
    return frozenset(it.path[:depth] for it in found for depth in range(1, len(it.path) + 1))


def located(
    found: Sequence[Finding], marked: Root, document: Document, moved: Mapping[Path, Document]
) -> Iterator[Problem]:
    """marked: read with their places wanted. moved: paths whose content stands in other files."""
    here = list(found)
    for prefix, other in moved.items():
        there = [_without(prefix, it) for it in here if it.path[: len(prefix)] == prefix]
        here = [it for it in here if it.path[: len(prefix)] != prefix]
        (root,) = read(other.path, other.text, wanted=_places(there)).roots
        yield from (_problem(it, root, other) for it in there)
    yield from (_problem(it, marked, document) for it in here)


def _without(prefix: Path, finding: Finding) -> Finding:
    depth = len(prefix)
    return replace(finding, path=finding.path[depth:], subject=finding.subject[depth:])


def _problem(finding: Finding, root: Root, document: Document) -> Problem:
    line, column = _position(root, finding.path, at_key=finding.at_key)
    if finding.row and _begins_a_block(document.text, (line, column)):
        line, column = line + finding.row, 1
    problem, hint = finding.problem, finding.hint
    if finding.path in root.written:
        # 3.10 is not to be shown as 3.1, nor 3e-5 as 3e-05: the author looks for what is written.
        problem, hint = (_as_written(it, root.written[finding.path]) for it in (problem, hint))
    message = (path_text(finding.subject) or "the document") + problem
    return Problem(document.path, line, column, message, hint)


def _as_written(text: str, written: str) -> str:
    for form in ("`{}`", '`"{}"`'):
        text = text.replace(form.format(json.dumps(resolve(written))), form.format(written))
    return text


def _begins_a_block(text: str, at: Position) -> bool:
    """Whether the value there is written in lines of its own, after a `|`."""
    line = text.splitlines()[at[0] - 1]
    return line[at[1] - 1 : at[1]] == "|"


def _position(root: Root, path: Path, *, at_key: bool) -> Position:
    """Where the value stands; for a key, or a value that is a collection, where its key stands."""
    for depth in range(len(path), 0, -1):
        here = path[:depth]
        if here in root.keys and (at_key or depth < len(path) or here in root.collections):
            return root.keys[here]
        if here in root.values:
            return root.values[here]
    return root.position

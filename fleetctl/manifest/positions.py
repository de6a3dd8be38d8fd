"""Where a finding stands in the texts that were read, and the problem that this makes of it.

Called by loader.py for what it finds itself, and by who finds more in a loaded manifest. A text is
walked a second time for it: only what is wrong pays for positions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.files.lists import read_manifests
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.plain import resolve
from fleetctl.manifest.problems import Path, Problem, escaped, joined, path_text
from fleetctl.manifest.yaml.errors import Position
from fleetctl.manifest.yaml.reader import Root, read


@dataclass(frozen=True, slots=True)
class Note:
    """A value that was put in for a variable. said: who gave it, such as `--set`; empty where a
    file did, at `written` and `path`.
    """

    name: str
    said: str
    written: Written | None = None
    path: Path = ()

    def text(self, at: Problem | None) -> str:
        """at: where the value stands."""
        if at is None:
            return f"`${{{{ {self.name} }}}}` is given by {self.said}"
        where = f"{escaped(at.file)}:{at.line}:{at.column}"
        return f"`${{{{ {self.name} }}}}` has its value from {where}"


@dataclass(frozen=True, slots=True)
class Written:
    """Where a manifest was read: which of the documents of a text, and what stands elsewhere.

    prefix: of an item of a list. moved: paths whose content is the whole of another file. parts:
    paths whose content, of any depth, stands in another document under another path. notes: paths
    that hold values of variables.
    """

    document: Document
    number: int
    prefix: Path = ()
    moved: Mapping[Path, Document] = field(default_factory=dict)
    parts: Mapping[Path, tuple[Written, Path]] = field(default_factory=dict)
    notes: Mapping[Path, tuple[Note, ...]] = field(default_factory=dict)


Told = Problem | tuple[Written, Finding]


def all_located(told: Iterable[Told]) -> list[Problem]:
    """The same, beside what has its place already."""
    found = list(told)
    places = iter(located(it for it in found if not isinstance(it, Problem)))
    return [it if isinstance(it, Problem) else next(places) for it in found]


Text = tuple[str, str]  # directory and path, which tell it from others


def located(found: Iterable[tuple[Written, Finding]]) -> list[Problem]:
    """In their order. Each text is read once."""
    settled = _with_notes([_settled(written, finding) for written, finding in found])
    ours: dict[Text, tuple[Document, list[tuple[Path, Path]]]] = {}
    others: dict[Text, tuple[Document, set[Path]]] = {}
    for written, finding in settled:
        prefix = _moved(written, finding)
        if prefix is None:
            document = written.document
            ours.setdefault(_key(document), (document, []))[1].append(
                (written.prefix, finding.path)
            )
        else:
            document = written.moved[prefix]
            above = _above(finding.path[len(prefix) :])
            others.setdefault(_key(document), (document, set()))[1].update(above)
    roots = {
        key: read_manifests(document.path, document.text, wanted=wanted).roots
        for key, (document, wanted) in ours.items()
    }
    whole = {
        key: read(document.path, document.text, wanted=frozenset(wanted)).roots[0]
        for key, (document, wanted) in others.items()
    }
    problems = []
    lines: dict[Text, list[str]] = {}
    for written, finding in settled:
        prefix = _moved(written, finding)
        if prefix is None:
            document = written.document
            root = roots[_key(document)][written.number]
        else:
            document = written.moved[prefix]
            root = whole[_key(document)]
            finding = _without(prefix, finding)
        if finding.row and _key(document) not in lines:
            lines[_key(document)] = document.text.splitlines()
        problems.append(_problem(finding, root, document, lines.get(_key(document), ())))
    return problems


def _key(document: Document) -> Text:
    return document.dir, document.path


def _settled(written: Written, finding: Finding) -> tuple[Written, Finding]:
    """The document in which the path of the finding is written."""
    if _moved(written, finding) is not None:
        return written, finding
    while (prefix := _longest(written.parts, finding.path)) is not None:
        written, path = written.parts[prefix]
        finding = replace(finding, path=(*path, *finding.path[len(prefix) :]))
    return written, finding


def _with_notes(settled: list[tuple[Written, Finding]]) -> list[tuple[Written, Finding]]:
    """What variables have to do with it. Their values are looked up all at once."""
    notes = [_notes_at(written, finding) for written, finding in settled]
    asked: dict[tuple[int, Path], tuple[Written, Finding]] = {}
    for note in (it for some in notes for it in some):
        if note.written is not None:
            asked[id(note.written), note.path] = (note.written, Finding(note.path, (), ""))
    if not any(notes):
        return settled
    places = dict(zip(asked, located(asked.values()), strict=True))
    out = []
    for (written, finding), some in zip(settled, notes, strict=True):
        told = ", ".join(it.text(places.get((id(it.written), it.path))) for it in some)
        out.append((written, replace(finding, problem=joined(finding.problem, told))))
    return out


def _notes_at(written: Written, finding: Finding) -> tuple[Note, ...]:
    if _moved(written, finding) is not None:
        return ()
    noted = _longest(written.notes, finding.path)
    return () if noted is None else written.notes[noted]


def _longest(paths: Mapping[Path, object], path: Path) -> Path | None:
    """The path itself or the nearest one above it that is a key."""
    if not paths:
        return None
    depths = range(len(path), -1, -1)
    return next((path[:depth] for depth in depths if path[:depth] in paths), None)


def _moved(written: Written, finding: Finding) -> Path | None:
    return next((it for it in written.moved if finding.path[: len(it)] == it), None)


def _without(prefix: Path, finding: Finding) -> Finding:
    depth = len(prefix)
    return replace(finding, path=finding.path[depth:], subject=finding.subject[depth:])


def _above(path: Path) -> Iterator[Path]:
    return (path[:depth] for depth in range(1, len(path) + 1))


def _problem(finding: Finding, root: Root, document: Document, lines: Sequence[str]) -> Problem:
    """lines: of the document, where the finding has a row."""
    line, column = _position(root, finding.path, at_key=finding.at_key)
    if finding.row and _begins_a_block(lines, (line, column)):
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


def _begins_a_block(lines: Sequence[str], at: Position) -> bool:
    """Whether the value there is written in lines of its own, after a `|`."""
    line = lines[at[0] - 1]
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

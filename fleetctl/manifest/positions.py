"""Finds the position of a finding in the texts that were read, and makes a problem from both.

Called by loader.py for its own findings, and by callers that find more in a loaded manifest. A text
is walked a second time for its positions: only faults pay for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.document.short import find_written_path
from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.plain_scalars import resolve_scalar
from fleetctl.manifest.problems import ManifestProblem, escape_text, join_sentences, path_text
from fleetctl.manifest.yaml.reader import YamlDocument, read_manifests, read_yaml
from fleetctl.manifest.yaml.syntax_errors import Position


@dataclass(frozen=True, slots=True)
class SubstitutionNote:
    """A value that replaced a variable. said: its source, such as `--set`; empty for a value of a
    file, at `written` and `path`.
    """

    name: str
    said: str
    written: ManifestOrigin | None = None
    path: Path = ()

    def text(self, at: ManifestProblem | None) -> str:
        """Returns the text of the note. at: position of the value."""
        if at is None:
            return f"`${{{{ {self.name} }}}}` is given by {self.said}"
        where = f"{escape_text(at.file)}:{at.line}:{at.column}"
        return f"`${{{{ {self.name} }}}}` has its value from {where}"


@dataclass(frozen=True, slots=True)
class ManifestOrigin:
    """The source of a manifest: the document of a text, and the parts that stand elsewhere.

    prefix: of an item of a list. moved: paths whose content is the whole of another file. parts:
    paths whose content, of any depth, stands in another document under another path. notes: paths
    that hold values of variables. short: paths of the full form that the document has elsewhere.
    """

    document: Document
    number: int
    prefix: Path = ()
    moved: Mapping[Path, Document] = field(default_factory=dict)
    parts: Mapping[Path, tuple[ManifestOrigin, Path]] = field(default_factory=dict)
    notes: Mapping[Path, tuple[SubstitutionNote, ...]] = field(default_factory=dict)
    short: Mapping[Path, Path] = field(default_factory=dict)


Told = ManifestProblem | tuple[ManifestOrigin, Finding]


def locate_all(told: Iterable[Told]) -> list[ManifestProblem]:
    """Locates findings; problems that have a position stay as they are."""
    found = list(told)
    places = iter(locate_problems(it for it in found if not isinstance(it, ManifestProblem)))
    return [it if isinstance(it, ManifestProblem) else next(places) for it in found]


Text = tuple[str, str]  # directory and path, which identify the text


def locate_problems(found: Iterable[tuple[ManifestOrigin, Finding]]) -> list[ManifestProblem]:
    """Returns the problems in the order of the findings. Each text is read once."""
    settled = _with_notes([_follow_parts(written, finding) for written, finding in found])
    settled = [(written, _as_in_file(written, finding)) for written, finding in settled]
    roots, moved_roots = _read_texts(settled)

    problems = []
    lines: dict[Text, list[str]] = {}
    for written, finding in settled:
        prefix = _moved_prefix(written, finding)
        if prefix is None:
            document = written.document
            key = _document_key(document)
            root = roots[key][written.number]
        else:
            document = written.moved[prefix]
            key = _document_key(document)
            root = moved_roots[key]
            finding = _strip_prefix(prefix, finding)
        if finding.row and key not in lines:
            lines[key] = document.text.splitlines()
        problems.append(_make_problem(finding, root, document, lines.get(key, ())))
    return problems


def _read_texts(
    settled: Sequence[tuple[ManifestOrigin, Finding]],
) -> tuple[Mapping[Text, Sequence[YamlDocument]], Mapping[Text, YamlDocument]]:
    """Returns the roots of each manifest text, and the root of each file that holds moved values,
    with the positions of all findings.
    """
    manifests: dict[Text, tuple[Document, list[tuple[Path, Path]]]] = {}
    others: dict[Text, tuple[Document, set[Path]]] = {}
    for written, finding in settled:
        prefix = _moved_prefix(written, finding)
        if prefix is None:
            document = written.document
            paths = manifests.setdefault(_document_key(document), (document, []))[1]
            paths.append((written.prefix, finding.where))
        else:
            document = written.moved[prefix]
            above = _parent_paths(finding.where[len(prefix) :])
            others.setdefault(_document_key(document), (document, set()))[1].update(above)

    roots = {}
    for key, (document, paths) in manifests.items():
        roots[key] = read_manifests(document.path, document.text, wanted=paths).roots
    moved_roots = {}
    for key, (document, parents) in others.items():
        read = read_yaml(document.path, document.text, wanted=frozenset(parents))
        moved_roots[key] = read.roots[0]
    return roots, moved_roots


def _document_key(document: Document) -> Text:
    return document.dir, document.path


def _follow_parts(written: ManifestOrigin, finding: Finding) -> tuple[ManifestOrigin, Finding]:
    """The document in which the path of the finding is written."""
    if _moved_prefix(written, finding) is not None:
        return written, finding
    while (prefix := _longest_prefix(written.parts, finding.where)) is not None:
        written, path = written.parts[prefix]
        finding = replace(
            finding, where=(*path, *finding.where[len(prefix) :]), about=finding.subject
        )
    return written, finding


def _as_in_file(written: ManifestOrigin, finding: Finding) -> Finding:
    """Returns the finding with the paths of the short form, if the author wrote that form."""
    if not written.short or _moved_prefix(written, finding) is not None:
        return finding
    hint = finding.fix
    if any(key[-1:] == ("template",) and not at for key, at in written.short.items()):
        hint = hint.replace("`template.", "`")  # a level that the author left out
    return replace(
        finding,
        where=find_written_path(written.short, finding.where),
        about=find_written_path(written.short, finding.subject),
        fix=hint,
    )


def _with_notes(
    settled: list[tuple[ManifestOrigin, Finding]],
) -> list[tuple[ManifestOrigin, Finding]]:
    """Adds the variables behind a finding. Their values are looked up all at once."""
    notes = [_notes_at(written, finding) for written, finding in settled]
    asked: dict[tuple[int, Path], tuple[ManifestOrigin, Finding]] = {}
    for note in (it for some in notes for it in some):
        if note.written is not None:
            asked[id(note.written), note.path] = (note.written, Finding(note.path, "", about=()))
    if not any(notes):
        return settled
    places = dict(zip(asked, locate_problems(asked.values()), strict=True))
    out = []
    for (written, finding), some in zip(settled, notes, strict=True):
        told = ", ".join(it.text(places.get((id(it.written), it.path))) for it in some)
        out.append((written, replace(finding, what=join_sentences(finding.what, told))))
    return out


def _notes_at(written: ManifestOrigin, finding: Finding) -> tuple[SubstitutionNote, ...]:
    if _moved_prefix(written, finding) is not None:
        return ()
    noted = _longest_prefix(written.notes, finding.where)
    if noted is None:
        return ()
    return written.notes[noted]


def _longest_prefix(paths: Mapping[Path, object], path: Path) -> Path | None:
    """The path itself or the nearest one above it that is a key."""
    if not paths:
        return None
    depths = range(len(path), -1, -1)
    return next((path[:depth] for depth in depths if path[:depth] in paths), None)


def _moved_prefix(written: ManifestOrigin, finding: Finding) -> Path | None:
    return next((it for it in written.moved if finding.where[: len(it)] == it), None)


def _strip_prefix(prefix: Path, finding: Finding) -> Finding:
    depth = len(prefix)
    return replace(finding, where=finding.where[depth:], about=finding.subject[depth:])


def _parent_paths(path: Path) -> Iterator[Path]:
    return (path[:depth] for depth in range(1, len(path) + 1))


def _make_problem(
    finding: Finding,
    root: YamlDocument,
    document: Document,
    lines: Sequence[str],
) -> ManifestProblem:
    """Makes a problem. lines: lines of the document, if the finding has a row."""
    line, column = _find_position(root, finding.where, at_key=finding.at_key)
    if finding.row and _begins_a_block(lines, (line, column)):
        line = line + finding.row
        column = 1
    problem = finding.what
    hint = finding.fix
    if finding.where in root.written:
        # 3.10 is not shown as 3.1, nor 3e-5 as 3e-05: the author looks for the written text.
        problem, hint = (_as_written(it, root.written[finding.where]) for it in (problem, hint))
    message = (path_text(finding.subject) or "the document") + problem
    return ManifestProblem(
        document.path,
        line,
        column,
        message,
        hint,
        finding.severity,
    )


def _as_written(text: str, written: str) -> str:
    for form in ("`{}`", '`"{}"`'):
        text = text.replace(form.format(json.dumps(resolve_scalar(written))), form.format(written))
    return text


def _begins_a_block(lines: Sequence[str], at: Position) -> bool:
    """Returns True if the value there is written in lines of its own, after a `|`."""
    line = lines[at[0] - 1]
    return line[at[1] - 1 : at[1]] == "|"


def _find_position(
    root: YamlDocument,
    path: Path,
    *,
    at_key: bool,
) -> Position:
    """Returns the position of the value; for a key, or a value that is a collection, of its key."""
    for depth in range(len(path), 0, -1):
        here = path[:depth]
        if here in root.keys and (at_key or depth < len(path) or here in root.collections):
            return root.keys[here]
        if here in root.values:
            return root.values[here]
    return root.position

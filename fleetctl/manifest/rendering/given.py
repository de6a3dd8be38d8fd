"""Values of variables, as they are given: by `--set`, by files, by overlays. Whoever comes first in
a list of sources wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.manifest.files.documents import SET, VALUES, Document
from fleetctl.manifest.messages import Finding, suggestion
from fleetctl.manifest.positions import Note, Told, Written
from fleetctl.manifest.problems import PROBLEMS_SHOWN_MAX, Path, Problem, value_text
from fleetctl.manifest.yaml.reader import read

FLAG = "--set"


@dataclass(frozen=True, slots=True)
class Given:
    """One value. raw: the text of a flag, which the variable's type reads; else value is what was
    read. written, path: where, in a file.
    """

    name: str
    value: Any = None
    raw: str | None = None
    written: Written | None = None
    path: Path = ()

    def as_type(self, sort: str) -> Any:
        """A flag's text as a value of this type; what is not one stays a text."""
        if self.raw is None or sort == "string":
            return self.value if self.raw is None else self.raw
        reading = read(FLAG, self.raw)
        if reading.problems or len(reading.roots) != 1:
            return self.raw
        return reading.roots[0].value

    def shown(self, value: Any) -> str:
        """For a message; stars where the name says that nobody should see it."""
        return value_text(value, (self.name,))

    def note(self) -> Note:
        said = f"`{FLAG} {self.name}=...`" if self.raw is not None else ""
        return Note(self.name, said, self.written, self.path)

    def told(self, message: str, hint: str = "", *, at_key: bool = False) -> Told:
        """message: goes on from the variable's name."""
        if self.written is None:
            return Problem(FLAG, 0, 0, f"{self.name}{message}", hint)
        return self.written, Finding(self.path, (self.name,), message, hint, at_key=at_key)


Source = Mapping[str, Given]


def sources_in(documents: Iterable[Document]) -> tuple[list[Source], list[Problem]]:
    """The flags and the files among the documents, those that win first."""
    flags: dict[str, Given] = {}
    files: list[Source] = []
    problems: list[Problem] = []
    for document in documents:
        if document.role == SET:
            name, _, raw = document.text.partition("=")
            flags[name] = Given(name, raw=raw)  # the last of a name wins
        elif document.role == VALUES:
            source, wrong = _file(document)
            files.append(source)
            problems += wrong
    return [flags, *reversed(files)], problems


def _file(document: Document) -> tuple[Source, list[Problem]]:
    if document.refused:
        return {}, [Problem(document.path, 0, 0, document.refused, document.hint)]
    reading = read(document.path, document.text)
    if reading.problems or not reading.roots:
        return {}, reading.problems
    value = reading.roots[0].value
    if len(reading.roots) > 1 or not isinstance(value, dict):
        what = "more than one document" if len(reading.roots) > 1 else value_text(value)
        message = f"the file holds {what}; it must be one mapping of variables to values"
        return {}, [Problem(document.path, 1, 1, message, "for instance `gpu: A100:4`")]
    if "kind" in value and "apiVersion" in value:
        message = "the file is a manifest, and `--values` takes a mapping of variables to values"
        return {}, [Problem(document.path, 1, 1, message, "name it with `-f`")]
    written = Written(document, 0)
    return {
        name: Given(name, value=it, written=written, path=(name,)) for name, it in value.items()
    }, []


def unknown(sources: Sequence[Source], declared: Iterable[str]) -> list[Told]:
    """Values of variables that nobody declares."""
    known = set(declared)
    names = sorted(known)
    strange = [it for source in sources for name, it in source.items() if name not in known]
    nothing = "no document `kind: Variables` is among these files"
    return [
        given.told(
            " is given a value, and no variable is called so",
            "" if at > PROBLEMS_SHOWN_MAX else suggestion(given.name, names) if names else nothing,
            at_key=True,
        )
        for at, given in enumerate(strange)
    ]

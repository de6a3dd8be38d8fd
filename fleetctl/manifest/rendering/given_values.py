"""Values of variables, as they are given: by `--set`, by files, by overlays. The first source of a
list wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.files.documents import SET, VALUES, Document
from fleetctl.manifest.findings import suggest_name
from fleetctl.manifest.positions import ManifestOrigin, SubstitutionNote, Told
from fleetctl.manifest.problems import PROBLEMS_SHOWN_MAX, ManifestProblem, value_text
from fleetctl.manifest.yaml.reader import read_yaml

FLAG = "--set"


@dataclass(frozen=True, slots=True)
class GivenValue:
    """A value of a variable. raw: the text of a flag, which the variable's type reads; else value
    is the parsed value. written, path: the position, in a file.
    """

    name: str
    value: Any = None
    raw: str | None = None
    written: ManifestOrigin | None = None
    path: Path = ()

    def as_type(self, sort: str) -> Any:
        """Returns a flag's text as a value of this type; a text of another form stays a text."""
        if self.raw is None or sort == "string":
            if self.raw is None:
                return self.value
            return self.raw
        reading = read_yaml(FLAG, self.raw)
        if reading.problems or len(reading.roots) != 1:
            return self.raw
        return reading.roots[0].value

    def shown(self, value: Any) -> str:
        """Returns the value for a message; stars if the name suggests a secret."""
        return value_text(value, (self.name,))

    def note(self) -> SubstitutionNote:
        said = f"`{FLAG} {self.name}=...`" if self.raw is not None else ""
        return SubstitutionNote(self.name, said, self.written, self.path)

    def told(
        self,
        message: str,
        hint: str = "",
        *,
        at_key: bool = False,
    ) -> Told:
        """Returns a finding. message: goes on from the variable's name."""
        if self.written is None:
            return ManifestProblem(
                FLAG,
                0,
                0,
                f"{self.name}{message}",
                hint,
            )
        return self.written, Finding(self.path, message, hint, at_key=at_key, about=(self.name,))


Source = Mapping[str, GivenValue]


def sources_in(documents: Iterable[Document]) -> tuple[list[Source], list[ManifestProblem]]:
    """The flags and the files among the documents, those that win first."""
    flags: dict[str, GivenValue] = {}
    files: list[Source] = []
    problems: list[ManifestProblem] = []
    for document in documents:
        if document.role == SET:
            name, _, raw = document.text.partition("=")
            flags[name] = GivenValue(name, raw=raw)  # the last of a name wins
        elif document.role == VALUES:
            source, wrong = _read_values_file(document)
            files.append(source)
            problems += wrong
    return [flags, *reversed(files)], problems


def _read_values_file(document: Document) -> tuple[Source, list[ManifestProblem]]:
    if document.refused:
        return {}, [
            ManifestProblem(
                document.path,
                0,
                0,
                document.refused,
                document.hint,
            )
        ]
    reading = read_yaml(document.path, document.text)
    if reading.problems or not reading.roots:
        return {}, reading.problems
    value = reading.roots[0].value
    if len(reading.roots) > 1 or not isinstance(value, dict):
        what = "more than one document" if len(reading.roots) > 1 else value_text(value)
        message = f"the file holds {what}; it must be one mapping of variables to values"
        return {}, [
            ManifestProblem(
                document.path,
                1,
                1,
                message,
                "for instance `gpu: A100:4`",
            )
        ]
    if "kind" in value and "apiVersion" in value:
        message = "the file is a manifest, and `--values` takes a mapping of variables to values"
        return {}, [
            ManifestProblem(
                document.path,
                1,
                1,
                message,
                "name it with `-f`",
            )
        ]
    written = ManifestOrigin(document, 0)
    return {
        name: GivenValue(
            name,
            value=it,
            written=written,
            path=(name,),
        )
        for name, it in value.items()
    }, []


def find_unknown_values(sources: Sequence[Source], declared: Iterable[str]) -> list[Told]:
    """Finds values of undeclared variables."""
    known = set(declared)
    names = sorted(known)
    strange = [it for source in sources for name, it in source.items() if name not in known]
    nothing = "no document `kind: Variables` is among these files"
    return [
        given.told(
            " is given a value, and no variable is called so",
            ""
            if at > PROBLEMS_SHOWN_MAX
            else suggest_name(given.name, names)
            if names
            else nothing,
            at_key=True,
        )
        for at, given in enumerate(strange)
    ]

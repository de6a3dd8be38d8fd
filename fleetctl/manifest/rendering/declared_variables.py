"""The variables that a document may refer to, and their values: given by `--set`, by files or by
overlays, the first source first.

A file of nothing but `kind: Variables` declares for its directory and all below it; a file that
holds manifests too declares for itself. A document cannot have two declarations of the same name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from fleetctl.common.finding import Finding, Path
from fleetctl.common.text import CREDENTIAL_NAME
from fleetctl.manifest.files.documents import SET, VALUES, Document
from fleetctl.manifest.findings import list_findings, suggest_name
from fleetctl.manifest.positions import ManifestOrigin, SubstitutionNote, Told
from fleetctl.manifest.problems import PROBLEMS_SHOWN_MAX, ManifestProblem, escape_text, value_text
from fleetctl.manifest.rendering.references import size_of
from fleetctl.manifest.yaml.reader import YamlDocument, read_yaml
from fleetctl.specs.rendering import Variable, Variables

FLAG = "--set"

KIND = "Variables"


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


@dataclass(slots=True)
class DeclaredVariable:
    """A variable in a scope. wrong: its value does not fit, which is reported by itself."""

    name: str
    variable: Variable
    written: ManifestOrigin
    given: GivenValue | None = None
    value: Any = None
    size: int = 0
    wrong: bool = False
    used: bool = False
    _note: SubstitutionNote | None = None  # made once: a thousand files refer to it

    def use(self) -> bool:
        self.used = True
        return not self.wrong and (self.given is not None or not self.variable.required)

    @property
    def note(self) -> SubstitutionNote:
        if self._note is None:
            default = SubstitutionNote(self.name, "", self.written, (*self._path, "default"))
            self._note = default if self.given is None else self.given.note()
        return self._note

    @property
    def missing(self) -> bool:
        return self.used and self.given is None and self.variable.required

    @property
    def _path(self) -> tuple[str, str]:
        return ("variables", self.name)

    def finding(self, problem: str, hint: str = "") -> tuple[ManifestOrigin, Finding]:
        return self.written, Finding(self._path, problem, hint, at_key=True, about=(self.name,))


@dataclass(slots=True)
class VariableScopes:
    """All declarations for the documents of a set. told: faults of declarations and values."""

    of_files: dict[str, dict[str, DeclaredVariable]] = field(default_factory=dict)
    of_directories: dict[str, dict[str, DeclaredVariable]] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    _joined: dict[tuple[str, str], dict[str, DeclaredVariable]] = field(default_factory=dict)

    def every(self) -> Iterator[DeclaredVariable]:
        for scopes in (self.of_files, self.of_directories):
            for scope in scopes.values():
                yield from scope.values()

    def of(self, document: Document) -> dict[str, DeclaredVariable]:
        """Returns the variables of a document; a name that is declared twice is reported once."""
        key = (document.dir, document.path)
        if key not in self._joined:
            self._joined[key] = self._find_visible(document)
        return self._joined[key]

    def _find_visible(self, document: Document) -> dict[str, DeclaredVariable]:
        found: dict[str, DeclaredVariable] = {}
        scopes = [self.of_files.get(document.path, {})]
        if self.of_directories:
            scopes += [self.of_directories.get(it, {}) for it in _parent_directories(document.dir)]
        for scope in scopes:
            for name, declared in scope.items():
                if found.setdefault(name, declared) is not declared:
                    self.twice(found[name], declared)
        return found

    def twice(self, one: DeclaredVariable, other: DeclaredVariable) -> None:
        place = escape_text(other.written.document.path)
        problem = f" is declared for this file already, in `{place}`"
        self.told.append(one.finding(problem, "give one of them another name"))


def _parent_directories(directory: str) -> Iterator[str]:
    yield directory
    while (above := os.path.dirname(directory)) != directory:  # as text, and often
        directory = above
        yield directory


def declare_variables(
    declarations: Sequence[tuple[YamlDocument, ManifestOrigin]],
    alone: set[str],
    sources: Sequence[Source],
) -> VariableScopes:
    """Declares variables. alone: paths of files that hold nothing else. sources: sources of values,
    the strongest first.
    """
    scopes = VariableScopes()
    for root, written in declarations:
        if root.broken:
            continue  # reported when it was read
        try:
            model = Variables.model_validate(root.value, by_alias=True, by_name=False)
        except ValidationError as error:
            scopes.told += ((written, it) for it in list_findings(error, Variables, root.value, ()))
            _add_declared(_unknown_types(root.value, written), scopes, alone, ())
        else:
            declared = [DeclaredVariable(name, it, written) for name, it in model.variables.items()]
            _add_declared(declared, scopes, alone, sources)
    return scopes


def _unknown_types(value: dict[str, Any], written: ManifestOrigin) -> list[DeclaredVariable]:
    """Returns the names in an invalid declaration as variables, so that references to them are not
    reported as further errors.
    """
    names = value.get("variables")
    some = Variable.model_construct(type="string", default="")
    return [
        DeclaredVariable(
            name,
            some,
            written,
            wrong=True,
            used=True,
        )
        for name in (names if isinstance(names, dict) else ())
    ]


def _add_declared(
    found: Sequence[DeclaredVariable],
    scopes: VariableScopes,
    alone: set[str],
    sources: Sequence[Source],
) -> None:
    for declared in found:
        document = declared.written.document
        scope = (
            scopes.of_directories.setdefault(document.dir, {})
            if document.path in alone
            else scopes.of_files.setdefault(document.path, {})
        )
        if name_taken := scope.get(declared.name):
            scopes.twice(declared, name_taken)
            continue
        scope[declared.name] = declared
        if not declared.wrong:
            scopes.told += _resolve_value(declared, sources)


def _resolve_value(declared: DeclaredVariable, sources: Sequence[Source]) -> Iterator[Told]:
    """Find its value."""
    name = declared.name
    variable = declared.variable
    if variable.type == "string" and CREDENTIAL_NAME.search(name):
        problem = " is named like a credential, and values of variables are stored and shown"
        hint = "declare a Secret, and name it in `template.secrets`"
        yield declared.finding(problem, hint)
    declared.given = next((source[name] for source in sources if name in source), None)
    if declared.given is None:
        declared.value, declared.size = variable.default, size_of(variable.default)
        return
    declared.value = declared.given.as_type(variable.type)
    declared.size = size_of(declared.value)
    if must := variable.wrong(declared.value):
        declared.wrong = True
        shown = declared.given.shown(declared.value)
        hint = f'put it into quotes: `"{declared.value}"`' if _needs_quotes(declared) else ""
        yield declared.given.told(f" is {shown}; {must}", hint)


def _needs_quotes(declared: DeclaredVariable) -> bool:
    number = isinstance(declared.value, int | float) and not isinstance(declared.value, bool)
    return declared.variable.type == "string" and number


def find_unresolved(scopes: VariableScopes) -> tuple[list[Told], list[DeclaredVariable]]:
    """Returns the missing values, after all documents were filled, and the unused variables."""
    missing: list[Told] = [
        declared.finding(
            " has no value and no default",
            f"give it one: `--set {declared.name}=...`, or in a file of `--values`",
        )
        for declared in scopes.every()
        if declared.missing
    ]
    return missing, [it for it in scopes.every() if not it.used]

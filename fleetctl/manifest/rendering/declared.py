"""Which variables a document may refer to, and what their values are.

A file of nothing but `kind: Variables` declares for its directory and all below it; one that holds
manifests too declares for itself. Nothing is declared twice for one document.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from fleetctl.manifest.files.documents import Document
from fleetctl.manifest.messages import Finding, findings
from fleetctl.manifest.positions import Note, Told, Written
from fleetctl.manifest.problems import CREDENTIAL_NAME, escaped
from fleetctl.manifest.rendering.given import Given, Source
from fleetctl.manifest.rendering.references import size_of
from fleetctl.manifest.yaml.reader import Root
from fleetctl.specs.rendering.variables import Variable, Variables

KIND = "Variables"


@dataclass(slots=True)
class Declared:
    """A variable of one scope. wrong: its value does not fit, which is told by itself."""

    name: str
    variable: Variable
    written: Written
    given: Given | None = None
    value: Any = None
    size: int = 0
    wrong: bool = False
    used: bool = False
    _note: Note | None = None  # made once: a thousand files refer to it

    def use(self) -> bool:
        self.used = True
        return not self.wrong and (self.given is not None or not self.variable.required)

    @property
    def note(self) -> Note:
        if self._note is None:
            default = Note(self.name, "", self.written, (*self._path, "default"))
            self._note = default if self.given is None else self.given.note()
        return self._note

    @property
    def missing(self) -> bool:
        return self.used and self.given is None and self.variable.required

    @property
    def _path(self) -> tuple[str, str]:
        return ("variables", self.name)

    def finding(self, problem: str, hint: str = "") -> tuple[Written, Finding]:
        return self.written, Finding(self._path, (self.name,), problem, hint, at_key=True)


@dataclass(slots=True)
class Scopes:
    """All that is declared for the documents of one set. told: what is wrong with declarations and
    values.
    """

    of_files: dict[str, dict[str, Declared]] = field(default_factory=dict)
    of_directories: dict[str, dict[str, Declared]] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    _joined: dict[tuple[str, str], dict[str, Declared]] = field(default_factory=dict)

    def every(self) -> Iterator[Declared]:
        for scopes in (self.of_files, self.of_directories):
            for scope in scopes.values():
                yield from scope.values()

    def of(self, document: Document) -> dict[str, Declared]:
        """What holds for a document; what is declared twice for it is told once."""
        key = (document.dir, document.path)
        if key not in self._joined:
            self._joined[key] = self._found(document)
        return self._joined[key]

    def _found(self, document: Document) -> dict[str, Declared]:
        found: dict[str, Declared] = {}
        scopes = [self.of_files.get(document.path, {})]
        if self.of_directories:
            scopes += [self.of_directories.get(it, {}) for it in _upwards(document.dir)]
        for scope in scopes:
            for name, declared in scope.items():
                if found.setdefault(name, declared) is not declared:
                    self.twice(found[name], declared)
        return found

    def twice(self, one: Declared, other: Declared) -> None:
        place = escaped(other.written.document.path)
        problem = f" is declared for this file already, in `{place}`"
        self.told.append(one.finding(problem, "give one of them another name"))


def _upwards(directory: str) -> Iterator[str]:
    yield directory
    while (above := os.path.dirname(directory)) != directory:  # noqa: PTH120 - as text, and often
        directory = above
        yield directory


def is_variables(root: Root) -> bool:
    return isinstance(root.value, dict) and root.value.get("kind") == KIND


def declare(
    declarations: Sequence[tuple[Root, Written]], alone: set[str], sources: Sequence[Source]
) -> Scopes:
    """alone: paths of files that hold nothing else. sources: of values, those that win first."""
    scopes = Scopes()
    for root, written in declarations:
        if root.broken:
            continue  # told as it was read
        try:
            model = Variables.model_validate(root.value, by_alias=True, by_name=False)
        except ValidationError as error:
            scopes.told += ((written, it) for it in findings(error, Variables, root.value, ()))
            _add(_unknown_types(root.value, written), scopes, alone, ())
        else:
            declared = [Declared(name, it, written) for name, it in model.variables.items()]
            _add(declared, scopes, alone, sources)
    return scopes


def _unknown_types(value: dict[str, Any], written: Written) -> list[Declared]:
    """What was meant to be declared: a reference to it is no second mistake."""
    names = value.get("variables")
    some = Variable.model_construct(type="string", default="")
    return [
        Declared(name, some, written, wrong=True, used=True)
        for name in (names if isinstance(names, dict) else ())
    ]


def _add(
    found: Sequence[Declared], scopes: Scopes, alone: set[str], sources: Sequence[Source]
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
            scopes.told += _settle(declared, sources)


def _settle(declared: Declared, sources: Sequence[Source]) -> Iterator[Told]:
    """Find its value."""
    name, variable = declared.name, declared.variable
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
        hint = f'put it into quotes: `"{declared.value}"`' if _unquoted(declared) else ""
        yield declared.given.told(f" is {shown}; {must}", hint)


def _unquoted(declared: Declared) -> bool:
    number = isinstance(declared.value, int | float) and not isinstance(declared.value, bool)
    return declared.variable.type == "string" and number


def left(scopes: Scopes) -> tuple[list[Told], list[Declared]]:
    """What is missing, after all documents were filled, and what nobody referred to."""
    missing: list[Told] = [
        declared.finding(
            " has no value and no default",
            f"give it one: `--set {declared.name}=...`, or in a file of `--values`",
        )
        for declared in scopes.every()
        if declared.missing
    ]
    return missing, [it for it in scopes.every() if not it.used]

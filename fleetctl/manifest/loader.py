"""Texts to manifests: read strictly, include what they name, check against the models.

A file that is right is walked once. One with something wrong is walked again, for positions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fleetctl.manifest import credentials, programs
from fleetctl.manifest.documents import Document
from fleetctl.manifest.includes import Included, include
from fleetctl.manifest.limits import overlong
from fleetctl.manifest.messages import Finding, findings, suggestion
from fleetctl.manifest.namespaces import Chosen, misplaced, settled, too_long
from fleetctl.manifest.plain import resolve
from fleetctl.manifest.problems import (
    PROBLEMS_SHOWN_MAX,
    ManifestErrors,
    Path,
    Problem,
    path_text,
    value_text,
)
from fleetctl.manifest.strict_yaml import DOCUMENTS_MAX, Root, read
from fleetctl.manifest.unsupported import not_yet
from fleetctl.manifest.words import NOT_YET_KINDS, SYNONYMOUS_KINDS, listed
from fleetctl.manifest.yaml_errors import Position
from specs.common import Metadata
from specs.kinds import API_VERSION, KINDS
from specs.namespaces import object_key
from specs.scalars import Spec

M = TypeVar("M", bound=BaseModel)

DEFAULT = Chosen()

ENVELOPE = ("apiVersion", "kind", "metadata", "spec")

# `get -o yaml` shows these; editing its output and applying it again must work.
_WRITTEN_BY_US = ("status",)
_METADATA_WRITTEN_BY_US = frozenset(
    {
        "uid",
        "generation",
        "version",
        "createdAt",
        "creationTimestamp",
        "deletedAt",
        "deletionTimestamp",
    }
)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checked wish. line: where its document begins. warnings: sentences for a person. origin:
    absolute, of `source.path`. read: other files that it was made from, absolute.
    """

    kind: str
    name: str
    metadata: Metadata
    spec: Spec
    path: str
    line: int
    warnings: tuple[str, ...] = ()
    origin: str = ""
    read: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def key(self) -> str:
        return object_key(self.kind, self.name, self.namespace)


def load(
    documents: Sequence[Document], namespace: Chosen = DEFAULT, *, may_be_empty: bool = False
) -> list[Manifest]:
    """All manifests, in order. Raises ManifestErrors with all that is wrong in any of them.

    may_be_empty: no document at all is a wish, too: that nothing of a set shall be.
    """
    manifests: list[Manifest] = []
    problems: list[Problem] = []
    for document in documents:
        found, wrong = _load_document(document, namespace)
        manifests.extend(found)
        problems.extend(wrong)
    problems.extend(_declared_twice(manifests))
    if len(manifests) > DOCUMENTS_MAX:
        problems.append(
            Problem(
                documents[0].path, 0, 0, f"at most {DOCUMENTS_MAX:,} manifests are applied at once"
            )
        )
    if not manifests and not problems and (documents or not may_be_empty):
        path = documents[0].path if documents else "-"
        problems.append(Problem(path, 0, 0, "there is no manifest here"))
    if problems:
        raise ManifestErrors(problems)
    return manifests


def faults(document: Document) -> list[Finding]:
    """What is wrong with the manifests of one text, by path; without the problems of its YAML."""
    roots = read(document.path, document.text).roots
    return [finding for root in roots for finding in _check(root, document, DEFAULT).findings]


@dataclass(slots=True)
class _Checked:
    """One document after its checks; manifest is None when anything is wrong."""

    root: Root
    included: Included
    findings: list[Finding]
    manifest: Manifest | None = None


def _load_document(document: Document, namespace: Chosen) -> tuple[list[Manifest], list[Problem]]:
    if document.refused:
        return [], [Problem(document.path, 0, 0, document.refused, document.hint)]
    reading = read(document.path, document.text)
    checked = [_check(root, document, namespace) for root in reading.roots]
    problems = list(reading.problems)
    wanted = _places(finding for it in checked for finding in it.findings)
    if any(it.findings for it in checked):
        marked = read(document.path, document.text, wanted=wanted).roots
        for it, root in zip(checked, marked, strict=True):
            problems.extend(_located(it, root, document.path))
    for it in checked:
        problems.extend(it.included.problems)
    problems.sort(key=lambda it: (it.file != document.path, it.file, it.line, it.column))
    return [it.manifest for it in checked if it.manifest is not None], problems


def _check(root: Root, document: Document, namespace: Chosen) -> _Checked:
    data = root.value
    if not isinstance(data, dict):
        said = f" is {value_text(data)}; it must be a mapping of {listed(ENVELOPE)}"
        return _Checked(root, Included(), [Finding((), (), said)])
    if "kind" not in data and "method" in data and "parameters" in data:
        said = " is a W&B sweep configuration, not a manifest"
        return _Checked(root, Included(), [Finding((), (), said, _WRAP_HINT)])
    included = include(data, document)
    found = [*_envelope(data), *included.findings]
    metadata = _model(Metadata, _own_metadata(data.get("metadata")), ("metadata",), found)
    spec = _spec(data, found)
    if metadata is not None and spec is not None:
        kind = KINDS[data["kind"]]
        found.extend(misplaced(metadata, kind, namespace))
        metadata = settled(metadata, kind, namespace)
        found.extend((*too_long(metadata, spec), *not_yet(metadata, spec)))
    checked = _Checked(root, included, [it for it in found if not _is_noise(it, root)])
    if not found and not root.broken and not included.problems:
        assert metadata is not None and spec is not None
        checked.manifest = Manifest(
            kind=data["kind"],
            name=metadata.name,
            metadata=metadata,
            spec=spec,
            path=document.path,
            line=root.position[0],
            warnings=tuple(_warnings(spec, f"{document.path}:{root.position[0]}")),
            origin=included.origin,
            read=tuple(included.read),
        )
    return checked


def _warnings(spec: Spec, where: str) -> Iterator[str]:
    yield from credentials.warnings(spec, where)
    yield from programs.warnings(spec, where)


_WRAP_HINT = "write a Sweep whose spec says `searchFrom: {file: ...}` and name this file there"


def _envelope(data: dict[str, Any]) -> Iterator[Finding]:
    unknown = [key for key in data if key not in ENVELOPE and key not in _WRITTEN_BY_US]
    for key in unknown[:PROBLEMS_SHOWN_MAX]:
        hint = suggestion(key, list(ENVELOPE))
        yield Finding((key,), (key,), " is no known field", hint, at_key=True)
    version = data.get("apiVersion")
    if version != API_VERSION:
        yield _wrong(data, "apiVersion", f"it must be `{API_VERSION}`")
    kind = data.get("kind")
    if not isinstance(kind, str) or kind in KINDS:
        if kind not in KINDS:
            yield _wrong(data, "kind", f"it must be one of {listed(KINDS)}")
    elif kind in NOT_YET_KINDS:
        yield Finding(("kind",), ("kind",), f" is `{kind}`, which is not carried out yet")
    else:
        yield _wrong(data, "kind", f"it must be one of {listed(KINDS)}", _kind_hint(kind))


def _kind_hint(kind: str) -> str:
    hint = SYNONYMOUS_KINDS.get(kind.lower())
    return f"did you mean `{hint}`?" if hint else suggestion(kind, list(KINDS))


def _wrong(data: dict[str, Any], key: str, right: str, hint: str = "") -> Finding:
    if key not in data:
        return Finding((), (key,), f" is missing; {right}", hint)
    return Finding((key,), (key,), f" is {value_text(data[key])}; {right}", hint)


def _own_metadata(metadata: Any) -> Any:
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        return metadata
    return {key: it for key, it in metadata.items() if key not in _METADATA_WRITTEN_BY_US}


def _spec(data: dict[str, Any], found: list[Finding]) -> Spec | None:
    kind, spec = data.get("kind"), data.get("spec")
    if not isinstance(kind, str) or kind not in KINDS:
        return None
    too_long = list(overlong(spec, ("spec",)))
    if too_long:
        found.extend(too_long)
        return None
    return _model(KINDS[kind].spec, {} if spec is None else spec, ("spec",), found)


def _model(model: type[M], data: Any, prefix: Path, found: list[Finding]) -> M | None:
    try:
        return model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        found.extend(findings(error, model, data, prefix))
        return None


def _is_noise(finding: Finding, root: Root) -> bool:
    """True below a value that was already refused as it was read."""
    path = finding.path
    return bool(root.broken) and any(path[:depth] in root.broken for depth in range(len(path) + 1))


def _places(found: Iterable[Finding]) -> frozenset[Path]:
    """The paths of the findings and everything above them."""
    return frozenset(it.path[:depth] for it in found for depth in range(1, len(it.path) + 1))


def _located(checked: _Checked, marked: Root, file: str) -> Iterator[Problem]:
    here = list(checked.findings)
    for prefix, document in checked.included.moved.items():
        there = [_without(prefix, it) for it in here if it.path[: len(prefix)] == prefix]
        here = [it for it in here if it.path[: len(prefix)] != prefix]
        (root,) = read(document.path, document.text, wanted=_places(there)).roots
        yield from (_problem(it, root, document.path) for it in there)
    yield from (_problem(it, marked, file) for it in here)


def _without(prefix: Path, finding: Finding) -> Finding:
    depth = len(prefix)
    return replace(finding, path=finding.path[depth:], subject=finding.subject[depth:])


def _problem(finding: Finding, root: Root, file: str) -> Problem:
    line, column = _position(root, finding.path, at_key=finding.at_key)
    said, hint = finding.said, finding.hint
    if finding.path in root.written:
        # 3.10 is not to be shown as 3.1, nor 3e-5 as 3e-05: the author looks for what is written.
        said, hint = (_as_written(it, root.written[finding.path]) for it in (said, hint))
    return Problem(file, line, column, (path_text(finding.subject) or "the document") + said, hint)


def _as_written(text: str, written: str) -> str:
    for form in ("`{}`", '`"{}"`'):
        text = text.replace(form.format(json.dumps(resolve(written))), form.format(written))
    return text


def _position(root: Root, path: Path, *, at_key: bool) -> Position:
    """Where the value stands; for a key, or a value that is a collection, where its key stands."""
    for depth in range(len(path), 0, -1):
        here = path[:depth]
        if here in root.keys and (at_key or depth < len(path) or here in root.collections):
            return root.keys[here]
        if here in root.values:
            return root.values[here]
    return root.position


def _declared_twice(manifests: Sequence[Manifest]) -> Iterator[Problem]:
    first: dict[str, Manifest] = {}
    for it in manifests:
        other = first.setdefault(it.key, it)
        if other is not it:
            said = f"{it.key} is declared twice"
            yield Problem(it.path, it.line, 1, f"{said}, first at {other.path}:{other.line}")

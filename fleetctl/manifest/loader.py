"""Texts to manifests: read strictly, put variables and overlays in, include the files that are
named, check against the models.

A file that is right is walked once. One with something wrong is walked again, for positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fleetctl.manifest.checks import doubtful_in, wrong_in
from fleetctl.manifest.document.envelope import envelope, no_manifest
from fleetctl.manifest.document.limits import overlong
from fleetctl.manifest.document.namespaces import Chosen, misplaced, settled, too_long
from fleetctl.manifest.document.template import Inner, inner_of, metadata_for, moved_in
from fleetctl.manifest.document.unsupported import not_yet, not_yet_of_a_sweep
from fleetctl.manifest.files.documents import VALUES, Document, is_address
from fleetctl.manifest.files.includes import Included, include
from fleetctl.manifest.messages import Finding, findings
from fleetctl.manifest.positions import Written, located
from fleetctl.manifest.problems import (
    ManifestErrors,
    Path,
    Problem,
    in_order,
    joined,
    path_text,
)
from fleetctl.manifest.rendering.overlays import file_of
from fleetctl.manifest.rendering.render import Draft, render
from fleetctl.manifest.yaml.reader import DOCUMENTS_MAX, Root
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.kinds.schedule import ScheduleSpec
from fleetctl.specs.values.namespaces import object_key
from fleetctl.specs.values.scalars import Spec

M = TypeVar("M", bound=BaseModel)

DEFAULT = Chosen()

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
    """A checked spec. line: where its document begins. warnings: sentences for a person. origin:
    absolute, of `source.path`. read: all files that it was made from, absolute. by_hand: fields
    of the stored object that were added because the file has none; filed: itself without them.
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
    source: Written | None = field(default=None, compare=False, repr=False)
    inside: bool = False  # it is the template of another one, whose place in the file it has
    by_hand: tuple[tuple[str, ...], ...] = ()
    filed: Manifest | None = field(default=None, compare=False, repr=False)

    def made(self) -> Manifest | None:
        """Of one that makes others: what it makes, as a manifest; None of all else."""
        if not isinstance(self.spec, ScheduleSpec):
            return None
        kind = self.spec.template.kind
        return replace(self, kind=kind, spec=self.spec.makes, inside=True)

    def problems(self, found: Sequence[Finding]) -> list[Problem]:
        """What is found in it later, each at its place in the file."""
        found = list(moved_in(found)) if self.inside else found
        if self.source is None:  # it was made from a stored object
            return [
                Problem(self.path, 0, 0, path_text(it.subject) + it.problem, it.hint)
                for it in found
            ]
        here = self.source
        return located((here, it) for it in found)

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

    may_be_empty: no document at all is a spec, too: that nothing of a set shall be.
    """
    rendered = render(documents)
    values = tuple(file_of(it) for it in documents if it.role == VALUES)
    checked = [_check(draft, namespace, values) for draft in rendered.drafts]
    problems = in_order([*rendered.problems, *_problems(checked)], documents)
    manifests = [it.manifest for it in checked if it.manifest is not None]
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
    return [
        finding
        for draft in render([document]).drafts
        for finding in _check(draft, DEFAULT).findings
    ]


@dataclass(slots=True)
class _Checked:
    """One document after its checks; manifest is None when anything is wrong.

    doubts: what may be wrong, which is warned about.
    """

    written: Written
    included: Included
    findings: list[Finding]
    doubts: list[Finding] = field(default_factory=list)
    manifest: Manifest | None = None


def _problems(checked: Sequence[_Checked]) -> list[Problem]:
    """What is wrong with them. What may be wrong becomes a warning of its manifest."""
    found = [(it.written, one) for it in checked for one in it.findings]
    doubts = [(it, one) for it in checked if it.manifest is not None for one in it.doubts]
    if not found and not doubts:
        return [one for it in checked for one in it.included.problems]
    problems = located([*found, *((it.written, one) for it, one in doubts)])
    for (it, _), problem in zip(doubts, problems[len(found) :], strict=True):
        assert it.manifest is not None
        warnings = (*it.manifest.warnings, _warning(problem))
        it.manifest = replace(it.manifest, warnings=warnings)
    return [*problems[: len(found)], *(one for it in checked for one in it.included.problems)]


def _check(draft: Draft, namespace: Chosen, values: tuple[str, ...] = ()) -> _Checked:
    """values: files of them, absolute."""
    root, document = draft.root, draft.written.document
    data = root.value
    if (other := no_manifest(data, document.path)) is not None:
        return _Checked(draft.written, Included(), [other])
    inner = inner_of(data, document, _spec)
    included = include(data, document) if inner is None else inner.included
    found = [*envelope(data), *included.findings]
    metadata = _model(Metadata, _own_metadata(data.get("metadata")), ("metadata",), found)
    spec = _spec(data, found)
    if inner is not None:
        found = [*inner.without_echo(found), *inner.findings]
    if spec is None:
        found.extend(not_yet_of_a_sweep(data))
    if metadata is not None and spec is not None:
        kind = KINDS[data["kind"]]
        found.extend(misplaced(metadata, kind, namespace))
        metadata = settled(metadata, kind, namespace)
        found.extend((*too_long(metadata, spec), *not_yet(metadata, spec), *wrong_in(spec)))
        if inner is not None:
            found.extend(_wrong_inside(metadata, inner))
    written = replace(draft.written, moved=included.moved) if included.moved else draft.written
    checked = _Checked(written, included, [it for it in found if not _is_noise(it, root)])
    if not found and not root.broken and not included.problems:
        assert metadata is not None and spec is not None
        checked.manifest = Manifest(
            kind=data["kind"],
            name=metadata.name,
            metadata=metadata,
            spec=spec,
            path=document.path,
            line=root.position[0],
            warnings=draft.warnings,
            origin=included.origin,
            read=(*_own(document), *draft.read, *included.read, *values),
            source=written,
        )
        checked.doubts = list(doubtful_in(spec))
        if inner is not None and inner.spec is not None:
            checked.doubts += moved_in(doubtful_in(inner.spec))
    return checked


def _own(document: Document) -> tuple[str, ...]:
    """The file that a manifest stands in, where that is one of this machine."""
    there = document.path != "-" and not is_address(document.path)
    return (file_of(document),) if there else ()


def _wrong_inside(metadata: Metadata, inner: Inner) -> Iterator[Finding]:
    spec, about = inner.spec, metadata_for(metadata)
    if spec is not None:
        yield from moved_in([*too_long(about, spec), *not_yet(about, spec), *wrong_in(spec)])


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


def _warning(doubt: Problem) -> str:
    return joined(str(doubt), doubt.hint)


def _declared_twice(manifests: Sequence[Manifest]) -> Iterator[Problem]:
    first: dict[str, Manifest] = {}
    for it in manifests:
        other = first.setdefault(it.key, it)
        if other is not it:
            message = f"{it.key} is declared twice"
            yield Problem(it.path, it.line, 1, f"{message}, first at {other.path}:{other.line}")

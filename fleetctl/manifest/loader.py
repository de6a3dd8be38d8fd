"""Texts to manifests: read strictly, put variables and overlays in, include the files that are
named, check against the models.

A file that is right is walked once. One with something wrong is walked again, for positions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.checks.clusters import find_old_words
from fleetctl.manifest.document.envelope import (
    NamespaceChoice,
    apply_namespace,
    check_envelope,
    check_namespace,
    find_no_manifest,
    find_overlong,
)
from fleetctl.manifest.document.inner_manifest import (
    InnerManifest,
    inner_again,
    inner_of,
    metadata_for,
    move_findings,
)
from fleetctl.manifest.files.documents import VALUES, Document, file_of, is_address
from fleetctl.manifest.files.includes import IncludedFiles, include_files
from fleetctl.manifest.findings import list_findings
from fleetctl.manifest.mending import (
    BlockReading,
    find_written_path,
    read_on,
    without_values,
)
from fleetctl.manifest.positions import ManifestOrigin, locate_problems
from fleetctl.manifest.problems import (
    ManifestErrors,
    ManifestProblem,
    join_sentences,
    path_text,
    sort_problems,
)
from fleetctl.manifest.rendering.render import ManifestDraft, render_drafts
from fleetctl.manifest.rules import check_text, split_doubts, yield_until_unread
from fleetctl.manifest.yaml.reader import DOCUMENTS_MAX, YamlDocument
from fleetctl.specs.blocks.common import Metadata
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.registry import KINDS
from fleetctl.specs.kinds.schedule import ScheduleSpec
from fleetctl.specs.values.namespaces import object_key
from fleetctl.specs.values.scalars import Spec

M = TypeVar("M", bound=BaseModel)

DEFAULT = NamespaceChoice()

# The names in a text that is no YAML, or not wholly: of objects, and of whatever else has one.
_NAMES = re.compile(r"""\bname["']?\s*:\s*["']?([\w.-]+)""")

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
    """A checked spec.

    line: where its document begins. warnings: sentences for users. origin: absolute path of
    `source.path`. read: all files that it was made from, absolute. by_hand: fields of the stored
    object that were added because the file has no value for them; filed: the manifest without them.
    inputs: files of its tasks, by the digest of their content; absolute paths.
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
    inputs: Mapping[str, str] = field(
        default_factory=dict,
        compare=False,
        repr=False,
    )
    source: ManifestOrigin | None = field(
        default=None,
        compare=False,
        repr=False,
    )
    # it is the template of another manifest, at whose path in the file it stands
    inside: bool = False
    # of a wrong manifest, which is never applied: paths that were not read, and moved values
    unread: tuple[Path, ...] = ()
    moved: tuple[tuple[Path, Path], ...] = ()
    by_hand: tuple[tuple[str, ...], ...] = ()
    filed: Manifest | None = field(
        default=None,
        compare=False,
        repr=False,
    )

    def made(self) -> Manifest | None:
        """Returns the manifest that this one makes, such as a Schedule's; None for other kinds."""
        if not isinstance(self.spec, ScheduleSpec):
            return None
        kind = self.spec.template.kind
        return replace(
            self,
            kind=kind,
            spec=self.spec.makes,
            inside=True,
        )

    def as_read(self) -> Manifest:
        """Returns the manifest with marks in place of the values that were not read."""
        if not self.unread:
            return self
        inside = (path[1:] for path in self.unread if path[:1] == ("spec",))
        return replace(self, spec=without_values(self.spec, inside))

    def problems(self, found: Sequence[Finding]) -> list[ManifestProblem]:
        """Locates findings of a later check, each at its position in the file."""
        found = list(move_findings(found)) if self.inside else found
        if self.moved:
            found = [
                replace(
                    it,
                    where=find_written_path(it.where, self.moved),
                    about=find_written_path(it.subject, self.moved),
                )
                for it in found
            ]
        if self.source is None:  # it was made from a stored object
            return [
                ManifestProblem(
                    self.path,
                    0,
                    0,
                    path_text(it.subject) + it.what,
                    it.fix,
                    it.severity,
                )
                for it in found
            ]
        here = self.source
        return locate_problems((here, it) for it in found)

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def key(self) -> str:
        return object_key(self.kind, self.name, self.namespace)


class LoadErrors(ManifestErrors):
    """Mistakes of a load, and the manifests whose other problems belong into the same round: the
    sound ones, and the wrong ones as far as they were read. named: names of the wrong manifests, as
    far as they can be found. documents: all that were read.
    """

    def __init__(
        self,
        problems: Sequence[ManifestProblem],
        documents: Sequence[Document],
        sound: Sequence[Manifest] = (),
        partial: Sequence[Manifest] = (),
        named: Sequence[str] = (),
    ) -> None:
        super().__init__(problems)
        self.documents = documents
        self.sound, self.partial, self.named = list(sound), list(partial), tuple(named)

    def beside(self, found: Sequence[ManifestProblem]) -> ManifestErrors:
        """Adds problems of later checks, unless a wrong manifest may be the missing object."""
        lacking = [f"`{name}`" for name in self.named]
        known = [it for it in found if not any(name in it.message for name in lacking)]
        return ManifestErrors(sort_problems([*self.problems, *known], self.documents))


def load_manifests(
    documents: Sequence[Document],
    namespace: NamespaceChoice = DEFAULT,
    *,
    may_be_empty: bool = False,
) -> list[Manifest]:
    """Returns all manifests, in order. Raises ManifestErrors with all that is wrong in any
    manifest.

    may_be_empty: accepts no document at all: a set without objects.
    """
    rendered = render_drafts(documents)
    values = tuple(file_of(it) for it in documents if it.role == VALUES)
    checked = [_check_draft(draft, namespace, values) for draft in rendered.drafts]
    problems = [*rendered.problems, *_collect_problems(checked)]
    if problems:
        problems = sort_problems(problems, documents)

    # After the problems: these have become warnings of the manifests, where they are only doubts.
    manifests = [it.manifest for it in checked if it.manifest is not None]
    problems.extend(_find_duplicates(manifests))
    too_many = len(manifests) > DOCUMENTS_MAX
    if too_many:
        message = f"at most {DOCUMENTS_MAX:,} manifests are applied at once"
        problems.append(ManifestProblem(documents[0].path, 0, 0, message))
    if not manifests and not problems and (documents or not may_be_empty):
        path = documents[0].path if documents else "-"
        problems.append(ManifestProblem(path, 0, 0, "there is no manifest here"))

    if not problems:
        return manifests
    if too_many:
        raise LoadErrors(problems, documents)  # a look at each takes too long
    parts = [
        it.partial
        for it in checked
        # A provider with mistakes could be of any type, and no rule is about providers.
        if it.partial is not None and not isinstance(it.partial.spec, ProviderSpec)
    ]
    unreadable = {it.file for it in rendered.problems}
    named = [*_names_of_wrong(rendered.drafts, checked)]
    for document in documents:
        if document.path in unreadable:
            named += _NAMES.findall(document.text)
    raise LoadErrors(problems, documents, manifests, parts, named)


def _names_of_wrong(
    drafts: Sequence[ManifestDraft], checked: Sequence[_CheckedDocument]
) -> Iterator[str]:
    for draft, it in zip(drafts, checked, strict=True):
        data = draft.root.value
        metadata = data.get("metadata") if isinstance(data, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if it.manifest is None and isinstance(name, str):
            yield name


def find_faults(document: Document) -> list[Finding]:
    """Returns the faults of the manifests of a text, by path; without the problems of its YAML."""
    return [
        finding
        for draft in render_drafts([document]).drafts
        for finding in _check_draft(draft, DEFAULT).findings
    ]


@dataclass(slots=True)
class _CheckedDocument:
    """One document after its checks; manifest is None when anything is wrong.

    doubts: possible faults, which become warnings. partial: a wrong manifest as far as it was read.
    """

    written: ManifestOrigin
    included: IncludedFiles
    findings: list[Finding]
    doubts: list[Finding] = field(default_factory=list)
    manifest: Manifest | None = None
    partial: Manifest | None = None


def _collect_problems(checked: Sequence[_CheckedDocument]) -> list[ManifestProblem]:
    """Collects the problems of the documents. Possible faults become warnings of their manifest."""
    included = [one for it in checked for one in it.included.problems]
    found = [(it.written, one) for it in checked for one in it.findings]
    sound = [it for it in checked if it.manifest is not None]
    doubts = [(it, one) for it in sound for one in it.doubts]
    if not found and not doubts:
        return included

    # Located together: a document is walked once, whatever is wrong in it.
    written = [(it.written, one) for it, one in doubts]
    problems = locate_problems([*found, *written])
    errors = problems[: len(found)]
    for (it, _), problem in zip(doubts, problems[len(found) :], strict=True):
        assert it.manifest is not None
        warnings = (*it.manifest.warnings, _describe_warning(problem))
        it.manifest = replace(it.manifest, warnings=warnings)
    return [*errors, *included]


def _check_draft(
    draft: ManifestDraft,
    namespace: NamespaceChoice,
    values: tuple[str, ...] = (),
) -> _CheckedDocument:
    """Checks a draft. values: files of variable values, absolute."""
    root = draft.root
    data = root.value
    document = draft.written.document
    other = find_no_manifest(data, document.path)
    if other is not None:
        return _CheckedDocument(draft.written, IncludedFiles(), [other])

    inner = inner_of(data, document, _read_spec)
    included = include_files(data, document) if inner is None else inner.included
    found = [*check_envelope(data), *included.findings]
    own = _own_metadata(data.get("metadata"))
    metadata = _validate_model(Metadata, own, found, ("metadata",))
    spec = _read_spec(data, found)
    if inner is not None:
        found = [*inner.without_echo(found), *inner.findings]

    # A wrong part is read as far as its mistakes allow, so that its other mistakes are found too.
    reading = _read_on(data, found) if spec is None else BlockReading(spec, found)
    if metadata is None:
        metadata = _read_metadata_on(own, found)
    doubts: list[Finding] = []
    if reading.model is not None:
        outside: list[Finding] = []
        if metadata is not None:
            kind = KINDS[data["kind"]]
            outside = [*check_namespace(metadata, kind, namespace)]
            metadata = apply_namespace(metadata, kind, namespace)
        doubts = _apply_rules(reading, spec, metadata, data, outside)

    written = draft.written
    if included.moved:
        written = replace(written, moved=included.moved)
    findings = [it for it in reading.known if not _is_noise(it, root)]
    checked = _CheckedDocument(written, included, findings)
    if metadata is None or reading.model is None or included.problems:
        return checked

    manifest = _build_manifest(draft, metadata, reading.model, included, values)
    manifest = replace(manifest, source=written)
    if reading.known or root.broken:
        checked.partial = _mark_partial(manifest, reading, root.broken)
        return checked

    checked.manifest = manifest
    has_inner_spec = inner is not None and inner.spec is not None
    file_doubts = move_findings(included.doubts) if has_inner_spec else included.doubts
    checked.doubts = [*find_old_words(root.old_words), *doubts, *file_doubts]
    return checked


def _build_manifest(
    draft: ManifestDraft,
    metadata: Metadata,
    spec: Spec,
    included: IncludedFiles,
    values: tuple[str, ...],
) -> Manifest:
    document = draft.written.document
    return Manifest(
        kind=draft.root.value["kind"],
        name=metadata.name,
        metadata=metadata,
        spec=spec,
        path=document.path,
        line=draft.root.position[0],
        warnings=draft.warnings,
        origin=included.origin,
        read=(*_list_own_file(document), *draft.read, *included.read, *values),
        inputs=included.inputs,
    )


def _read_metadata_on(metadata: Any, known: list[Finding]) -> Metadata | None:
    """Reads the metadata of a document as far as its mistakes allow."""
    prefix = ("metadata",)
    read = partial(_validate_model, Metadata, prefix=prefix)
    return read_on({"metadata": metadata}, prefix, known, read).model


def _apply_rules(
    reading: BlockReading[Spec],
    spec: Spec | None,
    metadata: Metadata | None,
    data: dict[str, Any],
    outside: Sequence[Finding],
) -> list[Finding]:
    """Adds to the reading the mistakes that the rules find in it, and returns possible mistakes.
    spec: the whole one; None where parts were left unread. outside: findings on its namespace.
    """
    if spec is not None:
        wrong, doubts = split_doubts(_check_whole(metadata, spec))
        reading.known += (*outside, *wrong)
        return doubts

    assert reading.model is not None
    unread = (path[1:] for path in reading.unread)
    read_values = without_values(reading.model, unread)
    wrong, doubts = split_doubts(_check_whole(metadata, read_values))
    reading.add((*outside, *wrong), data)
    return doubts


def _mark_partial(
    manifest: Manifest, reading: BlockReading[Spec], broken: Collection[Path]
) -> Manifest:
    """Returns a wrong manifest with the paths that were not read. broken: those with variables
    without a value.
    """
    wrong = (it.where for it in reading.known if not it.at_key)
    unread = (*reading.unread, *wrong, *broken)
    return replace(manifest, unread=unread, moved=tuple(reading.moved))


def _check_whole(metadata: Metadata | None, spec: Spec) -> Iterator[Finding]:
    """Yields the findings on a spec, and on the spec of the object that it makes."""
    yield from check_text(spec, metadata)
    if isinstance(spec, ScheduleSpec):
        about = None if metadata is None else metadata_for(metadata)
        made = yield_until_unread(it.makes for it in (spec,))
        yield from (it for work in made for it in move_findings(_check_whole(about, work)))


def _list_own_file(document: Document) -> tuple[str, ...]:
    """The file that a manifest stands in, where that is one of this machine."""
    there = document.path != "-" and not is_address(document.path)
    if there:
        return (file_of(document),)
    return ()


def _own_metadata(metadata: Any) -> Any:
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        return metadata
    return {key: it for key, it in metadata.items() if key not in _METADATA_WRITTEN_BY_US}


def _read_spec(data: dict[str, Any], found: list[Finding]) -> Spec | None:
    kind = data.get("kind")
    spec = data.get("spec")
    if not isinstance(kind, str) or kind not in KINDS:
        return None
    too_long = list(find_overlong(spec, ("spec",)))
    if too_long:
        found.extend(too_long)
        return None
    model = KINDS[kind].spec.model_of(spec)
    return _validate_model(model, {} if spec is None else spec, found, ("spec",))


def _read_on(data: dict[str, Any], known: list[Finding]) -> BlockReading[Spec]:
    """Reads the spec of a document as far as its mistakes allow."""
    prefix = ("spec",)
    kind = data.get("kind")
    readable = isinstance(kind, str) and kind in KINDS and isinstance(data.get("spec"), dict)
    if not readable or list(find_overlong(data["spec"], prefix)):
        return BlockReading(None, known)
    inner: InnerManifest | None = None

    def read(spec: Any, found: list[Finding]) -> Spec | None:
        nonlocal inner
        checked = _validate_model(KINDS[str(kind)].spec.model_of(spec), spec, found, prefix)
        inner = inner_again({**data, "spec": spec}, _read_spec)
        if inner is not None:
            found[:] = [*inner.without_echo(found), *inner.findings]
        return checked

    made = read_on(data, prefix, known, read)
    if made.model is None and inner is not None and inner.spec is not None:
        made.add(move_findings(split_doubts(check_text(inner.spec))[0]), data)
    return made


def _validate_model(
    model: type[M],
    data: Any,
    found: list[Finding],
    prefix: Path,
) -> M | None:
    try:
        return model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        found.extend(list_findings(error, model, data, prefix))
        return None


def _is_noise(finding: Finding, root: YamlDocument) -> bool:
    """Returns True below a value that was already refused as it was read."""
    path = finding.where
    return bool(root.broken) and any(path[:depth] in root.broken for depth in range(len(path) + 1))


def _describe_warning(doubt: ManifestProblem) -> str:
    return join_sentences(str(doubt), doubt.hint)


def _find_duplicates(manifests: Sequence[Manifest]) -> Iterator[ManifestProblem]:
    first: dict[str, Manifest] = {}
    for it in manifests:
        other = first.setdefault(it.key, it)
        if other is not it:
            message = f"{it.key} is declared twice"
            yield ManifestProblem(
                it.path, it.line, 1, f"{message}, first at {other.path}:{other.line}"
            )

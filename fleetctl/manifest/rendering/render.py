"""Turns documents into drafts: manifests to be checked, with the values of variables and the
patches of overlays.

Called by loader.py and for `fleetctl render`. Documents without declarations and overlays go
through untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fleetctl.common.finding import Finding
from fleetctl.manifest.document.envelope import find_no_manifest
from fleetctl.manifest.document.short import FullForm, expand_document, list_full_values
from fleetctl.manifest.files.documents import (
    MANIFEST,
    Document,
    file_of,
    is_address,
    read_documents,
)
from fleetctl.manifest.positions import ManifestOrigin, Told, locate_all, locate_problems
from fleetctl.manifest.problems import (
    ManifestErrors,
    ManifestProblem,
    join_sentences,
    sort_problems,
)
from fleetctl.manifest.rendering.declared_variables import KIND as VARIABLES
from fleetctl.manifest.rendering.declared_variables import (
    DeclaredVariable,
    GivenValue,
    Source,
    VariableScopes,
    declare_variables,
    find_unknown_values,
    find_unresolved,
    sources_in,
)
from fleetctl.manifest.rendering.overlays import KIND as OVERLAY
from fleetctl.manifest.rendering.overlays import (
    LoadedOverlay,
    OverlayPatch,
    base_documents,
    covers_document,
    describe_unmatched,
    lay_all,
    lay_patch,
    list_bases,
    overlay_of,
)
from fleetctl.manifest.rendering.references import (
    OPENING,
    ExpansionLimit,
    VariableSubstitution,
    plain_references,
)
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.manifest.yaml.reader import YamlDocument, read_manifests

BASES_BYTES_MAX = 64 * 1024 * 1024  # read once for each overlay over them
NAMES_MAX = 1_000  # that a misspelled one is compared with
CHAIN_MAX = 10  # overlays of overlays; a deeper chain is unreadable


Part = tuple[YamlDocument, ManifestOrigin]  # one document of a text, in the full form


@dataclass(slots=True)
class ManifestDraft:
    """A manifest before it is checked. scope: variables that its file may refer to. read: other
    files that it was made from, absolute.
    """

    root: YamlDocument
    written: ManifestOrigin
    scope: dict[str, DeclaredVariable] = field(default_factory=dict)
    read: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class RenderedDrafts:
    """The drafts of a load. drafts: in order, with those of bases instead of their overlays. names:
    of all declared variables. problems: of reading and rendering.
    """

    drafts: list[ManifestDraft] = field(default_factory=list)
    problems: list[ManifestProblem] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


def render_drafts(documents: Sequence[Document]) -> RenderedDrafts:
    """Renders all drafts. Values of undeclared variables are problems."""
    given = [it for it in documents if it.role != MANIFEST]
    sources, problems = sources_in(given) if given else ([], [])
    work = _RenderAssembly()
    drafts = work.drafts_of([it for it in documents if it.role == MANIFEST], sources, ())
    problems += work.finish(find_unknown_values(sources, work.names) if given else ())
    return RenderedDrafts(drafts, list(dict.fromkeys(problems)), work.names)


def _is_a(kind: str, root: YamlDocument) -> bool:
    return isinstance(root.value, dict) and root.value.get("kind") == kind


class _RenderAssembly:
    """Gathers findings and locates them in one go: a text may hold thousands of mistakes."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._told: list[Told] = []
        self._doubts: list[tuple[ManifestDraft, Finding]] = []
        self._room = ExpansionLimit()
        self._bases_bytes = 0
        self._scopes: list[VariableScopes] = []
        self._files: set[str] = set()  # that were read, absolute
        self._made_secrets: set[tuple[str | None, str]] = set()
        self._sound = True

    def drafts_of(
        self,
        documents: Sequence[Document],
        sources: Sequence[Source],
        chain: tuple[str, ...],
    ) -> list[ManifestDraft]:
        """Returns the drafts. chain: files of the overlays whose base these documents are,
        outermost first.
        """
        texts = [(it, self._parts(it)) for it in documents]
        laid = self._overlays(texts)
        if laid:
            texts = [(it, roots) for it, roots in texts if not _is_base(it, laid)] or texts
        scopes = self._collect_scopes(texts, sources)
        drafts: list[ManifestDraft] = []
        for document, roots in texts:
            refers = OPENING in document.text
            for root, written in roots:
                if _is_a(VARIABLES, root):
                    continue
                if _is_a(OVERLAY, root):
                    mine = (it for it in laid if it.written == written)
                    for it in mine:
                        it.scope = scopes.of(document) if scopes is not None else {}
                        drafts += self._lay_overlay(it, sources, chain)
                else:
                    scope = scopes.of(document) if scopes is not None else {}
                    draft = ManifestDraft(root, written, scope)
                    drafts.append(self._fill_draft(draft) if refers else draft)
        return drafts

    def finish(self, unknown_names: Iterable[Told]) -> list[ManifestProblem]:
        """Returns the problems after all patches are laid, with missing values and unused
        variables.
        """
        told = [*self._told, *unknown_names]
        for scopes in self._scopes:
            missing, unused = find_unresolved(scopes)
            told += (*scopes.told, *missing)
            if self._sound:
                hint = "remove it, or refer to it as `${{{{ {} }}}}`"
                told += (
                    it.finding(" is declared, and nothing refers to it", hint.format(it.name))
                    for it in unused
                    if self._is_whole(it.written.document)
                )
        if not told and not self._doubts:
            return []
        warned = locate_problems((draft.written, finding) for draft, finding in self._doubts)
        for (draft, _), problem in zip(self._doubts, warned, strict=True):
            draft.warnings = (join_sentences(str(problem), problem.hint),)
        return locate_all(told)

    def _parts(self, document: Document) -> list[Part]:
        """Returns the manifests of a text, in the full form."""
        self._files.add(file_of(document))
        if document.refused:
            self._told.append(
                ManifestProblem(
                    document.path,
                    0,
                    0,
                    document.refused,
                    document.hint,
                )
            )
            self._sound = False
            return []
        reading = read_manifests(document.path, document.text)
        self._told += reading.problems
        self._sound = self._sound and not reading.problems
        parts: list[Part] = []
        for number, root in enumerate(reading.roots):
            written = ManifestOrigin(document, number, root.prefix)
            full = expand_document(root.value)
            root.value, root.broken = full.value, full.paths_of(root.broken)
            self._tell(written, full.findings)
            if full.written_at:
                written = replace(written, short=full.written_at)
            parts.append((root, written))
            parts += self._secrets(full, root, written)
        return parts

    def _secrets(
        self,
        full: FullForm,
        root: YamlDocument,
        written: ManifestOrigin,
    ) -> Iterator[Part]:
        """Secrets that a document names by a variable, each once."""
        for secret in full.secrets:
            if secret.key not in self._made_secrets:
                self._made_secrets.add(secret.key)
                there = replace(written, short=secret.written_at)
                yield YamlDocument(secret.manifest, root.position, prefix=root.prefix), there

    def _overlays(self, texts: Iterable[tuple[Document, list[Part]]]) -> list[LoadedOverlay]:
        found: list[LoadedOverlay] = []
        for _, roots in texts:
            for root, written in roots:
                if not _is_a(OVERLAY, root):
                    continue
                made = overlay_of(root, written)
                if isinstance(made, LoadedOverlay):
                    found.append(made)
                else:
                    self._tell(written, made)
        return found

    def _collect_scopes(
        self, texts: Sequence[tuple[Document, list[Part]]], sources: Sequence[Source]
    ) -> VariableScopes | None:
        is_declaration = partial(_is_a, VARIABLES)
        declarations = [part for _, roots in texts for part in roots if is_declaration(part[0])]
        if not declarations:
            return None
        alone = {
            it.path
            for it, roots in texts
            if roots and all(is_declaration(root) for root, _ in roots)
        }
        scopes = declare_variables(declarations, alone, sources)
        self._scopes.append(scopes)
        self.names.update(it.name for it in scopes.every())
        return scopes

    def _fill_draft(self, draft: ManifestDraft) -> ManifestDraft:
        value = draft.root.value
        if not isinstance(value, dict):
            return draft
        if not draft.scope:
            self._doubts += ((draft, it) for it in _warn_of_references(draft))
            return draft
        filling = VariableSubstitution(draft.scope, self._room)
        filling.fill(value)
        self._tell(draft.written, filling.found)
        draft.root.broken |= filling.broken
        return replace(draft, written=_add_notes(draft.written, filling, draft.scope))

    def _lay_overlay(
        self,
        laid: LoadedOverlay,
        sources: Sequence[Source],
        chain: tuple[str, ...],
    ) -> list[ManifestDraft]:
        """The drafts of its base, changed."""
        written = laid.written
        mine = file_of(written.document)
        chain = (*chain, mine)
        base = self._read_base(laid)
        again = next((it for it in base if file_of(it) in chain), None)
        if again is not None or len(chain) > CHAIN_MAX:
            names = " > ".join((*chain, file_of(again) if again is not None else "..."))
            problem = Finding(("base",), f" leads back to where it began: {names}")
            self._tell(written, [problem])
            return []

        drafts = self._fill_base(laid, base, sources, chain)
        self._lay_patches(laid, drafts)
        read = (*list_bases(laid.overlay, written.document), mine)
        for draft in drafts:
            if isinstance(draft.root.value, dict):
                draft.written = lay_all(laid, draft.root.value, draft.written)
            draft.read = (*draft.read, *read)
        return drafts

    def _read_base(self, laid: LoadedOverlay) -> list[Document]:
        """Returns the documents of its base; none where all bases together are too large."""
        found = list(laid.findings)
        base = [*base_documents(laid, found)]
        self._bases_bytes += sum(len(it.text) for it in base)
        if self._bases_bytes > BASES_BYTES_MAX:
            message = f": all bases together are larger than {BASES_BYTES_MAX // 1024**2} MiB"
            self._tell(laid.written, [Finding(("base",), message)])
            return []
        self._tell(laid.written, found)
        return base

    def _fill_base(
        self,
        laid: LoadedOverlay,
        base: Sequence[Document],
        sources: Sequence[Source],
        chain: tuple[str, ...],
    ) -> list[ManifestDraft]:
        """Returns the drafts of its base with the values of its variables, and notes the values
        that none of them needs.
        """
        given: dict[str, GivenValue] = {}
        for name, value in laid.overlay.variables.items():
            path = ("variables", name)
            given[name] = GivenValue(name, value=value, written=laid.written, path=path)

        outer, self.names = self.names, set()
        drafts = self.drafts_of(base, [*sources, given], chain)
        self._told += find_unknown_values([given], self.names)
        self.names |= outer
        return drafts

    def _lay_patches(self, laid: LoadedOverlay, drafts: Sequence[ManifestDraft]) -> None:
        """Changes the drafts by its patches, and notes those that are for none of them."""
        by_name: dict[tuple[object, ...], list[ManifestDraft]] = {}
        for draft in drafts:
            for key in _patch_keys(draft.root.value):
                by_name.setdefault(key, []).append(draft)

        for patch in laid.patches:
            named = (patch.kind,) if OPENING in patch.name else (patch.kind, patch.name)
            if not self._patched(patch, laid, by_name.get(named, ())):
                values = [it.root.value for it in drafts if isinstance(it.root.value, dict)]
                unmatched = describe_unmatched(patch, values[:NAMES_MAX])
                self._tell(laid.written, [unmatched])

    def _patched(
        self,
        patch: OverlayPatch,
        laid: LoadedOverlay,
        drafts: Sequence[ManifestDraft],
    ) -> bool:
        """Returns True if the patch is for one of the drafts."""
        some = False
        for draft in drafts:
            value = draft.root.value
            filled = patch
            scope = {**draft.scope, **laid.scope}
            filling = VariableSubstitution(scope, self._room)
            if scope and OPENING in laid.written.document.text:
                filled = OverlayPatch(deepcopy(patch.data), patch.path)
                filling.fill(filled.data, patch.path)
            if not filled.meets(value):
                continue
            some = True
            told = _add_notes(laid.written, filling, scope)
            draft.written, found = lay_patch(
                filled,
                laid,
                value,
                draft.written,
                told,
            )
            draft.root.broken |= {it[len(patch.path) :] for it in filling.broken}
            self._tell(told, [*filling.found, *found])
        return some

    def _is_whole(self, document: Document) -> bool:
        """Returns True if every user of a document's declarations was read: sometimes only some
        files of a directory are applied.
        """
        if document.path == "-" or is_address(document.path):
            return True
        beside = read_documents([document.dir])
        return all(it.refused or file_of(it) in self._files for it in beside)

    def _tell(self, written: ManifestOrigin, found: Iterable[Finding]) -> None:
        told: list[Told] = [(written, it) for it in found]
        self._told += told
        # A name that is misspelled in its reference is not reported as unused, too.
        self._sound = self._sound and not told


def _patch_keys(value: Any) -> Iterator[tuple[object, ...]]:
    """Yields the keys by which a patch finds the manifest: its kind, and its kind and name."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str):
        yield (kind,)
        metadata = value.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("name"), str):
            yield kind, metadata["name"]


def _is_base(document: Document, laid: Iterable[LoadedOverlay]) -> bool:
    """Returns True for the base of an overlay beside it: then it is not applied by itself."""
    return any(
        covers_document(list_bases(it.overlay, it.written.document), document)
        for it in laid
        if it.written.document != document
    )


def _add_notes(
    written: ManifestOrigin,
    filling: VariableSubstitution,
    scope: dict[str, DeclaredVariable],
) -> ManifestOrigin:
    if not filling.used:
        return written
    notes = {
        path: tuple(scope[name].note for name in dict.fromkeys(names))
        for path, names in filling.used.items()
    }
    return replace(written, notes={**written.notes, **notes})


def _warn_of_references(draft: ManifestDraft) -> Iterator[Finding]:
    """Yields a warning for a text that looks like a reference, once, because it may be meant: texts
    of other tools look alike.
    """
    for path, name in plain_references(draft.root.value):
        message = f" holds `${{{{ {name} }}}}`, and no variables are declared for this file"
        hint = "the text stays as it is; name the file that declares them with `-f`, too"
        yield Finding(path, message, hint)
        return


def list_declared_names(documents: Sequence[Document]) -> set[str]:
    """Returns the names of all variables, also those that the bases of overlays declare."""
    if needs_rendering(documents):
        return render_drafts(documents).names
    return set()


def needs_rendering(documents: Sequence[Document]) -> bool:
    """Returns False if the documents have no declarations and overlays, and no value is given."""
    return any(it.role or VARIABLES in it.text or OVERLAY in it.text for it in documents)


def rendered_documents(documents: Sequence[Document]) -> list[Document]:
    """Returns the same documents as texts without references. Raises ManifestErrors with all faults
    of references, values and overlays; the documents are not checked against a model.
    """
    return [
        it.written.document._replace(text=to_yaml(it.root.value))
        for it in _render_or_raise(documents)
    ]


def rendered_values(documents: Sequence[Document]) -> list[Any]:
    """The same as values."""
    return [it.root.value for it in _render_or_raise(documents)]


def read_full_values(file: str, text: str) -> list[dict[str, Any]]:
    """Returns the manifests of a text in the full form; references of variables stay. Raises
    ManifestErrors for text that is not YAML, and for fields with two meanings.
    """
    reading = read_manifests(file, text)
    problems = list(reading.problems)
    for number, root in enumerate(reading.roots):
        written = ManifestOrigin(Document(file, text, ""), number, root.prefix)
        found = [] if isinstance(root.value, dict) else [find_no_manifest(root.value, file)]
        findings = [
            *expand_document(deepcopy(root.value)).findings,
            *(it for it in found if it is not None),
        ]
        problems += locate_problems((written, it) for it in findings)
    if problems:
        raise ManifestErrors(problems)
    return list_full_values(root.value for root in reading.roots)


def _render_or_raise(documents: Sequence[Document]) -> list[ManifestDraft]:
    rendered = render_drafts(documents)
    if rendered.problems:
        raise ManifestErrors(sort_problems(rendered.problems, documents))
    return rendered.drafts


def bases_named(documents: Sequence[Document]) -> tuple[str, ...]:
    """Returns the bases of the overlays among these texts, absolute."""
    found: dict[str, None] = {}
    for document in documents:
        if document.role or OVERLAY not in document.text:
            continue
        for number, root in enumerate(read_manifests(document.path, document.text).roots):
            if not _is_a(OVERLAY, root):
                continue
            laid = overlay_of(root, ManifestOrigin(document, number))
            if isinstance(laid, LoadedOverlay):
                found |= dict.fromkeys(list_bases(laid.overlay, document))
    return tuple(found)

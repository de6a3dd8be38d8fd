"""Documents to drafts: what is to be checked, with the values of variables and the patches of
overlays in it.

Called by loader.py and for `fleetctl render`. Documents of which none declares or overlays anything
go through untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from fleetctl.manifest.files.documents import MANIFEST, Document, is_address, read_documents
from fleetctl.manifest.files.lists import read_manifests
from fleetctl.manifest.messages import Finding
from fleetctl.manifest.positions import Told, Written, all_located, located
from fleetctl.manifest.problems import ManifestErrors, Problem, in_order, joined
from fleetctl.manifest.rendering.declared import KIND as VARIABLES
from fleetctl.manifest.rendering.declared import Declared, Scopes, declare, is_variables, left
from fleetctl.manifest.rendering.given import Given, Source, sources_in, unknown
from fleetctl.manifest.rendering.overlays import KIND as OVERLAY
from fleetctl.manifest.rendering.overlays import (
    Laid,
    Patch,
    base_documents,
    bases,
    covers,
    file_of,
    is_overlay,
    lay_all,
    lay_patch,
    overlay_of,
    unmatched,
)
from fleetctl.manifest.rendering.references import OPENING, Filling, Room, plain_references
from fleetctl.manifest.yaml.emit import to_yaml
from fleetctl.manifest.yaml.reader import Root

BASES_BYTES_MAX = 64 * 1024 * 1024  # read once for each overlay over them
NAMES_MAX = 1_000  # that a misspelled one is compared with
CHAIN_MAX = 10  # overlays of overlays; deeper nobody can tell what holds


@dataclass(slots=True)
class Draft:
    """A manifest before it is checked. scope: what its file may refer to. read: other files that it
    was made from, absolute.
    """

    root: Root
    written: Written
    scope: dict[str, Declared] = field(default_factory=dict)
    read: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Rendered:
    """drafts: in order, with those of bases in place of their overlays. names: of all variables
    that are declared. problems: of reading and rendering.
    """

    drafts: list[Draft] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


def render(documents: Sequence[Document]) -> Rendered:
    """All drafts. Values of variables that nobody declares are problems."""
    sources, problems = sources_in(documents)
    work = _Assembly()
    drafts = work.drafts_of([it for it in documents if it.role == MANIFEST], sources, ())
    problems += work.finish(unknown(sources, work.names))
    return Rendered(drafts, list(dict.fromkeys(problems)), work.names)


class _Assembly:
    """What is wrong is gathered and located in one go: a text may hold thousands of mistakes."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._told: list[Told] = []
        self._doubts: list[tuple[Draft, Finding]] = []
        self._room = Room()
        self._bases_bytes = 0
        self._scopes: list[Scopes] = []
        self._files: set[str] = set()  # that were read, absolute
        self._sound = True

    def drafts_of(
        self, documents: Sequence[Document], sources: Sequence[Source], chain: tuple[str, ...]
    ) -> list[Draft]:
        """chain: files of the overlays that these documents are the base of, outermost first."""
        texts = [(it, self._roots(it)) for it in documents]
        laid = self._overlays(texts)
        if laid:
            texts = [(it, roots) for it, roots in texts if not _is_base(it, laid)] or texts
        scopes = self._declared(texts, sources)
        drafts: list[Draft] = []
        for document, roots in texts:
            refers = OPENING in document.text
            for number, root in enumerate(roots):
                written = Written(document, number, root.prefix)
                if is_variables(root):
                    continue
                if is_overlay(root):
                    mine = (it for it in laid if it.written == written)
                    for it in mine:
                        it.scope = scopes.of(document)
                        drafts += self._laid(it, sources, chain)
                else:
                    draft = Draft(root, written, scopes.of(document))
                    drafts.append(self._filled(draft) if refers else draft)
        return drafts

    def finish(self, unknown_names: Iterable[Told]) -> list[Problem]:
        """After all patches are laid: also which variables are missing, and which nobody used."""
        told = [*self._told, *unknown_names]
        for scopes in self._scopes:
            missing, unused = left(scopes)
            told += (*scopes.told, *missing)
            if self._sound:
                hint = "take it away, or refer to it as `${{{{ {} }}}}`"
                told += (
                    it.finding(" is declared, and nothing refers to it", hint.format(it.name))
                    for it in unused
                    if self._whole(it.written.document)
                )
        warned = located((draft.written, finding) for draft, finding in self._doubts)
        for (draft, _), problem in zip(self._doubts, warned, strict=True):
            draft.warnings = (joined(str(problem), problem.hint),)
        return all_located(told)

    def _roots(self, document: Document) -> list[Root]:
        self._files.add(file_of(document))
        if document.refused:
            self._told.append(Problem(document.path, 0, 0, document.refused, document.hint))
            self._sound = False
            return []
        reading = read_manifests(document.path, document.text)
        self._told += reading.problems
        self._sound = self._sound and not reading.problems
        return reading.roots

    def _overlays(self, texts: Iterable[tuple[Document, list[Root]]]) -> list[Laid]:
        found: list[Laid] = []
        for document, roots in texts:
            for number, root in enumerate(roots):
                if not is_overlay(root):
                    continue
                written = Written(document, number, root.prefix)
                made = overlay_of(root, written)
                if isinstance(made, Laid):
                    found.append(made)
                else:
                    self._tell(written, made)
        return found

    def _declared(
        self, texts: Sequence[tuple[Document, list[Root]]], sources: Sequence[Source]
    ) -> Scopes:
        declarations = [
            (root, Written(document, number, root.prefix))
            for document, roots in texts
            for number, root in enumerate(roots)
            if is_variables(root)
        ]
        alone = {it.path for it, roots in texts if roots and all(map(is_variables, roots))}
        scopes = declare(declarations, alone, sources)
        if declarations:
            self._scopes.append(scopes)
            self.names.update(it.name for it in scopes.every())
        return scopes

    def _filled(self, draft: Draft) -> Draft:
        value = draft.root.value
        if not isinstance(value, dict):
            return draft
        if not draft.scope:
            self._doubts += ((draft, it) for it in _left_alone(draft))
            return draft
        filling = Filling(draft.scope, self._room)
        filling.fill(value)
        self._tell(draft.written, filling.found)
        draft.root.broken |= filling.broken
        return replace(draft, written=_noted(draft.written, filling, draft.scope))

    def _laid(self, laid: Laid, sources: Sequence[Source], chain: tuple[str, ...]) -> list[Draft]:
        """The drafts of its base, changed."""
        overlay, written = laid.overlay, laid.written
        mine = file_of(written.document)
        found = list(laid.findings)
        base = [*base_documents(laid, found)]
        self._bases_bytes += sum(len(it.text) for it in base)
        if self._bases_bytes > BASES_BYTES_MAX:
            message = f": all bases together are larger than {BASES_BYTES_MAX // 1024**2} MiB"
            found, base = [Finding(("base",), ("base",), message)], []
        self._tell(written, found)
        chain = (*chain, mine)
        again = next((it for it in base if file_of(it) in chain), None)
        if again is not None or len(chain) > CHAIN_MAX:
            names = " > ".join((*chain, file_of(again) if again is not None else "..."))
            problem = Finding(("base",), ("base",), f" leads back to where it began: {names}")
            self._tell(written, [problem])
            return []
        given: dict[str, Given] = {
            name: Given(name, value=value, written=written, path=("variables", name))
            for name, value in overlay.variables.items()
        }
        outer, self.names = self.names, set()
        drafts = self.drafts_of(base, [*sources, given], chain)
        self._told += unknown([given], self.names)
        self.names |= outer
        by_name: dict[tuple[object, ...], list[Draft]] = {}
        for draft in drafts:
            for key in _keys(draft.root.value):
                by_name.setdefault(key, []).append(draft)
        for patch in laid.patches:
            named = (patch.kind,) if OPENING in patch.name else (patch.kind, patch.name)
            if not self._patched(patch, laid, by_name.get(named, ())):
                values = [it.root.value for it in drafts if isinstance(it.root.value, dict)]
                self._tell(written, [unmatched(patch, values[:NAMES_MAX])])
        read = (*bases(overlay, written.document), mine)
        for draft in drafts:
            if isinstance(draft.root.value, dict):
                draft.written = lay_all(laid, draft.root.value, draft.written)
            draft.read = (*draft.read, *read)
        return drafts

    def _patched(self, patch: Patch, laid: Laid, drafts: Sequence[Draft]) -> bool:
        """Whether it is for one of them."""
        some = False
        for draft in drafts:
            value, filled, scope = draft.root.value, patch, {**draft.scope, **laid.scope}
            filling = Filling(scope, self._room)
            if scope and OPENING in laid.written.document.text:
                filled = Patch(deepcopy(patch.data), patch.path)
                filling.fill(filled.data, patch.path)
            if not filled.meets(value):
                continue
            some = True
            told = _noted(laid.written, filling, scope)
            draft.written, found = lay_patch(filled, laid, value, draft.written, told)
            draft.root.broken |= {it[len(patch.path) :] for it in filling.broken}
            self._tell(told, [*filling.found, *found])
        return some

    def _whole(self, document: Document) -> bool:
        """Whether all that may refer to what a document declares was read: of a directory perhaps
        only some files are applied.
        """
        if document.path == "-" or is_address(document.path):
            return True
        beside = read_documents([document.dir])
        return all(it.refused or file_of(it) in self._files for it in beside)

    def _tell(self, written: Written, found: Iterable[Finding]) -> None:
        told: list[Told] = [(written, it) for it in found]
        self._told += told
        # A name that is misspelled where it is referred to is not told as unused, too.
        self._sound = self._sound and not told


def _keys(value: Any) -> Iterator[tuple[object, ...]]:
    """By which a patch finds the manifest: its kind, and its kind and name."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str):
        yield (kind,)
        metadata = value.get("metadata")
        if isinstance(metadata, dict) and isinstance(metadata.get("name"), str):
            yield kind, metadata["name"]


def _is_base(document: Document, laid: Iterable[Laid]) -> bool:
    """Of an overlay beside it: then it is not applied by itself."""
    return any(
        covers(bases(it.overlay, it.written.document), document)
        for it in laid
        if it.written.document != document
    )


def _noted(written: Written, filling: Filling, scope: dict[str, Declared]) -> Written:
    if not filling.used:
        return written
    notes = {
        path: tuple(scope[name].note for name in dict.fromkeys(names))
        for path, names in filling.used.items()
    }
    return replace(written, notes={**written.notes, **notes})


def _left_alone(draft: Draft) -> Iterator[Finding]:
    """Warned about once, for it may be meant: texts of other tools look alike."""
    for path, name in plain_references(draft.root.value):
        message = f" holds `${{{{ {name} }}}}`, and no variables are declared for this file"
        hint = "the text stays as it is; name the file that declares them with `-f`, too"
        yield Finding(path, path, message, hint)
        return


def declared_names(documents: Sequence[Document]) -> set[str]:
    """Of all variables, also of those that the bases of overlays declare."""
    return render(documents).names if renders(documents) else set()


def renders(documents: Sequence[Document]) -> bool:
    """False where nothing declares or overlays anything, and no value is given."""
    return any(it.role or VARIABLES in it.text or OVERLAY in it.text for it in documents)


def rendered_documents(documents: Sequence[Document]) -> list[Document]:
    """The same as texts that refer to nothing any more. Raises ManifestErrors with all that is
    wrong with references, values and overlays; nothing is checked against a model.
    """
    return [it.written.document._replace(text=to_yaml(it.root.value)) for it in _sound(documents)]


def rendered_values(documents: Sequence[Document]) -> list[Any]:
    """The same as values."""
    return [it.root.value for it in _sound(documents)]


def _sound(documents: Sequence[Document]) -> list[Draft]:
    rendered = render(documents)
    if rendered.problems:
        raise ManifestErrors(in_order(rendered.problems, documents))
    return rendered.drafts


def bases_named(documents: Sequence[Document]) -> tuple[str, ...]:
    """What the overlays among these texts are made of, absolute."""
    found: dict[str, None] = {}
    for document in documents:
        if document.role or OVERLAY not in document.text:
            continue
        for number, root in enumerate(read_manifests(document.path, document.text).roots):
            laid = overlay_of(root, Written(document, number)) if is_overlay(root) else []
            if isinstance(laid, Laid):
                found |= dict.fromkeys(bases(laid.overlay, document))
    return tuple(found)

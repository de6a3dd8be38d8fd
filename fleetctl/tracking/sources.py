"""The code that manifests name, as it is when they are proposed: read at every apply, plan, diff
and watch. What an apply finds is kept with the object, and its runs get just that.

Called by the receiver and by dry runs (`look`), by the writing half of an apply (`keep`), and where
a run's order is made (`pinned`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, Unavailable, UsageError
from fleetctl.common.text import did_you_mean
from fleetctl.manifest.checks.commands import programs
from fleetctl.providers.sources import git
from fleetctl.providers.sources.apart import Apart
from fleetctl.providers.sources.excludes import Excludes
from fleetctl.providers.sources.revision import APART, Tree
from fleetctl.providers.sources.snapshots import EVERYTHING, Snapshots, differing, name_of
from fleetctl.specs.blocks.common import Execution, work_in
from fleetctl.specs.blocks.template import Source, Template
from fleetctl.tracking.annotations import ORIGIN, REVISION
from fleetctl.tracking.commits import commits_of
from fleetctl.tracking.looked import (
    FILES_SHOWN_MAX,
    Looked,
    copy_in,
    files_text,
    inside,
    kept_in,
    short,
    where,
)
from fleetctl.tracking.required import Required
from fleetctl.tracking.written import WrittenFiles

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

SOURCE_MISSING = "SourceMissing"


class Sources:
    """home: the state directory."""

    def __init__(self, home: Path) -> None:
        self._home, self._snapshots = home, Snapshots(home)
        self._written = WrittenFiles(home)
        self._required = Required()

    async def look(self, manifests: Sequence[Manifest]) -> dict[str, Looked]:
        """By the key of each object that names a source. Waits for remotes up to GIT_LOOK_S; raises
        UsageError for a ref that a remote does not have.
        """
        named = [(it, source) for it in manifests if (source := source_of(it.spec)) is not None]
        paths = [(it, source) for it, source in named if source.path is not None]
        repositories = [(it, source) for it, source in named if source.git is not None]
        found = await asyncio.to_thread(self._directories, paths) if paths else {}
        return found | (await commits_of(repositories, self._home) if repositories else {})

    async def required(
        self, manifests: Sequence[Manifest], looked: Mapping[str, Looked]
    ) -> list[Manifest]:
        """The manifests with what files of their repositories require. looked: as `look` found
        them. Raises UsageError.
        """
        return [
            await self._required.read_into(it, looked.get(it.key, Looked()).held)
            for it in manifests
        ]

    def keep(
        self, manifests: Sequence[Manifest], looked: Mapping[str, Looked]
    ) -> dict[str, Looked]:
        """Have snapshots of all directories, so that runs get what is stored with their object. To
        be called in a thread. Raises Refused.
        """
        kept = dict(looked)
        for manifest in manifests:
            source, seen = source_of(manifest.spec), looked.get(manifest.key)
            if seen is None or source is None or source.path is None or not seen.revision:
                continue
            origin, apart = Path(seen.origin), self._apart(source, seen.origin, seen.apart)
            tree = Tree(seen.revision, seen.copy, seen.files)
            follow = source.follow_links
            try:
                tree = self._snapshots.keep(origin, source.exclude, tree, apart, follow=follow)
            except OSError as error:
                raise Refused(
                    f"{manifest.key}: source.path `{origin}` cannot be copied: {error.strerror}",
                    hint="the copy lies in the state directory; see that its disk has room",
                ) from error
            kept[manifest.key] = replace(
                seen, revision=tree.revision, copy=tree.copy, files=tree.files
            )
        return kept

    def settled(
        self, source: Source | None, annotations: Mapping[str, str], looked: Looked
    ) -> Looked:
        """The same, with the revision that an object has already where the program is the same: by
        the rules of today, also where it was looked at by those of an earlier version. annotations:
        of the object.
        """
        before, revision = kept_in(annotations), looked.revision
        if source is None or source.path is None or revision in ("", before.revision):
            return looked
        if not before.revision:
            return looked
        if before.copy != looked.copy:
            apart = self._apart(source, looked.origin, looked.apart)
            name = name_of(Path(before.origin or looked.origin))
            if self._snapshots.tree_of(before.copy, name, apart).revision != revision:
                return looked
        return replace(looked, revision=before.revision)

    def pinned(self, template: Template, annotations: Mapping[str, str]) -> Template:
        """The template with its source as it was when its object was applied. Raises Unavailable
        when nobody has that any more.
        """
        source, held = template.source, copy_in(annotations)
        if source is None:
            return template
        if source.git is not None:
            if not git.is_commit(held):
                return template
            commit = source.git.model_copy(update={"ref": held})
            return _with(template, source.model_copy(update={"git": commit}))
        origin = annotations.get(ORIGIN, source.path or "")
        if not held:
            return _with(template, source.model_copy(update={"path": origin}))
        copy = self._snapshots.path_of(held, name_of(Path(origin)))
        if copy is None:
            raise Unavailable(
                f"the copy of source.path `{origin}` is no longer in the state directory",
                reason=SOURCE_MISSING,
                hint="apply the manifest again",
            )
        taken = {"path": str(copy), "exclude": EVERYTHING, "follow_links": False}
        return _with(template, source.model_copy(update=taken))

    def changed(self, annotations: Mapping[str, str], looked: Looked) -> str:
        """How a source differs from what was applied, in a few words; empty when it does not."""
        before = kept_in(annotations)
        if before.revision == looked.revision:
            return ""
        if not before.revision:
            return f"now {short(looked.held)}"
        told = f"{short(before.copy)} -> {short(looked.held)}"
        if git.is_commit(before.copy) or git.is_commit(looked.held):
            return told
        old = self._snapshots.files_of(before.copy, name_of(Path(before.origin or looked.origin)))
        return files_text(differing(old, looked.files)) if old else told

    def moved_on(self, source: Source | None, annotations: Mapping[str, str]) -> str:
        """How the directory of an object differs from the copy that its runs get; empty when it
        does not, or nobody can tell.
        """
        before = kept_in(annotations)
        if source is None or source.path is None or not before.origin or not before.revision:
            return ""
        now = self._looked(source, before.origin, before.apart)
        if not now.revision:
            return ""
        return self.changed(annotations, self.settled(source, annotations, now))

    def sweep(self, annotations: Iterable[Mapping[str, str]]) -> None:
        """Let go of copies that no object names. To be called in a thread."""
        named = {
            (copy_in(it), name_of(Path(it[ORIGIN])))
            for it in annotations
            if REVISION in it and ORIGIN in it
        }
        self._snapshots.sweep(named)

    def _directories(self, named: Sequence[tuple[Manifest, Source]]) -> dict[str, Looked]:
        """Raises UsageError for what cannot be read."""
        found: dict[str, Looked] = {}
        seen: dict[tuple[object, ...], Looked] = {}
        for manifest, source in named:
            origin = manifest.origin or source.path or ""
            apart = inside(manifest.read, origin)
            at = (origin, source.exclude, source.follow_links, apart)
            if at not in seen:
                try:
                    seen[at] = self._looked(source, origin, apart)
                except Refused as error:
                    raise UsageError(f"{where(manifest)}: {error}", hint=error.hint) from error
            one = seen[at]
            doubts = (*one.warnings, *_doubts(manifest, one))
            found[manifest.key] = replace(
                one,
                warnings=tuple(f"{where(manifest)}: {it}" for it in doubts),
                notes=tuple(f"{manifest.key}: {it}" for it in one.notes),
            )
        return found

    def _looked(self, source: Source, origin: str, apart: tuple[str, ...]) -> Looked:
        """What a directory holds now. Raises Refused for what cannot be read."""
        rule, follow = self._apart(source, origin, apart), source.follow_links
        tree = self._snapshots.look(Path(origin), source.exclude, rule, follow=follow)
        if tree.problem:
            raise Refused(
                f"source.path `{source.path}`: {tree.problem}",
                hint="change its mode, or leave it out by `exclude`",
            )
        warnings = [_left_out(source, tree.outside)] if tree.outside else []
        if not tree.revision:
            warnings.append(
                f"source.path `{source.path}` is too large to compare, or cannot be read; an edit"
                " of it is not noticed"
            )
            return Looked("", origin, warnings=tuple(warnings))
        aside = [name for name, held in tree.files.items() if held.startswith(APART)]
        told = f"no part of the program, and not compared: {', '.join(aside)}"
        hint = '`exclude: ["!NAME"]` makes one count'
        return Looked(
            tree.revision,
            origin,
            tree.files,
            tree.copy,
            apart,
            tuple(warnings),
            (f"{told}; {hint}",) if aside else (),
        )

    def _apart(self, source: Source, origin: str, names: tuple[str, ...]) -> Apart:
        return Apart(frozenset(names), self._written.below(origin), Excludes(source.exclude))


def source_of(spec: object) -> Source | None:
    """The source of a spec; a Function has its own, kinds that run have it in their template."""
    spec = work_in(spec)
    holder = getattr(spec, "template", None) if isinstance(spec, Execution) else spec
    return getattr(holder, "source", None)


def _left_out(source: Source, links: Sequence[str]) -> str:
    """Of links that no copy has."""
    shown = ", ".join(links[:FILES_SHOWN_MAX]) + (", …" if len(links) > FILES_SHOWN_MAX else "")
    one = len(links) == 1
    what = "a link that leads" if one else f"{len(links):,} links that lead"
    left = f"source.path `{source.path}` has {what} out of it, and tasks do not get: {shown}"
    if source.follow_links:
        return f"{left}; there is nothing where {'it leads' if one else 'they lead'}"
    return f"{left}; `followLinks: true` copies what {'it leads' if one else 'they lead'} to"


def _doubts(manifest: Manifest, looked: Looked) -> Iterator[str]:
    if looked.revision and (lacks := _lacking(manifest, looked.files)):
        yield lacks
    for name in (it for it, held in looked.files.items() if held.startswith(APART)):
        if _names(manifest, name):
            origin = "the manifest is read from it" if name in looked.apart else "fleetctl wrote it"
            yield (
                f"the work names `{name}`, and an edit of it runs nothing again, as {origin}; where"
                f' the program reads it, `exclude: ["!{name}"]` makes it count'
            )


def _names(manifest: Manifest, name: str) -> bool:
    """Whether the work of a manifest has the name of a file in it."""
    template = getattr(work_in(manifest.spec), "template", None)
    if template is None:
        return False
    texts = (template.script, template.python, *(template.command or ()))
    return any(name in re.split(r"[^\w./-]+", text) for text in texts if text)


def _lacking(manifest: Manifest, files: Mapping[str, str]) -> str:
    """A program that the source does not have; empty where all are there, or another directory
    holds them.
    """
    spec = work_in(manifest.spec)
    template = getattr(spec, "template", None)
    if template is not None and template.workdir is not None:
        return ""
    for name in programs(spec):
        if name not in files:
            near = did_you_mean(name, list(files))
            rest = f"; {near}" if near else ""
            return f"`{name}` is not among the files of source.path{rest}"
    return ""


def _with(template: Template, source: Source) -> Template:
    return template.model_copy(update={"source": source})

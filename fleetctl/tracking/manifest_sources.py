"""The code that manifests name, as it is when they are proposed: read at every apply, plan and
diff, with the requirements at the commit that an apply found.

The state that an apply finds is stored with the object, and its runs get just that.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fleetctl.common.errors import Refused, Unavailable, UsageError
from fleetctl.common.text import did_you_mean
from fleetctl.manifest.checks.commands import list_programs
from fleetctl.manifest.files.patience import call_in_file_thread
from fleetctl.manifest.files.requirements import RequirementsError, read_requirements
from fleetctl.manifest.problems import path_text
from fleetctl.manifest.rules import check_text, split_doubts
from fleetctl.providers.sources import commit_facts, git
from fleetctl.providers.sources.excludes import Excludes, UnrelatedFiles
from fleetctl.providers.sources.revision import APART, SourceTree
from fleetctl.providers.sources.source_snapshots import (
    EVERYTHING,
    InputFiles,
    Snapshots,
    list_differing,
    name_of,
)
from fleetctl.providers.sources.upload_store import sweep_uploads
from fleetctl.specs.blocks.common import WorkSpec, work_in
from fleetctl.specs.blocks.template import GitSource, Image, PipIndex, Source, Template
from fleetctl.specs.kinds.batchjob import awaits_listing
from fleetctl.specs.values.packages import LOCAL, split_options, with_options
from fleetctl.tracking.annotations import ORIGIN, REVISION
from fleetctl.tracking.source_state import (
    SourceState,
    commits_of,
    copy_in,
    files_text,
    format_position,
    list_inside,
    load_source_state,
    names_text,
    shorten_revision,
)
from fleetctl.tracking.task_inputs import TaskInputs, list_volumes
from fleetctl.tracking.written_files import WrittenFiles

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest
    from fleetctl.stores.base import ReadableStore


SOURCE_MISSING = "SourceMissing"

READ_S = 30.0  # for a remote to hand over some texts; an apply waits for it
FOUND_MAX = 1000
HINT = "list them in `image.pip`, or name a copy beside the manifest there: `-r requirements.txt`"


class ManifestSources:
    """Reads sources. home: the state directory."""

    def __init__(self, home: Path) -> None:
        self._home, self._snapshots = home, Snapshots(home)
        self.inputs = TaskInputs(InputFiles(home))
        self._written = WrittenFiles(home)
        self._required = FileRequirements()

    async def look(self, manifests: Sequence[Manifest]) -> dict[str, SourceState]:
        """Returns states by the key of each object that names a source. Waits for remotes up to
        GIT_LOOK_S; raises UsageError for a ref that a remote does not have.
        """
        named = [(it, source) for it in manifests if (source := source_of(it.spec)) is not None]
        paths = [(it, source) for it, source in named if source.path is not None]
        repositories = [(it, source) for it, source in named if source.git is not None]
        found = await call_in_file_thread(self._directories, paths) if paths else {}
        return found | (await commits_of(repositories, self._home) if repositories else {})

    async def required(
        self,
        manifests: Sequence[Manifest],
        looked: Mapping[str, SourceState],
        stored: ReadableStore,
    ) -> list[Manifest]:
        """Returns the manifests with the requirements in files of their repositories, and with the
        files of volumes as tasks. looked: as `look` found them. Raises UsageError.
        """
        whole = [await self._required.read_into(it, looked.get(it.key)) for it in manifests]
        if any(awaits_listing(it.spec) for it in whole):
            return await list_volumes(whole, stored, self._home)
        return whole

    def keep(
        self, manifests: Sequence[Manifest], looked: Mapping[str, SourceState]
    ) -> dict[str, SourceState]:
        """Makes snapshots of all directories, and copies of the files of tasks, so that runs get
        what is stored with their object. To be called in a thread. Raises Refused.
        """
        kept = dict(looked)
        for manifest in manifests:
            self.inputs.keep(manifest)
            source = source_of(manifest.spec)
            seen = looked.get(manifest.key)
            if seen is None or source is None or source.path is None or not seen.revision:
                continue
            origin, apart = Path(seen.origin), self._list_unrelated(source, seen.origin, seen.apart)
            tree = SourceTree(seen.revision, seen.copy, seen.files)
            follow = source.follow_links
            try:
                tree = self._snapshots.keep(
                    origin,
                    source.exclude,
                    tree,
                    apart,
                    follow=follow,
                )
            except OSError as error:
                raise Refused(
                    f"{manifest.key}: source.path `{origin}` cannot be copied: {error.strerror}",
                    hint="the copy is written to the state directory; free some room on its disk",
                ) from error
            kept[manifest.key] = replace(
                seen,
                revision=tree.revision,
                copy=tree.copy,
                files=tree.files,
            )
        return kept

    def settled(
        self,
        source: Source | None,
        annotations: Mapping[str, str],
        looked: SourceState,
    ) -> SourceState:
        """Returns the state with the revision that an object has already where the program is the
        same: by the rules of today, also where an earlier version read it. annotations: of the
        object.
        """
        before = load_source_state(annotations)
        revision = looked.revision
        if source is None or revision in ("", before.revision):
            return looked
        if source.path is None:
            same = looked.beside and looked.beside == before.beside
            if same:
                return replace(looked, revision=before.revision)
            return looked
        if not before.revision:
            return looked
        if before.copy != looked.copy:
            apart = self._list_unrelated(source, looked.origin, looked.apart)
            name = name_of(Path(before.origin or looked.origin))
            if self._snapshots.tree_of(before.copy, name, apart).revision != revision:
                return looked
        return replace(looked, revision=before.revision)

    def pinned(self, template: Template, annotations: Mapping[str, str]) -> Template:
        """Returns the template with its source as it was when its object was applied. Raises
        Unavailable when no copy is left.
        """
        source = template.source
        held = copy_in(annotations)
        if source is None:
            return template
        if source.git is not None:
            if not git.is_commit(held):
                return template
            commit = source.git.model_copy(update={"ref": held})
            return _replace_source(template, source.model_copy(update={"git": commit}))
        origin = annotations.get(ORIGIN, source.path or "")
        if not held:
            return _replace_source(template, source.model_copy(update={"path": origin}))
        copy = self._snapshots.path_of(held, name_of(Path(origin)))
        if copy is None:
            raise Unavailable(
                f"the copy of source.path `{origin}` is no longer in the state directory",
                reason=SOURCE_MISSING,
                hint="apply the manifest again",
            )
        taken = {"path": str(copy), "exclude": EVERYTHING, "follow_links": False}
        return _replace_source(template, source.model_copy(update=taken))

    def changed(self, annotations: Mapping[str, str], looked: SourceState) -> str:
        """Returns how a source differs from the applied one, in a few words; empty when it does
        not."""
        before = load_source_state(annotations)
        if before.revision == looked.revision:
            return ""
        if not before.revision:
            return f"now {shorten_revision(looked.held)}"
        told = f"{shorten_revision(before.copy)} -> {shorten_revision(looked.held)}"
        if git.is_commit(before.copy) or git.is_commit(looked.held):
            return told
        old = self._snapshots.files_of(before.copy, name_of(Path(before.origin or looked.origin)))
        if old:
            return files_text(list_differing(old, looked.files))
        return told

    def describe_drift(self, source: Source | None, annotations: Mapping[str, str]) -> str:
        """Returns how the directory of an object differs from the copy that its runs get; empty
        when it does not, or that is unknown.
        """
        before = load_source_state(annotations)
        if source is None or source.path is None or not before.origin or not before.revision:
            return ""
        now = self._looked(source, before.origin, before.apart)
        if not now.revision:
            return ""
        return self.changed(annotations, self.settled(source, annotations, now))

    def sweep(self, annotations: Iterable[Mapping[str, str]]) -> None:
        """Deletes copies that no object names. To be called in a thread."""
        named = {
            (copy_in(it), name_of(Path(it[ORIGIN])))
            for it in annotations
            if REVISION in it and ORIGIN in it
        }
        self._snapshots.sweep(named)

    def sweep_uploads(self, specs: Sequence[str]) -> None:
        """Deletes what users of a server sent and nobody uses. To be called in a thread. specs: all
        that may name some of it, JSON."""
        sweep_uploads(self._home, specs)

    def _directories(self, named: Sequence[tuple[Manifest, Source]]) -> dict[str, SourceState]:
        """Reads directories. Raises UsageError for an unreadable one."""
        found: dict[str, SourceState] = {}
        seen: dict[tuple[object, ...], SourceState] = {}
        for manifest, source in named:
            origin = manifest.origin or source.path or ""
            apart = list_inside(manifest.read, origin)
            at = (origin, source.exclude, source.follow_links, apart)
            if at not in seen:
                try:
                    seen[at] = self._looked(source, origin, apart)
                except Refused as error:
                    raise UsageError(
                        f"{format_position(manifest)}: {error}", hint=error.hint
                    ) from error
            one = seen[at]
            doubts = (*one.warnings, *_list_doubts(manifest, one))
            found[manifest.key] = replace(
                one,
                warnings=tuple(f"{format_position(manifest)}: {it}" for it in doubts),
                notes=tuple(f"{manifest.key}: {it}" for it in one.notes),
            )
        return found

    def _looked(
        self,
        source: Source,
        origin: str,
        apart: tuple[str, ...],
    ) -> SourceState:
        """Returns the present state of a directory. Raises Refused for an unreadable one."""
        rule = self._list_unrelated(source, origin, apart)
        follow = source.follow_links
        tree = self._snapshots.look(Path(origin), source.exclude, rule, follow=follow)
        if tree.problem:
            raise Refused(
                f"source.path `{source.path}`: {tree.problem}",
                hint="change its mode, or leave it out by `exclude`",
            )
        warnings = [_warn_of_links(source, tree.outside)] if tree.outside else []
        if not tree.revision:
            warnings.append(
                f"source.path `{source.path}` is too large to compare, or cannot be read; an edit"
                " of it is not noticed"
            )
            return SourceState("", origin, warnings=tuple(warnings))
        aside = [name for name, held in tree.files.items() if held.startswith(APART)]
        told = f"no part of the program, and not compared: {', '.join(aside)}"
        hint = '`exclude: ["!NAME"]` makes one count'
        return SourceState(
            tree.revision,
            origin,
            tree.files,
            tree.copy,
            apart,
            tree.pointers,
            len(tree.pointers),
            tuple(warnings),
            (f"{told}; {hint}",) if aside else (),
        )

    def _list_unrelated(
        self,
        source: Source,
        origin: str,
        names: tuple[str, ...],
    ) -> UnrelatedFiles:
        return UnrelatedFiles(
            frozenset(names), self._written.below(origin), Excludes(source.exclude)
        )


def source_of(spec: object) -> Source | None:
    """Returns the source of a spec; a Function has its own, kinds that run have it in their
    template."""
    spec = work_in(spec)
    holder = getattr(spec, "template", None) if isinstance(spec, WorkSpec) else spec
    return getattr(holder, "source", None)


def _warn_of_links(source: Source, links: Sequence[str]) -> str:
    """Returns a warning on links that no copy has."""
    one = len(links) == 1
    what = "a link that leads" if one else f"{len(links):,} links that lead"
    shown = names_text(links)
    left = f"source.path `{source.path}` has {what} out of it, and tasks do not get: {shown}"
    if source.follow_links:
        return f"{left}; there is nothing where {'it leads' if one else 'they lead'}"
    return f"{left}; `followLinks: true` copies what {'it leads' if one else 'they lead'} to"


def _list_doubts(manifest: Manifest, looked: SourceState) -> Iterator[str]:
    if looked.revision and (lacks := _find_lacking(manifest, looked.files)):
        yield lacks
    for name in (it for it, held in looked.files.items() if held.startswith(APART)):
        if _mentions_file(manifest, name):
            origin = "the manifest is read from it" if name in looked.apart else "fleetctl wrote it"
            yield (
                f"the work names `{name}`, and an edit of it runs nothing again, as {origin}; where"
                f' the program reads it, `exclude: ["!{name}"]` makes it count'
            )


def _mentions_file(manifest: Manifest, name: str) -> bool:
    """Returns true where the work of a manifest contains the name of a file."""
    template = getattr(work_in(manifest.spec), "template", None)
    if template is None:
        return False
    texts = (template.script, template.python, *(template.command or ()))
    return any(name in re.split(r"[^\w./-]+", text) for text in texts if text)


def _find_lacking(manifest: Manifest, files: Mapping[str, str]) -> str:
    """Returns a program that the source does not have; empty where all are there, or another
    directory holds them.
    """
    spec = work_in(manifest.spec)
    template = getattr(spec, "template", None)
    if template is not None and template.workdir is not None:
        return ""
    for name in list_programs(spec):
        if name not in files:
            near = did_you_mean(name, list(files))
            rest = f"; {near}" if near else ""
            return f"`{name}` is not among the files of source.path{rest}"
    return ""


def _replace_source(template: Template, source: Source) -> Template:
    return template.model_copy(update={"source": source})


def _add_index_options(where: str, image: Image, options: dict[str, Any]) -> PipIndex:
    """Returns the package index of an image with the options of its file of requirements. where:
    begins the message of the error.
    """
    given = image.pip_index
    before = None if given is None else given.model_dump(by_alias=True, exclude_none=True)
    try:
        return PipIndex.model_validate(with_options(before, options))
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        raise UsageError(f"{where}: `{image.requirements}`: {why}", hint=HINT) from error


class FileRequirements:
    """The lines of files at commits; a commit never changes, so each is read once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], tuple[str, ...]] = {}

    async def read_into(self, manifest: Manifest, looked: SourceState | None) -> Manifest:
        """Returns the manifest with the requirements of its repository. looked: its commit, where
        known. Raises UsageError.
        """
        holder: Any = getattr(manifest.spec, "template", None) or manifest.spec
        image: Image | None = getattr(holder, "image", None)
        if image is None or image.requirements is None:
            return manifest

        where = f"{manifest.path}:{manifest.line}: {manifest.key}: image.requirements"
        commit = looked.held if looked is not None else ""
        listed = await self._read_lines(where, holder.source.git, commit, image.requirements)
        packages, options = split_options([*listed])
        update: dict[str, Any] = {"pip": (*image.pip, *packages), "requirements": None}
        if options:
            update["pip_index"] = _add_index_options(where, image, options)

        changed = holder.model_copy(update={"image": image.model_copy(update=update)})
        if holder is not manifest.spec:
            changed = manifest.spec.model_copy(update={"template": changed})
        for finding in split_doubts(check_text(changed))[0]:
            problem = path_text(finding.subject) + finding.what
            raise UsageError(f"{where}: {problem}", hint=finding.fix)
        return replace(manifest, spec=changed)

    async def _read_lines(
        self,
        where: str,
        source: GitSource,
        commit: str,
        file: str,
    ) -> Sequence[str]:
        """Returns the lines of the file. where: begins the message of each error."""
        try:
            return await self._listed(source, commit, file)
        except RequirementsError as error:
            line = f", line {error.line}" if error.line else ""
            raise UsageError(f"{where}: `{error.file}`{line}: {error}", hint=HINT) from error
        except Refused as error:
            raise UsageError(f"{where}: {error}", hint=error.hint) from error
        except (Unavailable, TimeoutError) as error:
            problem = str(error) or f"the repository did not answer within {READ_S:g} s"
            raise UsageError(f"{where} cannot be read from here: {problem}", hint=HINT) from error

    async def _listed(
        self,
        source: GitSource,
        commit: str,
        file: str,
    ) -> tuple[str, ...]:
        if not commit:
            ref = f"`{source.ref}`" if source.ref else "the default branch"
            raise Unavailable(f"{git.redact_url(source.url)} does not report what {ref} is now")
        file = posixpath.join(source.path or "", file)
        key = (source.url, commit, file)
        if key not in self._found:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            with TemporaryDirectory(prefix="fleetctl-") as directory:
                async with asyncio.timeout(READ_S):
                    await commit_facts.check_out(source, commit, file, Path(directory))
                listed = read_requirements(file, directory, [], within=directory)
            for entry in listed:
                if LOCAL.fullmatch(entry):  # a repository must not reach for files of this machine
                    raise RequirementsError(f"`{entry}` is a path of this machine", file=file)
            self._found[key] = tuple(listed)
        return self._found[key]

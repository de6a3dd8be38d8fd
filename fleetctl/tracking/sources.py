"""The code that manifests name, as it is when they are proposed: read at every apply, plan, diff
and watch. What an apply finds is kept with the object, and its runs get just that.

Called by the receiver and by dry runs (`look`), by the writing half of an apply (`keep`), and where
a run's order is made (`pinned`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, Unavailable, UsageError
from fleetctl.common.text import did_you_mean
from fleetctl.manifest.checks.commands import programs
from fleetctl.providers.sources import git
from fleetctl.providers.sources.pinning import current
from fleetctl.providers.sources.revision import Tree
from fleetctl.providers.sources.snapshots import EVERYTHING, Snapshots, differing, name_of
from fleetctl.specs.blocks.common import Execution, work_in
from fleetctl.specs.blocks.template import GitSource, Source, Template
from fleetctl.specs.builtin import runs_here
from fleetctl.tracking.annotations import ORIGIN, REVISION
from fleetctl.tracking.required import Required

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

GIT_LOOK_S = 10.0  # for all remotes together: a plan waits no longer for a network
GIT_AT_ONCE = 8
FILES_SHOWN_MAX = 3
COMMIT_SHOWN = 7
SOURCE_MISSING = "SourceMissing"


@dataclass(frozen=True, slots=True)
class Looked:
    """What a source is now. revision: as in fleetctl.specs.content.Pins. origin: the directory of a
    `source.path`. files: of that, relative path -> digest. warning: a sentence, or empty.
    """

    revision: str = ""
    origin: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    warning: str = ""


class Sources:
    """home: the state directory."""

    def __init__(self, home: Path) -> None:
        self._snapshots = Snapshots(home)
        self._required = Required()

    async def look(self, manifests: Sequence[Manifest]) -> dict[str, Looked]:
        """By the key of each object that names a source. Waits for remotes up to GIT_LOOK_S; raises
        UsageError for a ref that a remote does not have.
        """
        named = [(it, source) for it in manifests if (source := source_of(it.spec)) is not None]
        paths = [(it, source) for it, source in named if source.path is not None]
        repositories = [(it, source) for it, source in named if source.git is not None]
        found = await asyncio.to_thread(self._directories, paths) if paths else {}
        return found | (await _commits(repositories) if repositories else {})

    async def required(
        self, manifests: Sequence[Manifest], looked: Mapping[str, Looked]
    ) -> list[Manifest]:
        """The manifests with what files of their repositories require. looked: as `look` found
        them. Raises UsageError.
        """
        return [
            await self._required.read_into(it, looked.get(it.key, Looked()).revision)
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
            origin = Path(seen.origin)
            try:
                tree = self._snapshots.keep(origin, source.exclude, Tree(seen.revision, seen.files))
            except OSError as error:
                raise Refused(
                    f"{manifest.key}: source.path `{origin}` cannot be copied: {error.strerror}",
                    hint="the copy lies in the state directory; see that its disk has room",
                ) from error
            kept[manifest.key] = Looked(tree.revision, seen.origin, tree.files, seen.warning)
        return kept

    def pinned(self, template: Template, annotations: Mapping[str, str]) -> Template:
        """The template with its source as it was when its object was applied. Raises Unavailable
        when nobody has that any more.
        """
        source, revision = template.source, annotations.get(REVISION, "")
        if source is None:
            return template
        if source.git is not None:
            if not git.is_commit(revision):
                return template
            commit = source.git.model_copy(update={"ref": revision})
            return _with(template, source.model_copy(update={"git": commit}))
        origin = annotations.get(ORIGIN, source.path or "")
        if not revision:
            return _with(template, source.model_copy(update={"path": origin}))
        copy = self._snapshots.path_of(revision, name_of(Path(origin)))
        if copy is None:
            raise Unavailable(
                f"the copy of source.path `{origin}` is no longer in the state directory",
                reason=SOURCE_MISSING,
                hint="apply the manifest again",
            )
        return _with(template, source.model_copy(update={"path": str(copy), "exclude": EVERYTHING}))

    def changed(self, annotations: Mapping[str, str], looked: Looked) -> str:
        """How a source differs from what was applied, in a few words; empty when it does not."""
        before = annotations.get(REVISION, "")
        if before == looked.revision:
            return ""
        if not before:
            return f"now {_short(looked.revision)}"
        if git.is_commit(before) or git.is_commit(looked.revision):
            return f"{_short(before)} -> {_short(looked.revision)}"
        origin = annotations.get(ORIGIN, looked.origin)
        old = self._snapshots.files_of(before, name_of(Path(origin)))
        if not old:
            return f"{_short(before)} -> {_short(looked.revision)}"
        return files_text(differing(old, looked.files))

    def moved_on(self, source: Source | None, annotations: Mapping[str, str]) -> str:
        """How the directory of an object differs from the copy that its runs get; empty when it
        does not, or nobody can tell.
        """
        origin, revision = annotations.get(ORIGIN, ""), annotations.get(REVISION, "")
        if source is None or source.path is None or not origin or not revision:
            return ""
        tree = self._snapshots.look(Path(origin), source.exclude)
        if not tree.revision:
            return ""
        return self.changed(annotations, Looked(tree.revision, origin, tree.files))

    def sweep(self, annotations: Iterable[Mapping[str, str]]) -> None:
        """Let go of copies that no object names. To be called in a thread."""
        named = {
            (it[REVISION], name_of(Path(it[ORIGIN])))
            for it in annotations
            if REVISION in it and ORIGIN in it
        }
        self._snapshots.sweep(named)

    def _directories(self, named: Sequence[tuple[Manifest, Source]]) -> dict[str, Looked]:
        found: dict[str, Looked] = {}
        seen: dict[tuple[str, tuple[str, ...]], Looked] = {}
        for manifest, source in named:
            origin = manifest.origin or source.path or ""
            at = (origin, source.exclude)
            if at not in seen:
                tree = self._snapshots.look(Path(origin), source.exclude)
                seen[at] = Looked(tree.revision, origin, tree.files)
            one = seen[at]
            if not one.revision:
                one = Looked("", origin, {}, _too_large(manifest, source))
            elif lacks := _lacking(manifest, one.files):
                one = replace(one, warning=lacks)
            found[manifest.key] = one
        return found


def source_of(spec: object) -> Source | None:
    """The source of a spec; a Function has its own, kinds that run have it in their template."""
    spec = work_in(spec)
    holder = getattr(spec, "template", None) if isinstance(spec, Execution) else spec
    return getattr(holder, "source", None)


def files_text(names: Sequence[str]) -> str:
    """`3 files: train.py, model.py, …`."""
    shown = ", ".join(names[:FILES_SHOWN_MAX])
    rest = ", …" if len(names) > FILES_SHOWN_MAX else ""
    return f"{len(names):,} file{'s'[: len(names) != 1]}: {shown}{rest}"


async def _commits(named: Sequence[tuple[Manifest, Source]]) -> dict[str, Looked]:
    """What the refs name now; a remote that does not answer in time leaves what was known."""
    gate = asyncio.Semaphore(GIT_AT_ONCE)
    asked: dict[tuple[str, str | None], asyncio.Task[str | None]] = {}

    async def ask(wanted: GitSource, *, here: bool) -> str | None:
        async with gate:
            return await current(wanted, here=here)

    for manifest, source in named:
        assert source.git is not None
        at = (source.git.url, source.git.ref)
        if at not in asked:
            asked[at] = asyncio.ensure_future(ask(source.git, here=_runs_here(manifest.spec)))
    await asyncio.wait(asked.values(), timeout=GIT_LOOK_S)
    found: dict[str, Looked] = {}
    try:
        for manifest, source in named:
            assert source.git is not None
            task = asked[source.git.url, source.git.ref]
            try:
                commit = task.result() if task.done() else None
            except Refused as error:
                where = f"{manifest.path}:{manifest.line}: {manifest.key}"
                raise UsageError(f"{where}: {error}", hint=error.hint) from error
            if commit is not None:
                found[manifest.key] = Looked(commit)
            elif git.host(source.git.url):
                found[manifest.key] = Looked(warning=_unasked(manifest, source.git))
    finally:
        for task in asked.values():
            task.cancel()
        await asyncio.gather(*asked.values(), return_exceptions=True)
    return found


def _runs_here(spec: object) -> bool:
    """Whether a path of this machine means the same where it runs."""
    spec = work_in(spec)
    if isinstance(spec, Execution):
        return all(map(runs_here, spec.providers()))
    return runs_here(getattr(spec, "provider", ""))


def _too_large(manifest: Manifest, source: Source) -> str:
    where = f"{manifest.path}:{manifest.line}: {manifest.key}"
    return (
        f"{where}: source.path `{source.path}` is too large to compare, or cannot be read;"
        " an edit of it is not noticed"
    )


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
            where = f"{manifest.path}:{manifest.line}: {manifest.key}"
            near = did_you_mean(name, list(files))
            rest = f"; {near}" if near else ""
            return f"{where}: `{name}` is not among the files of source.path{rest}"
    return ""


def _unasked(manifest: Manifest, wanted: GitSource) -> str:
    where = f"{manifest.path}:{manifest.line}: {manifest.key}"
    ref = f"`{wanted.ref}`" if wanted.ref else "the default branch"
    return f"{where}: {git.shown(wanted.url)} cannot be asked from here what {ref} is now"


def _with(template: Template, source: Source) -> Template:
    return template.model_copy(update={"source": source})


def _short(revision: str) -> str:
    return revision.removeprefix("sha256:")[:COMMIT_SHOWN] or "unknown"

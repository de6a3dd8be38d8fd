"""The facts on a source when its manifest is proposed: the commit that its repository has now, and
the annotations that store them with the object.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, Unavailable, UsageError
from fleetctl.common.state_paths import COMMITS
from fleetctl.providers.sources import git
from fleetctl.providers.sources.commit_facts import CommitFacts, CommitFactsCache, blobs_of
from fleetctl.providers.sources.pinning import find_current
from fleetctl.specs.blocks.common import WorkSpec, work_in
from fleetctl.specs.blocks.template import GitSource, Source
from fleetctl.specs.builtin import runs_here
from fleetctl.tracking.annotations import APART, BESIDE, COPY, ORIGIN, REVISION

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest


COMMIT_SHOWN = 7
FILES_SHOWN_MAX = 3

GIT_LOOK_S = 10.0  # for all remotes together: a plan waits no longer for a network
# For repositories of which more than the name of a commit is needed: its trees, or all commits.
GIT_READ_S = 60.0
GIT_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class SourceState:
    """The present state of a source. revision: as in fleetctl.specs.content.Pins. origin: the
    directory of a `source.path`. files: of the origin, relative path -> digest. copy: the digest of
    all files that a copy of the directory holds, or the commit of a repository. apart: files of the
    directory that its manifest was read from, relative. pointers: files that Git LFS stores and
    tasks would not get, the first of pointer_count. warnings: sentences; notes: shown by `plan -v`
    alone. beside: of a commit, a digest of its content without the manifest's own file.
    """

    revision: str = ""
    origin: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    copy: str = ""
    apart: tuple[str, ...] = ()
    pointers: tuple[str, ...] = ()
    pointer_count: int = 0
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    beside: str = ""

    @property
    def held(self) -> str:
        """Returns the source that runs get."""
        return self.copy or self.revision

    def annotations(self) -> dict[str, str]:
        """Returns the annotations as they are stored with an object; without empty ones."""
        copy = "" if self.copy == self.revision else self.copy
        apart = json.dumps(self.apart) if self.apart else ""
        found = {REVISION: self.revision, ORIGIN: self.origin, COPY: copy, APART: apart}
        found[BESIDE] = self.beside
        return {key: text for key, text in found.items() if text}


def load_source_state(annotations: Mapping[str, str]) -> SourceState:
    """Returns the state as it was when an object was applied."""
    return SourceState(
        annotations.get(REVISION, ""),
        annotations.get(ORIGIN, ""),
        copy=copy_in(annotations),
        apart=list_unrelated(annotations),
        beside=annotations.get(BESIDE, ""),
    )


def copy_in(annotations: Mapping[str, str]) -> str:
    """Returns the copy, or the commit, that runs get; empty while unknown."""
    return annotations.get(COPY) or annotations.get(REVISION, "")


def list_unrelated(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Returns files of the source that its manifest was read from, relative."""
    found = json.loads(annotations.get(APART) or "[]")
    return tuple(map(str, found))


def read_in(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the same files, absolute."""
    return tuple(
        os.path.join(annotations.get(ORIGIN, ""), it) for it in list_unrelated(annotations)
    )


def list_inside(files: Sequence[str], origin: str) -> tuple[str, ...]:
    """Returns the files that lie in a directory, relative to it; by their names, and by where links
    lead."""
    real = map(os.path.realpath, files)
    found = {*_list_below(origin, files), *_list_below(os.path.realpath(origin), real)}
    return tuple(sorted(found))


def _list_below(directory: str, files: Iterable[str]) -> Iterator[str]:
    start = os.path.join(os.path.normpath(directory), "")
    return (it[len(start) :] for it in map(os.path.normpath, files) if it.startswith(start))


def format_position(manifest: Manifest) -> str:
    return f"{manifest.path}:{manifest.line}: {manifest.key}"


def shorten_revision(revision: str) -> str:
    return revision.rpartition(":")[2][:COMMIT_SHOWN] or "unknown"


def names_text(names: Sequence[str]) -> str:
    """Returns `a.bin, b.bin, …`."""
    return ", ".join(names[:FILES_SHOWN_MAX]) + (", …" if len(names) > FILES_SHOWN_MAX else "")


def files_text(names: Sequence[str]) -> str:
    """Returns `3 files: train.py, model.py, …`."""
    return f"{len(names):,} file{'s'[: len(names) != 1]}: {names_text(names)}"


@dataclass(slots=True)
class _RepositoryQuery:
    """The facts so far on one repository. here: tasks see the same path of this machine."""

    source: GitSource
    here: bool
    commit: str = ""
    doubt: str = ""
    facts: CommitFacts = field(default_factory=CommitFacts)

    @property
    def patient(self) -> bool:
        return self.source.path is not None or git.is_short(self.source.ref)

    async def ask(self, gate: asyncio.Semaphore, known: CommitFactsCache) -> None:
        """Asks the repository. Raises Refused."""
        async with gate:
            found = await find_current(self.source, here=self.here)
            if found is None:
                return
            self.commit = found.commit
            self.doubt = found.doubt
            with contextlib.suppress(Unavailable):
                self.facts = await known.of(self.source, found.commit)

    def looked(self, manifest: Manifest) -> SourceState | None:
        """Returns the facts; None for a repository that is a path of another machine."""
        source = self.source
        facts = self.facts
        revision = self.commit if source.path is None else facts.revision
        if not revision:
            told = f"{format_position(manifest)}: {_explain_unasked(source)}"
            if self.here or git.url_host(source.url):
                return SourceState(warnings=(told,))
            return None
        doubts = [self.doubt] if self.doubt else []
        doubts += _describe_lacking(source, facts)
        return SourceState(
            revision,
            copy=self.commit,
            beside=facts.beside(blobs_of(_list_own_file(manifest))) if source.path is None else "",
            pointers=() if source.lfs else facts.lfs,
            pointer_count=0 if source.lfs else facts.lfs_count,
            warnings=tuple(f"{format_position(manifest)}: {it}" for it in doubts),
        )


async def commits_of(
    named: Sequence[tuple[Manifest, Source]], home: Path
) -> dict[str, SourceState]:
    """Returns the present commits of the refs; an unreachable remote leaves the last known one.
    home: the state directory. Raises UsageError.
    """
    gate = asyncio.Semaphore(GIT_AT_ONCE)
    known = CommitFactsCache(home / COMMITS)
    asking: dict[GitSource, tuple[_RepositoryQuery, asyncio.Task[None]]] = {}
    for manifest, source in named:
        assert source.git is not None
        if source.git not in asking:
            one = _RepositoryQuery(source.git, _runs_here(manifest.spec))
            asking[source.git] = one, asyncio.ensure_future(one.ask(gate, known))
    tasks = [task for _, task in asking.values()]
    patient = any(one.patient for one, _ in asking.values())
    found: dict[str, SourceState] = {}
    try:
        await asyncio.wait(tasks, timeout=GIT_READ_S if patient else GIT_LOOK_S)
        for manifest, source in named:
            assert source.git is not None
            one, task = asking[source.git]
            try:
                if task.done():
                    task.result()
            except Refused as error:
                raise UsageError(
                    f"{format_position(manifest)}: {error}", hint=error.hint
                ) from error
            if (looked := one.looked(manifest)) is not None:
                found[manifest.key] = looked
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found


def _list_own_file(manifest: Manifest) -> list[str]:
    """Returns the manifest's file, if it is a file of this machine."""
    name = Path(manifest.path).name
    return [it for it in manifest.read if Path(it).name == name]


def _runs_here(spec: object) -> bool:
    """Returns true where a path of this machine is the same for its runs."""
    spec = work_in(spec)
    if isinstance(spec, WorkSpec):
        return all(map(runs_here, spec.providers()))
    return runs_here(getattr(spec, "provider", ""))


def _describe_lacking(source: GitSource, facts: CommitFacts) -> Iterator[str]:
    """Yields the files of a repository that tasks would not get."""
    if facts.outside:
        count = len(facts.outside)
        what = "a link that leads" if count == 1 else f"{count:,} links that lead"
        whole = "it" if source.path is None else f"`{source.path}`"
        yield (
            f"the source has {what} out of {whole}, and there is nothing for tasks:"
            f" {names_text(facts.outside)}"
        )
    if facts.submodules and not source.submodules:
        count = len(facts.submodules)
        what = "1 submodule, which is" if count == 1 else f"{count:,} submodules, which are"
        yield (
            f"the source has {what} empty for tasks: {names_text(facts.submodules)};"
            " `source.git.submodules: true` brings the files"
        )


def _explain_unasked(wanted: GitSource) -> str:
    ref = f"`{wanted.ref}`" if wanted.ref else "the default branch"
    return f"{git.redact_url(wanted.url)} cannot be asked from here what {ref} is now"

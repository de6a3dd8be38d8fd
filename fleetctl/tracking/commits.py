"""Asks repositories for the commits that manifests name, when they are proposed. Called by
manifest_sources.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
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
from fleetctl.tracking.source_state import SourceState, format_position, names_text

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

GIT_LOOK_S = 10.0  # for all remotes together: a plan waits no longer for a network
# For repositories of which more than the name of a commit is needed: its trees, or all commits.
GIT_READ_S = 60.0
GIT_AT_ONCE = 8


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
            beside=facts.beside(blobs_of(_own_file(manifest))) if source.path is None else "",
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


def _own_file(manifest: Manifest) -> list[str]:
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

"""The commits that manifests name, asked of their repositories when they are proposed. Called by
sources.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, Unavailable, UsageError
from fleetctl.common.home import COMMITS
from fleetctl.providers.sources import git
from fleetctl.providers.sources.facts import CommitFacts, Facts
from fleetctl.providers.sources.pinning import asked
from fleetctl.specs.blocks.common import Execution, work_in
from fleetctl.specs.blocks.template import GitSource, Source
from fleetctl.specs.builtin import runs_here
from fleetctl.tracking.looked import FILES_SHOWN_MAX, Looked, where

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

GIT_LOOK_S = 10.0  # for all remotes together: a plan waits no longer for a network
# For those of which more than the name of a commit must be known: its trees, or all commits.
GIT_READ_S = 60.0
GIT_AT_ONCE = 8


@dataclass(slots=True)
class _Asking:
    """What is known so far of one repository. here: a path of this machine is what tasks see."""

    source: GitSource
    here: bool
    commit: str = ""
    doubt: str = ""
    facts: Facts = field(default_factory=Facts)

    @property
    def patient(self) -> bool:
        return self.source.path is not None or git.is_short(self.source.ref)

    async def ask(self, gate: asyncio.Semaphore, known: CommitFacts) -> None:
        """Raises Refused."""
        async with gate:
            found = await asked(self.source, here=self.here)
            if found is None:
                return
            self.commit, self.doubt = found.commit, found.doubt
            with contextlib.suppress(Unavailable):
                self.facts = await known.of(self.source, found.commit)

    def looked(self, manifest: Manifest) -> Looked | None:
        """None where nothing is asked, as the repository is a path of another machine."""
        source, facts = self.source, self.facts
        revision = self.commit if source.path is None else facts.revision
        if not revision:
            told = f"{where(manifest)}: {_unasked(source)}"
            return Looked(warnings=(told,)) if self.here or git.host(source.url) else None
        doubts = [self.doubt] if self.doubt else []
        doubts += _lacking(source, facts)
        return Looked(
            revision, copy=self.commit, warnings=tuple(f"{where(manifest)}: {it}" for it in doubts)
        )


async def commits_of(named: Sequence[tuple[Manifest, Source]], home: Path) -> dict[str, Looked]:
    """What the refs name now; a remote that does not answer in time leaves what was known. home:
    the state directory. Raises UsageError.
    """
    gate, known = asyncio.Semaphore(GIT_AT_ONCE), CommitFacts(home / COMMITS)
    asking: dict[GitSource, tuple[_Asking, asyncio.Task[None]]] = {}
    for manifest, source in named:
        assert source.git is not None
        if source.git not in asking:
            one = _Asking(source.git, _runs_here(manifest.spec))
            asking[source.git] = one, asyncio.ensure_future(one.ask(gate, known))
    tasks = [task for _, task in asking.values()]
    patient = any(one.patient for one, _ in asking.values())
    found: dict[str, Looked] = {}
    try:
        await asyncio.wait(tasks, timeout=GIT_READ_S if patient else GIT_LOOK_S)
        for manifest, source in named:
            assert source.git is not None
            one, task = asking[source.git]
            try:
                if task.done():
                    task.result()
            except Refused as error:
                raise UsageError(f"{where(manifest)}: {error}", hint=error.hint) from error
            if (looked := one.looked(manifest)) is not None:
                found[manifest.key] = looked
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found


def _runs_here(spec: object) -> bool:
    """Whether a path of this machine means the same where it runs."""
    spec = work_in(spec)
    if isinstance(spec, Execution):
        return all(map(runs_here, spec.providers()))
    return runs_here(getattr(spec, "provider", ""))


def _lacking(source: GitSource, facts: Facts) -> Iterator[str]:
    """What tasks would not get of a repository."""
    if facts.lfs and not source.lfs:
        count = facts.lfs_count
        files = "1 file is" if count == 1 else f"{count:,} files are"
        yield (
            f"{files} kept by Git LFS, and tasks get a pointer of some lines in place of each:"
            f" {_shown(facts.lfs)}; `source.git.lfs: true` brings the files"
        )
    if facts.submodules and not source.submodules:
        count = len(facts.submodules)
        what = "1 submodule, which is" if count == 1 else f"{count:,} submodules, which are"
        yield (
            f"the source has {what} empty for tasks: {_shown(facts.submodules)};"
            " `source.git.submodules: true` brings the files"
        )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:FILES_SHOWN_MAX]) + (", …" if len(names) > FILES_SHOWN_MAX else "")


def _unasked(wanted: GitSource) -> str:
    ref = f"`{wanted.ref}`" if wanted.ref else "the default branch"
    return f"{git.shown(wanted.url)} cannot be asked from here what {ref} is now"

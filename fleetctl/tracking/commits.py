"""The commits that manifests name, asked of their repositories when they are proposed. Called by
sources.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetctl.common.errors import Refused, UsageError
from fleetctl.providers.sources import git
from fleetctl.providers.sources.pinning import current
from fleetctl.specs.blocks.common import Execution, work_in
from fleetctl.specs.blocks.template import GitSource, Source
from fleetctl.specs.builtin import runs_here
from fleetctl.tracking.looked import Looked, where

if TYPE_CHECKING:
    from fleetctl.manifest import Manifest

GIT_LOOK_S = 10.0  # for all remotes together: a plan waits no longer for a network
GIT_AT_ONCE = 8


async def commits_of(named: Sequence[tuple[Manifest, Source]]) -> dict[str, Looked]:
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
                raise UsageError(f"{where(manifest)}: {error}", hint=error.hint) from error
            if commit is not None:
                found[manifest.key] = Looked(commit, copy=commit)
            elif git.host(source.git.url):
                found[manifest.key] = Looked(warnings=(_unasked(manifest, source.git),))
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


def _unasked(manifest: Manifest, wanted: GitSource) -> str:
    ref = f"`{wanted.ref}`" if wanted.ref else "the default branch"
    return f"{where(manifest)}: {git.shown(wanted.url)} cannot be asked from here what {ref} is now"

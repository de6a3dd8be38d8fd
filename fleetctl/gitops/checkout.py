"""The checkout of a Source: one directory, brought to a commit. Called by git_keeper.py alone, for
one commit at a time; it is read only after git has confirmed that every file is there.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.gitops.signatures import verify_signature
from fleetctl.manifest.files import fence
from fleetctl.providers.paths import make_private
from fleetctl.providers.sources import git
from fleetctl.providers.sources.git_access import GitAccess, access_to
from fleetctl.specs.kinds.source import SourceRepository

# A shallow clone grows with every commit that is fetched, for git never packs it.
FETCHES_MAX = 200
_COUNT = "fetches"
# The options that a checkout was made with: git would not rewrite files that are of this commit.
_HOW = fence.CHECKOUT_MARK


@contextmanager
def open_access(
    repository: SourceRepository,
    values: Mapping[str, str],
    place: Path,
) -> Iterator[tuple[GitAccess, Path]]:
    """Yields the access for git, and a private directory that is gone afterwards. Raises
    Refused."""
    git.check_source(repository)
    with TemporaryDirectory(dir=make_private(place), prefix=".access.") as private:
        hosts = repository.known_hosts
        yield access_to(repository.url, values, Path(private), known_hosts=hosts), Path(private)


async def find_tip(
    repository: SourceRepository,
    values: Mapping[str, str],
    place: Path,
) -> git.RefMatch:
    """Returns the commit that the ref names now. Raises Refused and Unavailable."""
    with open_access(repository, values, place) as (access, _):
        return await git.find_ref(repository, access)


async def check_out(
    repository: SourceRepository,
    commit: str,
    values: Mapping[str, str],
    place: Path,
) -> Path:
    """Returns the directory that holds the commit's files, and no others. Raises Refused and
    Unavailable. place: a directory of the Source's own, made here. values: of its Secret.
    """
    tree = make_private(place) / git.directory_name(repository.url)
    with open_access(repository, values, place) as (access, private):
        how = f"submodules={repository.submodules} lfs={repository.lfs}"
        if _read_origin(tree) != how or _count_fetches(tree) >= FETCHES_MAX:
            await asyncio.to_thread(shutil.rmtree, tree, ignore_errors=True)
            tree.mkdir(mode=0o700)
            await git.run(["init", "--quiet", "--template=", "."], repository, cwd=tree)
            (tree / _HOW).write_text(how)
        try:
            await _fetch_commit(
                repository,
                commit,
                tree,
                access,
                private,
            )
        except (Refused, Unavailable):
            # A partial checkout must not be in the way of the next try.
            await asyncio.to_thread(shutil.rmtree, tree, ignore_errors=True)
            raise
    return tree


async def _fetch_commit(
    repository: SourceRepository,
    commit: str,
    tree: Path,
    access: GitAccess,
    private: Path,
) -> None:
    async def do(*words: str, by: GitAccess = access) -> None:
        await git.run([*words], repository, cwd=tree, access=by)

    depth = f"--depth={repository.depth}"
    await do(
        "fetch",
        "--quiet",
        "--force",
        depth,
        "--no-tags",
        "--",
        repository.url,
        commit,
    )
    (tree / ".git" / _COUNT).write_text(str(_count_fetches(tree) + 1))
    if repository.verify is not None:
        await verify_signature(
            repository,
            repository.verify,
            commit,
            tree,
            private,
        )
    smudging = git.with_lfs(access) if repository.lfs else access
    await do(
        "checkout",
        "--quiet",
        "--force",
        "--detach",
        commit,
        by=smudging,
    )
    await do("clean", "-ffdxq")
    if repository.submodules:
        await do("submodule", "sync", "--quiet", "--recursive")
        update = ("submodule", "update", "--quiet", "--init", "--recursive", "--force")
        await do(*update, "--depth=1", by=git.of_submodules(smudging, repository.url))


def _read_origin(tree: Path) -> str:
    """Returns the record of how a checkout was made; empty without a known one."""
    try:
        return (tree / _HOW).read_text()
    except OSError:
        return ""


def _count_fetches(tree: Path) -> int:
    try:
        return int((tree / ".git" / _COUNT).read_text())
    except (OSError, ValueError):
        return 0

"""The checkout of a Source: one directory, brought to a commit. Called by keeper.py alone, for one
commit at a time; it is read only after git has said that all of it is there.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.gitops.verifying import verify
from fleetctl.providers.paths import make_private
from fleetctl.providers.sources import git
from fleetctl.providers.sources.access import Access, access_to
from fleetctl.specs.kinds.source import Repository

# A shallow clone grows with every commit that is fetched, for nothing is ever packed.
FETCHES_MAX = 200
_COUNT = "fetches"
# What a checkout was made with: git leaves files as they are that are of this commit already.
_HOW = "made-with"


@contextmanager
def reaching(
    repository: Repository, values: Mapping[str, str], place: Path
) -> Iterator[tuple[Access, Path]]:
    """How git reaches it, and a private directory that is gone afterwards. Raises Refused."""
    git.check(repository)
    with TemporaryDirectory(dir=make_private(place), prefix=".access.") as private:
        hosts = repository.known_hosts
        yield access_to(repository.url, values, Path(private), known_hosts=hosts), Path(private)


async def tip(repository: Repository, values: Mapping[str, str], place: Path) -> git.Found:
    """The commit that the ref names now. Raises Refused and Unavailable."""
    with reaching(repository, values, place) as (access, _):
        return await git.find(repository, access)


async def check_out(
    repository: Repository, commit: str, values: Mapping[str, str], place: Path
) -> Path:
    """The directory that holds the files of that commit, and no others. Raises Refused and
    Unavailable. place: a directory of the Source's own, made here. values: of its Secret.
    """
    tree = make_private(place) / git.directory_name(repository.url)
    with reaching(repository, values, place) as (access, private):
        how = f"submodules={repository.submodules} lfs={repository.lfs}"
        if _made(tree) != how or _fetches(tree) >= FETCHES_MAX:
            await asyncio.to_thread(shutil.rmtree, tree, ignore_errors=True)
            tree.mkdir(mode=0o700)
            await git.run(["init", "--quiet", "--template=", "."], repository, cwd=tree)
            (tree / ".git" / _HOW).write_text(how)
        try:
            await _bring(repository, commit, tree, access, private)
        except (Refused, Unavailable):
            # What is half there must not be in the way of the next try.
            await asyncio.to_thread(shutil.rmtree, tree, ignore_errors=True)
            raise
    return tree


async def _bring(
    repository: Repository, commit: str, tree: Path, access: Access, private: Path
) -> None:
    async def do(*words: str, by: Access = access) -> None:
        await git.run([*words], repository, cwd=tree, access=by)

    depth = f"--depth={repository.depth}"
    await do("fetch", "--quiet", "--force", depth, "--no-tags", "--", repository.url, commit)
    (tree / ".git" / _COUNT).write_text(str(_fetches(tree) + 1))
    if repository.verify is not None:
        await verify(repository, repository.verify, commit, tree, private)
    smudging = git.with_lfs(access) if repository.lfs else access
    await do("checkout", "--quiet", "--force", "--detach", commit, by=smudging)
    await do("clean", "-ffdxq")
    if repository.submodules:
        # Which repositories of this machine are read is its user's to say, not the repository's.
        local = repository.url.startswith("file:")
        remote = ":".join(it for it in git.SCHEMES if it != "file" or local)
        smudging = smudging.with_options(GIT_ALLOW_PROTOCOL=remote)
        await do("submodule", "sync", "--quiet", "--recursive")
        update = ("submodule", "update", "--quiet", "--init", "--recursive", "--force")
        await do(*update, "--depth=1", by=smudging)


def _made(tree: Path) -> str:
    """Empty where there is none, or it is not known."""
    try:
        return (tree / ".git" / _HOW).read_text()
    except OSError:
        return ""


def _fetches(tree: Path) -> int:
    try:
        return int((tree / ".git" / _COUNT).read_text())
    except (OSError, ValueError):
        return 0

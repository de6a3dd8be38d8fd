"""The checkout of a Source: one directory, brought to a commit that has a signature by a key that
the Source names, where it names any.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fleetctl.common.errors import Refused, Unavailable
from fleetctl.manifest.files import fence
from fleetctl.providers.paths import make_private
from fleetctl.providers.programs import run_program
from fleetctl.providers.sources import git
from fleetctl.providers.sources.git import GitAccess, access_to
from fleetctl.specs.kinds.source import SignatureCheck, SourceRepository
from fleetctl.tracking.kept_by import shorten_commit

# A shallow clone grows with every commit that is fetched, for git never packs it.
FETCHES_MAX = 200
_COUNT = "fetches"
# The options that a checkout was made with: git would not rewrite files that are of this commit.
_HOW = fence.CHECKOUT_MARK

IMPORT_S = 30.0
ABOUT_CHARS_MAX = 200  # of a name and of a subject; both are other people's texts


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


async def describe_commit(repository: SourceRepository, tree: Path) -> tuple[str, str]:
    """Returns (author's name, subject) of the commit that is checked out, each cut to
    ABOUT_CHARS_MAX. Raises Refused and Unavailable."""
    out = await git.run(["log", "-1", "--format=%an%x00%s"], repository, cwd=tree)
    author, _, subject = out.strip("\n").partition("\0")
    return author[:ABOUT_CHARS_MAX], subject[:ABOUT_CHARS_MAX]


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


async def verify_signature(
    repository: SourceRepository,
    wanted: SignatureCheck,
    commit: str,
    tree: Path,
    place: Path,
) -> None:
    """Verifies the commit. place: a private directory. Raises Refused where the signature is
    missing, or by another key."""
    keys = place / "gnupg"
    keys.mkdir(mode=0o700)
    # The user's own keyring must not count: git picks the program by the form of the signature.
    access = GitAccess(environment={"GNUPGHOME": str(keys)})
    if wanted.gpg:
        await _import_keys(wanted, keys)
    else:
        signers = place / "allowed_signers"
        signers.write_text("\n".join(wanted.ssh) + "\n", encoding="utf-8")
        access = access.with_options(("gpg.ssh.allowedSignersFile", str(signers)))
    try:
        await git.run(["verify-commit", commit], repository, cwd=tree, access=access)
    except Unavailable as error:
        who = "one of the keys in `verify.gpg`" if wanted.gpg else "a signer in `verify.ssh`"
        raise Refused(
            f"{shorten_commit(commit)} is not signed by {who}",
            hint=f"git log --show-signature {commit}",
        ) from error


async def _import_keys(wanted: SignatureCheck, keys: Path) -> None:
    """Writes the keyring: its keys, one behind the other, which needs no agent beside gpg."""
    ring = b""
    for number, text in enumerate(wanted.gpg):
        armored = keys / f"{number}.asc"
        armored.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        argv = ["gpg", "--batch", "--no-autostart", "--quiet", "--output", "-"]
        ring += await _run_gpg(
            [*argv, "--dearmor", str(armored)], keys, f"git.verify.gpg[{number}]"
        )
    (keys / "pubring.gpg").write_bytes(ring)


async def _run_gpg(
    argv: list[str],
    keys: Path,
    what: str,
) -> bytes:
    environment = {"GNUPGHOME": str(keys), "PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    try:
        answer = await run_program(argv, deadline_s=IMPORT_S, env=environment)
    except FileNotFoundError as error:
        raise Refused("`verify.gpg` needs the program `gpg`", hint="install gnupg") from error
    except TimeoutError as error:
        raise Unavailable("gpg did not answer", reason="SourceUnreachable") from error
    if answer.code or not answer.out:
        raise Refused(
            f"`{what}` is not an armored public key",
            hint="write what `gpg --export --armor KEY` prints",
        )
    return answer.out

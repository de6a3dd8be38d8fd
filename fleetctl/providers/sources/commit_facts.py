"""Finds facts of a commit of a repository without its files, and checks out a few of its texts
alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha1, sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fleetctl.common.errors import Refused
from fleetctl.common.text import did_you_mean
from fleetctl.providers.sources import git
from fleetctl.providers.sources.excludes import SUFFIXES
from fleetctl.specs.blocks.template import GitSource
from fleetctl.specs.content import TREE

NAMES_MAX = 100  # of files that are kept in Git LFS; more are counted
TEXTS_MAX = 1000  # files that can be manifests; with more, each commit is another source
KEPT_MAX = 1000  # commits of which this is remembered, as they never change
_SUBMODULE = "160000"
_LINK = "120000"

KINDS = (".txt", ".in")  # files that such a file may name in its turn
CHECKED_OUT_TEXTS_MAX = 500


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """Facts of a commit. tree: the source's directory, as git's own id. lfs: files of the source
    that Git LFS keeps, and how many there are. submodules: directories of the source. outside: the
    first link that leads out of the source. texts: (row of git's, id) of files that can be
    manifests; others: a digest of all other files, empty where there are too many.
    """

    tree: str = ""
    lfs: tuple[str, ...] = ()
    lfs_count: int = 0
    submodules: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    others: str = ""

    def beside(self, blobs: Collection[str]) -> str:
        """Returns a digest of all files except those with these ids; empty if unknown."""
        if not self.others:
            return ""
        rows = [row for row in self.texts if row[1] not in blobs]
        return sha256(json.dumps([self.others, rows]).encode()).hexdigest()[:32]

    @property
    def revision(self) -> str:
        if self.tree:
            return f"{TREE}{self.tree}"
        return ""


class CommitFactsCache:
    """Stores facts. place: a directory of the state directory, where facts are kept."""

    def __init__(self, place: Path) -> None:
        self._place = place

    async def of(self, source: GitSource, commit: str) -> CommitFacts:
        """Returns the facts of a commit, which are stored for the next time. Raises Refused for a
        path that the commit does not have, and Unavailable.
        """
        key = sha256(f"{source.url}\n{commit}\n{source.path}".encode()).hexdigest()[:32]
        kept = self._place / f"{key}.json"
        with contextlib.suppress(OSError, ValueError, KeyError):
            return _facts_from(json.loads(kept.read_text(encoding="utf-8")))
        found = await facts_of(source, commit)
        with contextlib.suppress(OSError):
            self._keep(kept, found)
        return found

    def _keep(self, kept: Path, found: CommitFacts) -> None:
        self._place.mkdir(mode=0o700, exist_ok=True)  # without a state directory, no facts are kept
        old = sorted(self._place.iterdir(), key=lambda it: it.stat().st_mtime)
        for one in old[: max(0, len(old) - KEPT_MAX)]:
            one.unlink(missing_ok=True)
        fresh = kept.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(asdict(found)), encoding="utf-8")
        fresh.replace(kept)


def _facts_from(kept: Mapping[str, Any]) -> CommitFacts:
    return CommitFacts(
        str(kept["tree"]),
        tuple(kept["lfs"]),
        int(kept["lfs_count"]),
        tuple(kept["submodules"]),
        tuple(kept["outside"]),
        tuple((str(row), str(blob)) for row, blob in kept["texts"]),
        str(kept["others"]),
    )


def blobs_of(files: Iterable[str]) -> set[str]:
    """Returns git's ids of the content of these files, by both of its hashes. Leaves out unreadable
    files.
    """
    found = set()
    for name in files:
        with contextlib.suppress(OSError):
            data = Path(name).read_bytes()
            whole = b"blob %d\0" % len(data) + data
            found |= {sha1(whole, usedforsecurity=False).hexdigest(), sha256(whole).hexdigest()}
    return found


async def facts_of(source: GitSource, commit: str) -> CommitFacts:
    """Requests the facts from the remote, without the files if the remote supports that. Raises
    Refused and Unavailable.
    """
    with TemporaryDirectory(prefix="fleetctl-") as place:
        tree = Path(place)

        async def ask(*words: str) -> str:
            return await git.run([*words], source, cwd=tree)

        await ask("init", "--quiet", "--template=", ".")
        await ask("remote", "add", "origin", source.url)
        fetch = ("fetch", "--quiet", "--depth=1", "--no-tags", "--filter=blob:none", "origin")
        await ask(*fetch, commit)
        held = await git.check_directory(source, commit, tree)
        await ask("read-tree", "FETCH_HEAD")
        within = source.path or "."
        staged = await ask(
            "--literal-pathspecs",
            "ls-files",
            "--stage",
            "-z",
            "--",
            within,
        )
        rows = [row.partition("\t") for row in staged.split("\0") if row]
        submodules = tuple(name for row, _, name in rows if row.startswith(_SUBMODULE))
        lfs = await _list_lfs_files(source, tree, {name for _, _, name in rows})
        links = [(row.split(" ")[1], name) for row, _, name in rows if row.startswith(_LINK)]
        outside = await _find_links_out(source, tree, links[:NAMES_MAX])
    texts, others = _split_rows([(row, name) for row, _, name in rows])
    return CommitFacts(
        held,
        tuple(lfs[:NAMES_MAX]),
        len(lfs),
        submodules,
        outside,
        texts,
        others,
    )


def _split_rows(rows: Sequence[tuple[str, str]]) -> tuple[tuple[tuple[str, str], ...], str]:
    """Returns (texts, others) of CommitFacts. rows: git's `MODE ID STAGE`, and names."""
    texts = []
    others = []
    for row, name in rows:
        mode, blob, _ = row.split(" ")
        if name.endswith(SUFFIXES) and mode != _LINK:
            texts.append((f"{mode} {name}", blob))
        else:
            others.append((row, name))
    if len(texts) > TEXTS_MAX:
        return (), ""
    return tuple(texts), sha256(json.dumps(others).encode()).hexdigest()[:32]


async def _find_links_out(
    source: GitSource,
    tree: Path,
    links: Sequence[tuple[str, str]],
) -> tuple[str, ...]:
    """Returns the names of links that lead out of the source's directory. links: (id of the link's
    content, name); contents are fetched one by one.
    """
    top = posixpath.normpath(source.path or ".")
    found = []
    for blob, name in links:
        target = await git.run(["cat-file", "blob", blob], source, cwd=tree)
        leads_to = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        inside = top == "." and leads_to.split("/")[0] not in ("..", "")
        if not inside and leads_to != top and not leads_to.startswith(f"{top}/"):
            found.append(name)
    return tuple(found)


async def _list_lfs_files(
    source: GitSource,
    tree: Path,
    within: set[str],
) -> list[str]:
    """Returns the LFS files of the index in `tree`: attributes are read from it, as there is no
    file.
    """
    listed = await git.run(["ls-files", "-z", "--", ":(attr:filter=lfs)"], source, cwd=tree)
    return [name for name in listed.split("\0") if name in within]


async def check_out(
    source: GitSource,
    commit: str,
    file: str,
    tree: Path,
) -> None:
    """Fills the empty directory `tree` with the file and the texts beside it. Links become texts,
    so that no link leads elsewhere. Raises Refused without such a file, and Unavailable.
    """
    git.check_source(source)
    await git.run(["init", "--quiet", "--template=", "."], source, cwd=tree)
    await git.run(["remote", "add", "origin", source.url], source, cwd=tree)
    fetch = ["fetch", "--quiet", "--depth=1", "--no-tags", "--filter=blob:none", "origin", commit]
    await git.run(fetch, source, cwd=tree)
    listed = await git.run(["ls-tree", "-r", "--name-only", "-z", "FETCH_HEAD"], source, cwd=tree)
    names = listed.split("\0")
    texts = [it for it in names if it.endswith(KINDS)]
    if file not in names:
        near = did_you_mean(file, texts)
        url = git.redact_url(source.url)
        raise Refused(f"{url} has no `{file}` at {commit[:7]}", hint=near)

    texts = [it for it in texts if it != file][:CHECKED_OUT_TEXTS_MAX]
    check_out = ["checkout", "--quiet", "FETCH_HEAD", "--", file, *texts]
    literal = ["--literal-pathspecs", "-c", "core.symlinks=false"]
    await git.run([*literal, *check_out], source, cwd=tree)

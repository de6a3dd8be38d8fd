"""Checks out a few texts of a repository at one commit, without its other files: requirements of an
image, which are read when a manifest is applied. Called by tracking/required.py.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.common.errors import Refused
from fleetctl.common.text import did_you_mean
from fleetctl.providers.sources import git
from fleetctl.specs.blocks.template import GitSource

KINDS = (".txt", ".in")  # files that such a file may name in its turn
TEXTS_MAX = 500


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

    texts = [it for it in texts if it != file][:TEXTS_MAX]
    check_out = ["checkout", "--quiet", "FETCH_HEAD", "--", file, *texts]
    literal = ["--literal-pathspecs", "-c", "core.symlinks=false"]
    await git.run([*literal, *check_out], source, cwd=tree)

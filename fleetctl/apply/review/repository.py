"""Asks a git repository for revisions and for the files of them. Called by checkout.py.

Objects alone are read: no work tree is touched, no hook, filter or attribute of the repository has
a say, and nothing is fetched. So a clone that lacks history says what to fetch.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fleetctl.common.errors import NotFound, Refused, UsageError
from fleetctl.common.text import did_you_mean, safe

ANSWER_S = 120.0  # of one question: to list a tree of 100,000 files takes a second
REVISION_CHARS_MAX = 250
ERROR_CHARACTERS_MAX = 300
SHORT_DIGITS = 9  # of a commit that a person reads
# `main...HEAD` and the like name two; what begins with `-` would be an option.
_REVISION = re.compile(r"(?!-)[^\x00-\x20\x7f]+")


@dataclass(frozen=True, slots=True)
class Commit:
    """said: as a person named it."""

    said: str
    digits: str
    at_s: int  # when it was made

    @property
    def shown(self) -> str:
        short = self.digits[:SHORT_DIGITS]
        return short if self.digits.startswith(self.said) else f"{self.said} ({short})"


@dataclass(frozen=True, slots=True)
class Blob:
    """A file of a tree. path: below the tree's root. mode: as git writes it, `100644`."""

    path: str
    mode: str
    digits: str
    size: int


def repository_of(places: Sequence[Path]) -> Repository:
    """That of the first of these directories that is in one. Raises NotFound."""
    for place in places[:-1]:
        try:
            return Repository(place)
        except NotFound:
            continue
    return Repository(places[-1])


class Repository:
    """The one that a directory belongs to. Raises NotFound where it belongs to none.

    top: of its work tree, absolute; None of a bare one.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            found = self._ask("rev-parse", "--is-bare-repository", "--is-shallow-repository")
        except Refused as error:
            raise NotFound(
                f"`{directory}` is not in a git repository: {error}",
                hint="--diff-from and --diff-to compare two revisions of one",
            ) from None
        bare, shallow = (line == "true" for line in found.split())
        inside = self._ask("rev-parse", "--is-inside-work-tree").strip() == "true"
        self.shallow, self.top = shallow, None if bare else directory
        if inside:
            self.top = Path(self._ask("rev-parse", "--show-toplevel").rstrip("\n"))

    def commit(self, said: str) -> Commit:
        """Raises NotFound where the clone has none of this name, UsageError for what names none."""
        if len(said) > REVISION_CHARS_MAX or not _REVISION.fullmatch(said) or ".." in said:
            raise UsageError(
                f"`{safe(said[:REVISION_CHARS_MAX])}` is not one revision",
                hint="a branch, a tag or a commit: `--diff-from origin/main --diff-to HEAD`",
            )
        try:
            found = self._ask("rev-parse", "--verify", "--quiet", f"{said}^{{commit}}").strip()
        except Refused:
            raise NotFound(
                f"`{said}` is not a revision of this clone", hint=self._lacks(said)
            ) from None
        return Commit(said, found, int(self._ask("show", "-s", "--format=%ct", found)))

    def parting(self, before: Commit, after: Commit) -> Commit:
        """Where `after` parted from `before`: what a pull request is compared with. Where one is
        made of the other it is `before` itself. Raises Refused where the clone does not know.
        """
        bases = self._base(before, after)
        if before.digits in bases or after.digits in bases:
            return before
        if not bases:
            hint = "git fetch --unshallow" if self.shallow else "name two revisions of one history"
            what = " in this shallow clone" if self.shallow else ""
            raise Refused(
                f"{before.shown} and {after.shown} have no common commit{what}, so nobody can tell"
                " what one changes of the other",
                hint=f"{hint}; in GitHub Actions: `actions/checkout` with `fetch-depth: 0`",
            )
        base = bases[0]
        return Commit(base, base, int(self._ask("show", "-s", "--format=%ct", base)))

    def files(self, commit: Commit) -> list[Blob]:
        """All of its tree, without submodules. Raises Refused where the clone lacks a part."""
        found = self._ask("ls-tree", "-r", "-l", "-z", "--full-tree", commit.digits)
        return [it for row in found.split("\0") if row and (it := _blob(row)) is not None]

    def read_into(self, blobs: Sequence[str], stream: IO[bytes]) -> Iterator[tuple[str, bytes]]:
        """Each blob with its content, in order. stream: an empty file that holds them for a while.
        Raises Refused where the clone lacks one.
        """
        self._ask("cat-file", "--batch", given="\n".join(blobs) + "\n", to=stream)
        stream.seek(0)
        for digits in blobs:
            head = stream.readline().decode("ascii", "replace").split()
            if len(head) != 3 or head[0] != digits:
                raise Refused(
                    f"the clone lacks object {digits[:SHORT_DIGITS]}",
                    hint="`git fetch --refetch` brings all files of a partial clone",
                )
            yield digits, stream.read(int(head[2]))
            stream.read(1)

    def _base(self, before: Commit, after: Commit) -> list[str]:
        try:
            return self._ask("merge-base", "--all", before.digits, after.digits).split()
        except Refused:
            return []

    def _lacks(self, said: str) -> str:
        known = self._ask("for-each-ref", "--format=%(refname:short)").split()
        if self.shallow:
            return (
                "this clone is shallow: `git fetch --unshallow origin`; in GitHub Actions"
                " `actions/checkout` with `fetch-depth: 0`"
            )
        branch = said.removeprefix("origin/")
        return (
            did_you_mean(said, known) or f"git fetch origin {branch}:refs/remotes/origin/{branch}"
        )

    def _ask(self, *arguments: str, given: str = "", to: IO[bytes] | None = None) -> str:
        """What git says. Raises Refused with its complaint."""
        options = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
        try:
            answer = subprocess.run(
                ["git", *options, *arguments],
                cwd=self._directory,
                input=os.fsencode(given),
                stdout=subprocess.PIPE if to is None else to,
                stderr=subprocess.PIPE,
                timeout=ANSWER_S,
                check=False,
                env=_environment(),
            )
        except FileNotFoundError as error:
            raise Refused("`git` is not installed", hint="install git") from error
        except subprocess.TimeoutExpired as error:
            raise Refused(
                f"git did not answer within {ANSWER_S:.0f} s", hint=f"git {' '.join(arguments[:2])}"
            ) from error
        if answer.returncode:
            said = " ".join(os.fsdecode(answer.stderr).split())[:ERROR_CHARACTERS_MAX]
            hint = _hint_of(said)
            raise Refused(safe(said) or f"git {arguments[0]} failed", hint=hint)
        return os.fsdecode(answer.stdout or b"")


def _hint_of(said: str) -> str:
    if "dubious ownership" in said:
        return "git config --global --add safe.directory '*', where you trust this directory"
    return "git fsck" if "bad object" in said or "unable to read" in said else ""


def _environment() -> dict[str, str]:
    """Nothing is asked of a terminal, and nothing is fetched to answer a question."""
    return {
        **{name: text for name, text in os.environ.items() if name not in ("GIT_INDEX_FILE",)},
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }


def _blob(row: str) -> Blob | None:
    """Of `100644 blob DIGITS    SIZE<tab>PATH`; None of a submodule."""
    head, _, path = row.partition("\t")
    mode, sort, digits, size = head.split()
    if sort != "blob":
        return None
    return Blob(path, mode, digits, int(size) if size.isdigit() else 0)

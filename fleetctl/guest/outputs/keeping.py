"""Keeps an attempt's outputs, and counts what is not kept. Called by the supervisor of a run once
its work has ended; a small job at once, a large one in a process of its own.

Only what the attempt wrote counts: a file whose status changed since the work began, by the clock
of its file system. What came with the source, or from an earlier task of the sandbox, does not.
"""

from __future__ import annotations

import os

from fleetctl.guest.outputs.pack import PackWriter, reader_of
from fleetctl.guest.outputs.walk import ENTRIES_MAX, FileWalk, WalkTooLong
from fleetctl.guest.task.text import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from fleetctl.guest.outputs.selection import OutputPatterns
    from fleetctl.guest.outputs.walk import WalkedFile

OUTPUTS_TOO_LARGE = "OutputsTooLarge"  # the reason of an attempt that succeeded otherwise
OUTPUTS_NOT_KEPT = "OutputsNotKept"  # the same, where the fault is the disk's
# What is done at once, beside the runs that are looked after meanwhile; more gets a process.
QUICK_ENTRIES_MAX = 256
QUICK_BYTES_MAX = 256 * 1024
LEFT_ENTRIES_MAX = 2_000  # that a look at what is not kept may meet
SHOWN_MAX = 3  # names in a sentence
KEEP_HINT = "`template.outputs` keeps files, and so does a volume"
EVERYTHING = "**"
PRIVATE = ".fleetctl"  # ours, in the work directory
# Why we end a run that may still have written what it was for.
KEPT_ENDINGS = frozenset({"", "Timeout", "OOMKilled", "Stalled", "TooManyProcesses"})
CACHES = frozenset({"__pycache__", "node_modules", "lost+found"})


class TooMuchNow(Exception):
    """Raised where keeping takes longer than a supervisor may."""


class KeepLimits:
    """Limits of an attempt's outputs, in bytes and numbers of files. order: its `outputs`."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.file_bytes: int = order["file_bytes_max"]
        self.bytes: int = order["bytes_max"]
        self.files: int = order["files_max"]


class OutputKeeper:
    """Keeps the outputs of one attempt."""

    def __init__(
        self,
        limits: KeepLimits,
        patterns: OutputPatterns,
        top: str,
        since_ns: int,
        *,
        quick: bool,
    ) -> None:
        """top: the directory in which the work began; since_ns: as `file_clock_ns` reports it;
        quick: only what takes no time.
        """
        self._limits = limits
        self._top = top
        self._since_ns = since_ns
        self._patterns = patterns
        self._quick = quick
        self._over: list[str] = []  # why files are left out, one sentence each
        self._links = self._unread = 0

    def keep(
        self,
        directory: int,
        run: str,
        *,
        blobs: bool,
    ) -> dict[str, Any]:
        """Writes the pack into the open directory of journals; returns its facts.

        Raises TooMuchNow, and OSError where the disk refuses; then there is no pack.
        """
        writer = PackWriter(directory, run, blobs=blobs)
        try:
            self._add_all(writer)
            said = {"problem": self._problem(), "remarks": self._remarks()}
            writer.finish(said)
        except BaseException:
            writer.discard()
            raise
        return {**said, "count": writer.files, "bytes": writer.bytes}

    def _add_all(self, writer: PackWriter) -> None:
        most = QUICK_ENTRIES_MAX if self._quick else ENTRIES_MAX
        walk = FileWalk(self._top, self._enters, entries_max=most, since_ns=self._since_ns)
        try:
            for found in walk.files():
                if not self._patterns.takes(found.path):
                    continue
                if writer.files >= self._limits.files:
                    self._over.append(f"there are more than {self._limits.files} files")
                    break
                self._add(writer, found)
        except WalkTooLong:
            if self._quick:
                raise TooMuchNow from None
            self._over.append(f"its directory has more than {ENTRIES_MAX} files")
        self._unread += len(walk.unread)

    def _enters(self, directory: str) -> bool:
        return directory != PRIVATE and self._patterns.enters(directory)

    def _add(self, writer: PackWriter, found: WalkedFile) -> None:
        handle = self._open(found)
        if handle is None:
            return
        try:
            status = os.fstat(handle)
            newest_ns = max(found.status.st_ctime_ns, status.st_ctime_ns)
            if newest_ns < self._since_ns:
                return
            size = status.st_size
            if size > self._limits.file_bytes:
                self._over.append(
                    f"`{quote_path(found.path)}` has {size_words(size)}, and at most"
                    f" {size_words(self._limits.file_bytes)} of a file are kept"
                )
                return
            if writer.bytes + size > self._limits.bytes:
                self._over.append(
                    f"`{quote_path(found.path)}` would make it more than"
                    f" {size_words(self._limits.bytes)} in all"
                )
                return
            if self._quick and writer.bytes + size > QUICK_BYTES_MAX:
                raise TooMuchNow
            changed_s = round(status.st_mtime, 3)
            writer.add(found.path, status.st_mode & 0o777, changed_s, reader_of(handle, size))
        finally:
            os.close(handle)

    def _open(self, found: WalkedFile) -> Optional[int]:
        """Opens a file, or the file inside that a link leads to; None where there is none."""
        try:
            if not found.is_link:
                return found.open()
            handle = open_inside(self._top, found.path)
            self._links += handle is None
            return handle
        except OSError:
            self._unread += 1
            return None

    def _problem(self) -> str:
        if not self._over:
            return ""
        shown = "; ".join(self._over[:SHOWN_MAX])
        more = f"; and {len(self._over) - SHOWN_MAX} more" if len(self._over) > SHOWN_MAX else ""
        return f"not all outputs are kept: {shown}{more}"

    def _remarks(self) -> list[str]:
        said = [
            f"no file of this attempt matches `{it}` of `outputs`"
            for it in self._patterns.unmet
            if it != EVERYTHING  # an attempt need not write a file
        ]
        if self._links:
            said.append(f"links that lead out of its directory are not kept: {self._links}")
        if self._unread:
            said.append(f"outputs that could not be read: {self._unread}")
        return said


def open_inside(top: str, path: str) -> Optional[int]:
    """Opens the regular file below `top` that a link leads to; None for any other link. Raises
    OSError.
    """
    root = os.path.realpath(top)
    real = os.path.realpath(os.path.join(root, path))
    inside = os.path.join(root, "")
    if not real.startswith(inside) or not os.path.isfile(real):
        return None
    directory, name = os.path.split(real[len(inside) :])
    walk = FileWalk(os.path.join(root, directory), lambda _: False)
    return next((it.open() for it in walk.files() if it.path == name and not it.is_link), None)


def count_left(top: str, since_ns: int) -> str:
    """Returns a sentence about the files that the attempt wrote and that nobody keeps, "" without
    any. Hidden files and caches do not count; a long look ends early.
    """
    walk = FileWalk(top, _is_plain, entries_max=LEFT_ENTRIES_MAX, since_ns=since_ns)
    names: list[str] = []
    count = 0
    size = 0
    more = ""
    try:
        for found in walk.files():
            if found.is_link or found.path.startswith("."):
                continue
            count = count + 1
            size = size + found.status.st_size
            if len(names) < SHOWN_MAX:
                names.append(quote_path(found.path))
    except WalkTooLong:
        more = "more than "
    if not count:
        return ""
    noun = "file was" if count == 1 and not more else "files were"
    dots = ", ..." if count > len(names) or more else ""
    what = f"{more}{count} {noun} not kept, {size_words(size)}: {', '.join(names)}{dots}"
    return f"{what} ({KEEP_HINT})"


def judge_outputs(
    kept: dict[str, Any],
    ended: dict[str, Any],
    say: Callable[[str], None],
) -> None:
    """Adds to the end record what was kept, and lets a success fail where that is not all.

    kept: what `OutputKeeper.keep` returned, or `failure` why it could not, or `left`, a sentence of
    `count_left`; say: writes a line to the log. The last lines of a failed attempt are its
    program's own: screens show them as the reason.
    """
    succeeded = ended["ok"]
    if kept.get("count"):
        ended["outputs"] = kept["count"]
    problem = kept.get("problem")
    failure = kept.get("failure")
    if ended["ok"] and failure:
        message = f"its outputs could not be kept: {failure}"
        ended.update(
            ok=False,
            infra=True,
            reason=OUTPUTS_NOT_KEPT,
            message=message,
        )
    elif ended["ok"] and problem:
        message = f"{problem} (write large data to a volume)"
        ended.update(
            ok=False,
            reason=OUTPUTS_TOO_LARGE,
            message=message,
        )
    if not kept.pop("said", False) and succeeded:  # said: its end is written once more
        remarks = kept.get("remarks") or []
        for text in filter(None, [problem, failure, *remarks, kept.get("left")]):
            say(text)
    kept["said"] = True


def _is_plain(directory: str) -> bool:
    name = directory.rpartition("/")[2]
    return not name.startswith(".") and name not in CACHES


def size_words(size: int) -> str:
    """Formats a size for a sentence: `1.4 GiB`, `312 B`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def quote_path(path: str) -> str:
    """Returns a path for a sentence: on one line, without bytes that are no text."""
    return quote(path)[1:-1][:200]

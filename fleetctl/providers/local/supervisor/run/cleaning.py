"""Makes, gives out and cleans work directories, without making the supervisor wait, and makes a
used copy of the source equal to the source again.

Making and removing directories costs more than a tiny task does, so a directory that a task left
as it was given (with our files alone in it) serves again. One with other files is removed by a
child, or one with a copy of the source made ready again; that of a failed task is kept for its
user.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import time
from typing import Any, NamedTuple, Optional

from fleetctl.guest.task.parameters import INPUTS_DIRECTORY as DIRECTORY
from fleetctl.guest.task.parameters import remove_directory

from .concluding import PRIVATE, TEMPORARY
from .sandbox import GivenWork

TIDY_S = 2.0  # until the files of a task are taken out of a directory that no other task has got
SPARES_MAX = 32  # directories with a copy of the source that wait for a task
INPUTS_MAX = 100  # files of a task that the supervisor removes itself: about a millisecond
OURS = frozenset({"params.json", "result.json", "metrics.jsonl"})


# A task may do anything to its copy. What it did is found by kind, size, mode, times and names: a
# file that was touched since the copy was last equal is read and compared. Hard links to the source
# would be cheaper still, but an edit in place would reach all other tasks; a mount of an overlay
# behaves unlike a directory (a directory of it cannot be renamed), and is not to be had everywhere.
# Called in forked children, except for `learn_source`.

PIECE_BYTES = 1024 * 1024
# A clock of a disk that is this much behind the clock of processes is the slowest that we know.
SLACK_NS = 50_000_000
LEARNED_MAX = 20_000  # entries of a source that are noted: about 5 MiB of a supervisor
_HAS_XATTRS = hasattr(os, "listxattr")  # macOS has them by other functions


class Janitor:
    """Makes and cleans work directories. top: the directory of all work directories; prefix: the
    part of their names that is unique to this supervisor. source: of the config, or None.
    """

    def __init__(
        self,
        top: str,
        prefix: str,
        source: Optional[dict[str, Any]],
    ) -> None:
        self._top = top
        self._prefix = prefix
        self._source = source
        if source is not None:
            learn_source(source["dir"])
        self._counter = itertools.count()
        self._spare: list[str] = []
        self._used_at_s: dict[str, float] = {}  # of spare ones that still have a task's files
        self._given_ns: dict[str, int] = {}  # of all that have a source
        self._sent: dict[int, str] = {}  # children that clean, and what they make ready again

    @property
    def busy(self) -> bool:
        return bool(self._sent)

    def give(self) -> GivenWork:
        """Returns a work directory. One with a source has a name that no earlier one had: those who
        look for a task's files find none of another task there.
        """
        if self._spare and self._source is None:
            return GivenWork(self._spare.pop(), fresh=False)
        path = os.path.join(self._top, f"{self._prefix}-{next(self._counter)}")
        if self._source is None:
            return GivenWork(path)
        self._given_ns[path] = time.time_ns()
        if not self._spare:
            return GivenWork(path)
        used = self._spare.pop()
        self._used_at_s.pop(used, None)
        return GivenWork(path, True, used, self._given_ns.pop(used))

    def take_back(self, work: str) -> None:
        """Takes back a directory that a task is done with. One with a source serves again whatever
        the task did there.
        """
        if self._source is None and _as_given(work):
            self._spare.append(work)
        elif self._source is not None and len(self._spare) < SPARES_MAX:
            self._spare.append(work)
            self._used_at_s[work] = time.monotonic()
        else:
            self._send(work, again=False)

    def tidy(self) -> None:
        """Lets a child take out the files of tasks from directories that wait for a while."""
        before_s = time.monotonic() - TIDY_S
        for work in [it for it, used_at_s in self._used_at_s.items() if used_at_s <= before_s]:
            del self._used_at_s[work]
            self._spare.remove(work)
            self._send(work, again=True)

    def _send(self, work: str, *, again: bool) -> None:
        """Sends a child that cleans a directory or removes it. again: whether it may serve."""
        given_ns, self._given_ns[work] = self._given_ns.get(work, 0), time.time_ns()
        try:
            pid = os.fork()
        except OSError:
            return  # no process to be had: it stays until its resource is deleted
        if pid == 0:
            clean = False
            try:
                clean = again and restore_work(work, self._source, given_ns)
                if not clean:
                    remove_tree(work)
            finally:
                os._exit(0 if clean else 1)
        self._sent[pid] = work

    def knows(self, pid: int) -> bool:
        return pid in self._sent

    def ended(self, pid: int, status: int) -> None:
        """Notes that a cleaner has ended. status: the wait status of a child; 0 where the
        directory may serve again.
        """
        work = self._sent.pop(pid, "")
        if work and status == 0:
            self._spare.append(work)
        else:
            self._given_ns.pop(work, None)

    def leave(self) -> None:
        """Removes the directories that were kept to serve again, without the modules that
        `remove_tree` loads.
        """
        for work in self._spare:
            if self._source is None:
                _remove_untouched(work)
            else:
                with contextlib.suppress(OSError):  # what refuses goes with its resource
                    remove_directory(work)


def make_work_dir(work: str) -> None:
    os.mkdir(work, 0o700)
    _make_private(work)


def _make_private(work: str) -> None:
    os.mkdir(os.path.join(work, PRIVATE), 0o700)
    os.mkdir(os.path.join(work, PRIVATE, TEMPORARY), 0o700)


def _remove_untouched(work: str) -> None:
    """Removes a directory that is as it was given. One that is not so any more stays."""
    try:
        os.unlink(os.path.join(work, PRIVATE, "params.json"))
        for path in (os.path.join(work, PRIVATE, TEMPORARY), os.path.join(work, PRIVATE), work):
            os.rmdir(path)
    except OSError:
        return


def remove_tree(path: str) -> None:
    """Removes a directory, also one that a task has closed to us. Entries that still refuse are
    left.
    """
    import shutil  # in the child that cleans: it loads libraries that the supervisor does without

    shutil.rmtree(path, ignore_errors=True)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, stat.S_IRWXU)
        for directory, names, _ in os.walk(path):
            _open_up([os.path.join(directory, name) for name in names])
        shutil.rmtree(path, ignore_errors=True)


def _open_up(directories: list[str]) -> None:
    """Opens directories to us before the walk goes into them."""
    for path in directories:
        if not os.path.islink(path):
            os.chmod(path, stat.S_IRWXU)


def _as_given(work: str) -> bool:
    try:
        return _clear_work_dir(work)
    except OSError:  # no directory any more, or closed to us
        return False


def _clear_work_dir(work: str) -> bool:
    """Returns whether only our files are in it; takes out the files of the last task. Raises
    OSError.
    """
    private = f"{work}/{PRIVATE}"
    for directory in (work, private):
        if stat.S_IMODE(os.lstat(directory).st_mode) != stat.S_IRWXU:
            return False
    if os.listdir(work) != [PRIVATE]:
        return False
    _take_inputs(f"{private}/{DIRECTORY}")
    inside = set(os.listdir(private))
    temporary = f"{private}/{TEMPORARY}"
    if inside - OURS != {TEMPORARY} or os.path.islink(temporary) or os.listdir(temporary):
        return False
    if not stat.S_ISREG(os.lstat(os.path.join(private, "params.json")).st_mode):
        return False
    for name in inside - {
        TEMPORARY,
        "params.json",
    }:  # the parameters are overwritten by the next task
        os.unlink(os.path.join(private, name))
    return True


def restore_work(
    work: str,
    source: Optional[dict[str, Any]],
    since_ns: int,
) -> bool:
    """Makes a directory with a source as it is given; returns whether it is. since_ns: when it was
    given to its last task, in time since the epoch.
    """
    if source is None:
        return False
    try:
        os.chmod(work, stat.S_IRWXU)
        with os.scandir(work) as entries:
            for entry in entries:
                if entry.name != source["name"]:
                    remove_entry(entry)
        restore_source(source["dir"], os.path.join(work, source["name"]), since_ns)
        _make_private(work)
    except OSError:
        return False
    return True


def _take_inputs(directory: str) -> None:
    """Removes the files that the last task was given. A directory with anything else in it stays,
    and its work directory does not serve again.
    """
    if os.path.islink(directory) or not os.path.isdir(directory):
        return
    names = os.listdir(directory)
    if len(names) > INPUTS_MAX:
        return
    for name in names:
        path = os.path.join(directory, name)
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return
        os.unlink(path)
    os.rmdir(directory)


class _Looks(NamedTuple):
    """A directory of the source. entries: mode, bytes and time of change in ns, by name."""

    own: os.stat_result
    entries: dict[str, tuple[int, int, int]]


_looks: dict[str, _Looks] = {}


def lay_source(origin: str, target: str) -> None:
    """Copies a directory of regular files, links and directories. Raises OSError."""
    os.mkdir(target, 0o700)
    with os.scandir(origin) as entries:
        for entry in entries:
            _copy_entry(entry, os.path.join(target, entry.name))
    _give_looks(target, os.lstat(origin))


def learn_source(origin: str) -> None:
    """Notes how the entries of a source look, which does not change any more: all copies of it that
    this process and its children restore are compared with the notes.
    """
    waiting = [origin]
    count = 0
    while waiting and count < LEARNED_MAX:
        directory = waiting.pop()
        looks = _looks[directory] = _list_looks(directory)
        count += len(looks.entries)
        inside = (name for name, it in looks.entries.items() if stat.S_ISDIR(it[0]))
        waiting.extend(os.path.join(directory, name) for name in inside)


def restore_source(
    origin: str,
    target: str,
    since_ns: int,
) -> None:
    """Makes a copy equal to its origin. since_ns: time since the epoch at which it was so; 0 where
    that is unknown. Raises OSError.
    """
    if not stat.S_ISDIR(os.lstat(target).st_mode):
        raise NotADirectoryError(target)  # a task has put another thing there
    os.chmod(target, stat.S_IRWXU)
    looks = _looks.get(origin) or _list_looks(origin)
    lacking = dict(looks.entries)
    old_ns = since_ns - SLACK_NS
    odd = []
    with os.scandir(target) as entries:
        for entry in entries:  # a task waits for this loop: most files of a copy end in it
            wanted = lacking.pop(entry.name, None)
            theirs = entry.stat(follow_symlinks=False)
            if (
                wanted != (theirs.st_mode, theirs.st_size, theirs.st_mtime_ns)
                or theirs.st_ctime_ns >= old_ns
                or theirs.st_nlink != 1
                or not stat.S_ISREG(theirs.st_mode)
            ):
                odd.append((entry, theirs))
    for mate, theirs in odd:
        known = mate.name in looks.entries
        if not known or not _restore_entry(
            os.path.join(origin, mate.name), mate.path, theirs, since_ns
        ):
            remove_entry(mate)
            if known:
                lacking[mate.name] = looks.entries[mate.name]
    if lacking:
        with os.scandir(origin) as entries:
            for entry in entries:
                if entry.name in lacking:
                    _copy_entry(entry, os.path.join(target, entry.name))
    _give_looks(target, looks.own)


def remove_entry(entry: os.DirEntry[str]) -> None:
    """Removes a file, a link or a whole directory. Raises OSError."""
    if entry.is_dir(follow_symlinks=False):
        remove_directory(entry.path)
    else:
        os.unlink(entry.path)


def _list_looks(directory: str) -> _Looks:
    entries = {}
    with os.scandir(directory) as listing:
        for entry in listing:
            about = entry.stat(follow_symlinks=False)
            entries[entry.name] = (about.st_mode, about.st_size, about.st_mtime_ns)
    return _Looks(os.lstat(directory), entries)


def _restore_entry(
    origin: str,
    mate: str,
    theirs: os.stat_result,
    since_ns: int,
) -> bool:
    """Returns whether an entry of the copy is now what it was; False where it has to be copied."""
    looks = os.lstat(origin)
    if stat.S_IFMT(looks.st_mode) != stat.S_IFMT(theirs.st_mode):
        return False
    if stat.S_ISDIR(looks.st_mode):
        restore_source(origin, mate, since_ns)
        return True
    if stat.S_ISLNK(looks.st_mode):
        return os.readlink(origin) == os.readlink(mate)
    # Through another name of it, a task that comes later could edit it.
    if theirs.st_nlink != 1 or looks.st_size != theirs.st_size:
        return False
    if (looks.st_mode, looks.st_mtime_ns) != (theirs.st_mode, theirs.st_mtime_ns):
        return False
    return theirs.st_ctime_ns < since_ns - SLACK_NS or _same_content(origin, mate, looks.st_size)


def _same_content(one: str, other: str, size: int) -> bool:
    most = min(PIECE_BYTES, size + 1)  # a read allocates as much as it may return
    with open(one, "rb", buffering=0) as first, open(other, "rb", buffering=0) as second:
        while piece := first.read(most):
            if piece != second.read(most):
                return False
    return True


def _copy_entry(entry: os.DirEntry[str], target: str) -> None:
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), target)
    elif entry.is_dir(follow_symlinks=False):
        lay_source(entry.path, target)
    else:
        _copy_file(entry.path, target)


def _copy_file(origin: str, target: str) -> None:
    source = os.open(origin, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        copy = os.open(target, flags, 0o600)
        try:
            looks = os.fstat(source)
            most = min(PIECE_BYTES, looks.st_size + 1)
            while piece := os.read(source, most):
                left = memoryview(piece)
                while left:
                    left = left[os.write(copy, left) :]
            if _HAS_XATTRS:
                for name in os.listxattr(source):
                    if name.startswith("user."):
                        os.setxattr(copy, name, os.getxattr(source, name))
            _give_looks(copy, looks)
        finally:
            os.close(copy)
    finally:
        os.close(source)


def _give_looks(target: int | str, looks: os.stat_result) -> None:
    """Gives a file or a directory the mode and the times of its origin."""
    os.chmod(target, stat.S_IMODE(looks.st_mode))
    os.utime(target, ns=(looks.st_atime_ns, looks.st_mtime_ns))

"""Work directories: made, given out, cleaned, without making the supervisor wait.

Making and removing directories costs more than a tiny task does, so one that a task left as it was
given
(nothing in it but ours) serves again. What holds more is removed by a child; what a failed task
leaves is
kept for people.
"""

from __future__ import annotations

import itertools
import os
import stat

from .reports.record import PRIVATE, TEMPORARY

OURS = frozenset({"params.json", "result.json", "metrics.jsonl"})


class Janitor:
    """top: the directory of all work directories; prefix: what makes names of this supervisor
    unique.
    """

    def __init__(self, top: str, prefix: str) -> None:
        self._top = top
        self._prefix = prefix
        self._counter = itertools.count()
        self._spare: list[str] = []
        self._sent: set[int] = set()  # children that clean

    @property
    def busy(self) -> bool:
        return bool(self._sent)

    def give(self) -> tuple[str, bool]:
        """(path of a work directory, whether it is still to be made)."""
        if self._spare:
            return self._spare.pop(), False
        return os.path.join(self._top, f"{self._prefix}-{next(self._counter)}"), True

    def take_back(self, work: str) -> None:
        """A task is done with it and left nothing to keep."""
        if _as_given(work):
            self._spare.append(work)
            return
        try:
            pid = os.fork()
        except OSError:
            return  # no process to be had: it stays until its resource is deleted
        if pid == 0:
            try:
                remove_tree(work)
            finally:
                os._exit(0)
        self._sent.add(pid)

    def knows(self, pid: int) -> bool:
        return pid in self._sent

    def ended(self, pid: int) -> None:
        self._sent.discard(pid)

    def leave(self) -> None:
        """Remove what was kept to serve again, without what `remove_tree` has to load."""
        for work in self._spare:
            _unmake(work)


def make(work: str) -> None:
    os.mkdir(work, 0o700)
    os.mkdir(os.path.join(work, PRIVATE), 0o700)
    os.mkdir(os.path.join(work, PRIVATE, TEMPORARY), 0o700)


def _unmake(work: str) -> None:
    """Remove a directory that is as it was given. One that is not so any more stays."""
    try:
        os.unlink(os.path.join(work, PRIVATE, "params.json"))
        for path in (os.path.join(work, PRIVATE, TEMPORARY), os.path.join(work, PRIVATE), work):
            os.rmdir(path)
    except OSError:
        return


def remove_tree(path: str) -> None:
    """Remove a directory, also one that a task has closed to us. What still refuses is left."""
    import shutil  # in the child that cleans: it loads libraries that the supervisor does without

    shutil.rmtree(path, ignore_errors=True)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, stat.S_IRWXU)
        for directory, names, _ in os.walk(path):
            _open_up([os.path.join(directory, name) for name in names])
        shutil.rmtree(path, ignore_errors=True)


def _open_up(directories: list[str]) -> None:
    """Before the walk goes into them."""
    for path in directories:
        if not os.path.islink(path):
            os.chmod(path, stat.S_IRWXU)


def _as_given(work: str) -> bool:
    try:
        return _cleared(work)
    except OSError:  # no directory any more, or closed to us
        return False


def _cleared(work: str) -> bool:
    """Whether nothing but ours is in it; takes out the files of the last task. Raises OSError."""
    private = f"{work}/{PRIVATE}"
    for directory in (work, private):
        if stat.S_IMODE(os.lstat(directory).st_mode) != stat.S_IRWXU:
            return False
    if os.listdir(work) != [PRIVATE]:
        return False
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

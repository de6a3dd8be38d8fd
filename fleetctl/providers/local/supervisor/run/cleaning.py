"""Makes, gives out and cleans work directories, without making the supervisor wait.

Making and removing directories costs more than a tiny task does, so a directory that a task left as
it was given (with our files alone in it) serves again. One with other files is removed by a child,
or one with a copy of the source made ready again; that of a failed task is kept for its user.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import time
from typing import Any, Optional

from fleetctl.guest.task.inputs import DIRECTORY, remove_directory

from .reports.record import PRIVATE, TEMPORARY
from .sandbox import GivenWork
from .source_copy import learn_source, remove_entry, restore_source

TIDY_S = 2.0  # until the files of a task are taken out of a directory that no other task has got
SPARES_MAX = 32  # directories with a copy of the source that wait for a task
INPUTS_MAX = 100  # files of a task that the supervisor removes itself: about a millisecond
OURS = frozenset({"params.json", "result.json", "metrics.jsonl"})


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
        """status: the wait status of a child; 0 where the directory may serve again."""
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

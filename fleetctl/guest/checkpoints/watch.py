"""Makes each new complete checkpoint of a running program durable, then reports it.

One look is a listing of names and of each new entry's marker, and records which incomplete ones
have changed just before: those alone may be set aside by the next attempt, see prepare.py.
Called once a second by the run's supervisor, as one of its followers.
"""

from __future__ import annotations

import time

from fleetctl.guest.checkpoints.disk import Disk, notebook_of
from fleetctl.guest.checkpoints.formats import ASIDE, MARKS, format_of
from fleetctl.guest.checkpoints.keeping import choose_removable
from fleetctl.guest.checkpoints.prepare import remove_entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Optional

    Version = tuple[int, int]  # of a checkpoint: differs after a rewrite
    Extent = tuple[int, int]  # bytes and time of an incomplete one: differs while it is written

    from fleetctl.guest.checkpoints.formats import Format, Found
    from fleetctl.guest.checkpoints.mirror import Mirror
    from fleetctl.guest.journal.record import Journal

    # Makes written files durable, and calls back with the failure, or "".
    Commit = Callable[[Callable[[str], None]], None]

MESSAGE_CHARACTERS_MAX = 1024
NEVER = (-1, 0)  # the extent of a missing entry
# An unfinished checkpoint counts as being written so long after its last change, as of the look
# before: a program may die between the look that saw the change and the one after its end.
WRITING_S = 2.0
REST = 20  # times what a look took: volumes that answer slowly are asked more rarely


class Watch:
    def __init__(
        self,
        asked: Mapping[str, Any],
        disk: Disk,
        *,
        path: str,
        commit: Optional[Commit],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        mirror: Optional[Mirror] = None,
    ) -> None:
        """path: of the directory, as the program knows it; commit: None where a file is durable
        once it is written; say: writes a line to the log; mirror: copies each checkpoint.
        """
        self._asked = asked
        self._disk = disk
        self._path = path
        self.resumed: Optional[dict[str, Any]] = None  # `step` and `path` at the start
        self._commit = commit
        self._say = say
        self._clock = clock
        self._mirror = mirror
        self._known: dict[str, Version] = {}
        self._writing: set[str] = set()
        self._changed_at_s: dict[str, float] = {}  # when each unfinished one was seen to change
        self._looked_at_s = 0.0
        self._extents: Optional[dict[str, Optional[Extent]]] = None  # at the last look
        self._begun: dict[str, float] = {}  # when each incomplete checkpoint was first seen
        self._format: Optional[Format] = None
        self._untold: list[dict[str, Any]] = []
        self._committing = self._over = False
        self._rest_until_s = 0.0
        self.count = 0  # how many checkpoints were seen to be published
        there = self._look()
        self._note_writing(there)
        for one in there:
            if one.complete:
                self._known[one.name] = self._version(one)
                self._copy(one.name, one.step)  # an end may have come in between

    def hear(self, event: dict[str, Any], journal: Journal) -> bool:
        """Takes the start report of the process that became the program; False for all else."""
        step = event.get("step")
        path = event.get("path")
        message = event.get("message")
        if event.get("e") == "resumed" and isinstance(step, int) and isinstance(path, str):
            self.resumed = {"step": step, "path": path}
            return journal.note("resumed", self.resumed)
        kind = event.get("e")
        if kind in ("aside", "left", "unmirrored") and isinstance(message, str):
            return journal.note(kind, {"message": message[:MESSAGE_CHARACTERS_MAX]})
        return False

    def take(self, journal: Journal, *, whole: bool = False) -> bool:
        """Looks once; returns whether an event was recorded. whole: the run has ended, and new
        checkpoints are made durable with all else before `conclude`.
        """
        return self._look_at_copies(journal) | self._take(journal, whole=whole)

    def copies(self, journal: Journal) -> bool:
        """Returns whether a copy is still under way after the program's end; polled until False,
        which takes at most END_S.
        """
        if self._mirror is None:
            return False
        self._take(journal, whole=False)
        self._look_at_copies(journal)
        late = self._mirror.give_up()
        if late is not None:
            self._tell_problem(journal, late)
        return self._committing or not self._mirror.is_over()

    @property
    def copying(self) -> Optional[int]:
        """Returns the id of the copying process, if any."""
        if self._mirror is None:
            return None
        return self._mirror.pid

    def _look_at_copies(self, journal: Journal) -> bool:
        problem = None if self._mirror is None else self._mirror.look()
        return problem is not None and self._tell_problem(journal, problem)

    def _tell_problem(self, journal: Journal, problem: str) -> bool:
        self._say(problem)
        return journal.note("unmirrored", {"message": problem})

    def _take(self, journal: Journal, *, whole: bool) -> bool:
        now_s = self._clock()
        due = whole or now_s >= self._rest_until_s
        there = self._look() if due else []
        if due:
            self._note_writing(there)
        for one in there:
            version = self._version(one)
            if not one.complete:
                self._begun.setdefault(one.name, now_s)
            elif self._known.get(one.name) != version:
                self._known[one.name] = version
                self._publish(one, now_s)
        self._rest_until_s = max(self._rest_until_s, now_s + REST * (self._clock() - now_s))
        if whole or not self._untold or self._committing:
            self._over = self._over or whole
            return False
        if self._commit is None:
            return self._tell(journal, self._untold, "")
        self._committing = True
        committed = self._untold
        self._untold = []
        self._commit(lambda problem: self._committed(journal, committed, problem))
        return False

    def lost(self) -> None:
        """Drops the checkpoints that are not reported yet: they could not be made durable."""
        self._untold = []

    def conclude(self, line: str, ended: dict[str, Any], journal: Journal) -> str:
        """Returns the journal's result line unchanged. The remaining checkpoints are durable."""
        self._tell(journal, self._untold, "")
        return line

    def _committed(
        self,
        journal: Journal,
        committed: list[dict[str, Any]],
        problem: str,
    ) -> None:
        self._committing = False
        if self._over:  # the journal has its end, or waits for one commit of everything
            self._untold = committed + self._untold
            return
        self._tell(journal, committed, problem)

    def _tell(
        self,
        journal: Journal,
        events: list[dict[str, Any]],
        problem: str,
    ) -> bool:
        if problem:
            self._say(problem)
            self._untold = events + self._untold  # the next look tries again
            return False
        self._untold = [one for one in self._untold if one not in events]
        for event in events:
            journal.note("checkpoint", event)
            self._copy(event["path"].rpartition("/")[2], event["step"])
        if events:
            self._thin()
        return bool(events)

    def _publish(self, one: Found, now_s: float) -> None:
        self.count += 1
        event = {
            "step": one.step,
            "path": f"{self._path}/{one.name}",
            "at": now_s,
            "bytes": self._disk.bytes_of(one.name),
            "took_s": round(now_s - self._begun.pop(one.name, now_s), 3),
        }
        self._untold.append(event)

    def _copy(self, name: str, step: Optional[int]) -> None:
        """Hands a durable checkpoint to the mirror, with its tracker's text."""
        if self._mirror is None or self._format is None or step is None:
            return
        text = self._format.tracker_of(name, step)
        self._mirror.copy(name, step, (self._format.tracker, text) if text else None)

    def _look(self) -> list[Found]:
        if self._format is None:
            self._format = format_of(self._disk, self._asked["format"])
        if self._format is not None:
            return self._format.find(self._disk)
        return []

    def _note_writing(self, there: list[Found]) -> None:
        """Records incomplete checkpoints that this run is seen to write. While no format is known,
        only names are kept.
        """
        disk = self._disk
        before = self._extents
        names = [one.name for one in there if not one.complete]
        self._extents = {name: (disk.bytes_of(name), disk.newest_at(name)) for name in names}
        if self._format is None:
            self._extents = dict.fromkeys(disk.names())
        if before is None:  # it was there before, whichever program wrote it
            return
        now_s = self._clock()
        since_s = self._looked_at_s - WRITING_S
        self._looked_at_s = now_s
        known = self._changed_at_s
        self._changed_at_s = {}
        for name in names:
            changed = before.get(name, NEVER) not in (None, self._extents[name])
            changed_at_s = now_s if changed else known.get(name)
            if changed_at_s is not None:
                self._changed_at_s[name] = changed_at_s
        writing = {name for name, at_s in self._changed_at_s.items() if at_s > since_s}
        if writing != self._writing:
            self._writing = writing
            notebook = notebook_of(disk, self._asked["owner"])
            notebook.writing = writing
            notebook.save(disk)

    def _version(self, one: Found) -> Version:
        """Distinguishes versions of a checkpoint by its marker's time, so that a rewritten one is
        new.
        """
        disk = self._disk
        name = one.name
        for mark in MARKS:
            if changed_at := disk.changed_at(f"{name}/{mark}"):
                return changed_at, 0
        return disk.changed_at(name), disk.size(name)

    def _thin(self) -> None:
        """Removes checkpoints that `keep` no longer retains; only after a newer one is durable."""
        keep = self._asked["keep"]
        if keep is None:
            return
        steps = {
            one.step: one.name for one in self._look() if one.complete and one.step is not None
        }
        resumed = self.resumed["step"] if self.resumed is not None else None
        for step in choose_removable(list(steps), keep["last"], keep["every"], resumed):
            remove_entry(self._disk, steps[step])
            self._known.pop(steps[step], None)
        self._thin_what_was_set_aside()

    def _thin_what_was_set_aside(self) -> None:
        """Applies `keep` to entries that this run left unfinished; they would fill the volume."""
        notebook = notebook_of(self._disk, self._asked["owner"])
        if not notebook.moved:
            return
        for name in notebook.moved:
            if name.startswith(ASIDE):
                remove_entry(self._disk, name)
        notebook.moved = []
        notebook.save(self._disk)

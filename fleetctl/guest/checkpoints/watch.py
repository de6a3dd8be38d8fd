"""While a program runs: a new complete checkpoint is made durable, then told.

One look is a listing of names and of each new entry's marker, and writes down which incomplete ones
have changed since the last look: those alone may be set aside by the next attempt, see prepare.py.
Called once a second by whoever keeps the run, as one of its followers.
"""

from __future__ import annotations

import time

from fleetctl.guest.checkpoints.disk import Disk
from fleetctl.guest.checkpoints.formats import ASIDE, MARKS, format_of
from fleetctl.guest.checkpoints.keeping import superfluous
from fleetctl.guest.checkpoints.notebook import notebook_of
from fleetctl.guest.checkpoints.prepare import remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Optional

    Version = tuple[int, int]  # of one checkpoint: differs when it was written anew
    Extent = tuple[int, int]  # of an incomplete one, bytes and time: differs while it is written

    from fleetctl.guest.checkpoints.formats import Format, Found
    from fleetctl.guest.checkpoints.mirror import Mirror
    from fleetctl.guest.journal.record import Journal

    # Makes what was written durable, and calls with what went wrong, or "".
    Commit = Callable[[Callable[[str], None]], None]

MESSAGE_CHARACTERS_MAX = 1024
NEVER = (-1, 0)  # the extent of what was not there
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
        once it is written; say: a word in the log; mirror: what copies each one elsewhere.
        """
        self._asked, self._disk, self._path = asked, disk, path
        self.resumed: Optional[dict[str, Any]] = None  # `step` and `path` it began from
        self._commit, self._say, self._clock = commit, say, clock
        self._mirror = mirror
        self._known: dict[str, Version] = {}
        self._writing: set[str] = set()
        self._extents: Optional[dict[str, Optional[Extent]]] = None  # at the last look
        self._begun: dict[str, float] = {}  # when one was seen first, while it was incomplete
        self._format: Optional[Format] = None
        self._untold: list[dict[str, Any]] = []
        self._committing = self._over = False
        self._rest_until_s = 0.0
        self.count = 0  # how many were seen to be published
        there = self._look()
        self._note_writing(there)
        for one in there:
            if one.complete:
                self._known[one.name] = self._version(one)
                self._copy(one.name, one.step)  # an end may have come in between

    def hear(self, event: dict[str, Any], journal: Journal) -> bool:
        """What the process that became the program said of its beginning; False for all else."""
        step, path, message = event.get("step"), event.get("path"), event.get("message")
        if event.get("e") == "resumed" and isinstance(step, int) and isinstance(path, str):
            self.resumed = {"step": step, "path": path}
            return journal.note("resumed", self.resumed)
        kind = event.get("e")
        if kind in ("aside", "left", "unmirrored") and isinstance(message, str):
            return journal.note(kind, {"message": message[:MESSAGE_CHARACTERS_MAX]})
        return False

    def take(self, journal: Journal, *, whole: bool = False) -> bool:
        """Look once; whether something was told. whole: the run is over, and what is new is made
        durable with all else before `conclude`.
        """
        return self._look_at_copies(journal) | self._take(journal, whole=whole)

    def copies(self, journal: Journal) -> bool:
        """Whether something is still copied elsewhere, once the program has ended; asked until it
        is not, which it is within END_S.
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
        """The process that copies, if any."""
        return None if self._mirror is None else self._mirror.pid

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
        self._committing, committed, self._untold = True, self._untold, []
        self._commit(lambda problem: self._committed(journal, committed, problem))
        return False

    def lost(self) -> None:
        """What is not told yet could not be made durable."""
        self._untold = []

    def conclude(self, line: str, ended: dict[str, Any], journal: Journal) -> str:  # noqa: ARG002
        """The journal's line for the result, as it was. What is left is durable now."""
        self._tell(journal, self._untold, "")
        return line

    def _committed(self, journal: Journal, committed: list[dict[str, Any]], problem: str) -> None:
        self._committing = False
        if self._over:  # the journal has its end, or waits for one commit of everything
            self._untold = committed + self._untold
            return
        self._tell(journal, committed, problem)

    def _tell(self, journal: Journal, events: list[dict[str, Any]], problem: str) -> bool:
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
        """What is durable goes to the mirror, too, with what its tracker says of it."""
        if self._mirror is None or self._format is None or step is None:
            return
        text = self._format.tracker_of(name, step)
        self._mirror.copy(name, step, (self._format.tracker, text) if text else None)

    def _look(self) -> list[Found]:
        if self._format is None:
            self._format = format_of(self._disk, self._asked["format"])
        return self._format.find(self._disk) if self._format is not None else []

    def _note_writing(self, there: list[Found]) -> None:
        """Write down what has changed since the last look and is incomplete yet. While no format is
        known, nothing is, and names are all that is kept of it.
        """
        disk, before = self._disk, self._extents
        names = [one.name for one in there if not one.complete]
        self._extents = {name: (disk.bytes_of(name), disk.newest_at(name)) for name in names}
        if self._format is None:
            self._extents = dict.fromkeys(disk.names())
        if before is None:  # it was there before, whoever wrote it
            return
        writing = {
            name for name in names if before.get(name, NEVER) not in (None, self._extents[name])
        }
        if writing != self._writing:
            self._writing = writing
            notebook = notebook_of(disk, self._asked["owner"])
            notebook.writing = writing
            notebook.save(disk)

    def _version(self, one: Found) -> Version:
        """Tells versions of a checkpoint apart by its marker's time: one that is written anew is
        new.
        """
        disk, name = self._disk, one.name
        for mark in MARKS:
            if changed_at := disk.changed_at(f"{name}/{mark}"):
                return changed_at, 0
        return disk.changed_at(name), disk.size(name)

    def _thin(self) -> None:
        """Remove what `keep` no longer wants; only after a newer one is durable."""
        keep = self._asked["keep"]
        if keep is None:
            return
        steps = {
            one.step: one.name for one in self._look() if one.complete and one.step is not None
        }
        resumed = self.resumed["step"] if self.resumed is not None else None
        for step in superfluous(list(steps), keep["last"], keep["every"], resumed):
            remove(self._disk, steps[step])
            self._known.pop(steps[step], None)
        self._thin_what_was_set_aside()

    def _thin_what_was_set_aside(self) -> None:
        """What this run left unfinished would fill the volume: `keep` is of it, too."""
        notebook = notebook_of(self._disk, self._asked["owner"])
        if not notebook.moved:
            return
        for name in notebook.moved:
            if name.startswith(ASIDE):
                remove(self._disk, name)
        notebook.moved = []
        notebook.save(self._disk)

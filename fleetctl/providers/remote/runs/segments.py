"""A remote run's output on this machine's disk, at the offsets that it has in its sandbox, and the
names of the files in one directory of mirrors.

The files are the same as a local run's: `<run>.log` and, where a part ends or output was dropped,
`<run>.<offset of its first byte>.log`; `<run>.times` dates the output by its arrival here. No file
stays open: thousands of runs may live.

A new file is lost with the power until its directory is synced, too. One sync serves all files that
were made before it, so a run whose file is older than another run's end needs no sync.
"""

from __future__ import annotations

import os
from pathlib import Path
from weakref import WeakValueDictionary

from fleetctl.guest.journal.logfile import Marks

LOG_BYTES_MAX = 64 * 1024 * 1024
SEGMENTS = 4  # the first one and the newest three are kept
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Segments:
    """A log in pieces, which only grows. `at` is where the next byte belongs; bytes before it are
    already here.

    fresh: no byte is here yet.
    """

    def __init__(
        self,
        runs: Path,
        run: str,
        *,
        bytes_max: int = LOG_BYTES_MAX,
        fresh: bool = False,
    ) -> None:
        self._runs = runs
        self._run = run
        self._segment_bytes = max(1, bytes_max // SEGMENTS)
        self._starts = [] if fresh else self._find_starts()
        self._touched: set[int] = set()
        self._there = set(self._starts)  # those whose file is made
        self._marks = Marks(str(runs / f"{run}.times"), began=not self._starts)
        self.at = self._end_of(self._starts[-1]) if self._starts else 0

    @property
    def files(self) -> int:
        """Returns how many files of the log were found here or made since, with the file of its
        dates.
        """
        return len(self._there) + bool(self._marks.written)

    def write(self, at: int, data: bytes) -> None:
        """Keeps `data`, whose first byte has offset `at`. Raises OSError when the disk refuses, and
        then can be called again.
        """
        view = memoryview(data)[max(0, self.at - at) :]
        at = max(at, self.at)
        if view:
            self._marks.note(at)
        while view:
            start = self._segment_for(at)
            room = max(1, start + self._segment_bytes - at)
            at += self._put(start, at - start, view[:room])
            view = view[room:]
            self.at = at

    def flush(self) -> None:
        """Makes all that was written survive a loss of power, once this returns."""
        for start in self._touched:
            sync_file(self._path(start))
        self._touched.clear()

    def _segment_for(self, at: int) -> int:
        """The start of the segment that the byte at `at` goes to."""
        last = self._starts[-1] if self._starts else None
        if last is not None and at == self.at and at < last + self._segment_bytes:
            return last
        # The first segment has the plain name, whatever was dropped before it.
        start = at if self._starts else 0
        self._starts.append(start)
        while len(self._starts) > SEGMENTS:
            dropped = self._starts.pop(1)
            self._touched.discard(dropped)
            self._path(dropped).unlink(missing_ok=True)
        return start

    def _put(
        self,
        start: int,
        place: int,
        data: memoryview,
    ) -> int:
        self._touched.add(start)
        handle = os.open(self._path(start), _WRITE, 0o600)
        self._there.add(start)
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(handle, data[done:], place + done)
        finally:
            os.close(handle)
        return done

    def _find_starts(self) -> list[int]:
        size = _file_size(self._path(0))
        if size is None:
            return []
        # A directory may hold a hundred thousand runs: it is only listed for a large log. A part
        # that is missed so was made because something was dropped, and comes again.
        if size < self._segment_bytes:
            return [0]
        prefix = f"{self._run}."
        middles = [
            name[len(prefix) : -4]
            for name in os.listdir(self._runs)
            if name.startswith(prefix) and name.endswith(".log")
        ]
        return [0, *sorted(int(middle) for middle in middles if middle.isdigit())]

    def _end_of(self, start: int) -> int:
        return start + (_file_size(self._path(start)) or 0)

    def _path(self, start: int) -> Path:
        return self._runs / (f"{self._run}.{start}.log" if start else f"{self._run}.log")


def sync_file(path: Path) -> None:
    """Makes a file's content durable. A missing file has no content."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _file_size(path: Path) -> int | None:
    try:
        return path.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return None


class Listing:
    """`note` is called on the event loop, `keep` in threads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._noted = 0
        self._kept = 0

    def note(self) -> int:
        """A file is there now; the number to ask for."""
        self._noted += 1
        return self._noted

    def keep(self, number: int) -> None:
        """Makes all files up to this number survive a loss of power, once this returns. Blocks."""
        if number <= self._kept:
            return
        noted = self._noted  # before the sync: a file that comes meanwhile may not be in it
        sync_file(self.directory)
        # The earlier of two concurrent calls may set it last: then one sync is wasted.
        self._kept = noted


class Listings:
    """The listing of each directory with mirrors in use."""

    def __init__(self) -> None:
        self._held = WeakValueDictionary[Path, Listing]()

    def of(self, directory: Path) -> Listing:
        listing = self._held.get(directory)
        if listing is None:
            listing = self._held[directory] = Listing(directory)
        return listing

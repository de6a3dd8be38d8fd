"""The names of the files in one directory of mirrors. Made by remote_runs.py, called by
run_mirror.py.

A new file is lost with the power until its directory is synced, too. One sync serves all files that
were made before it, so a run whose file is older than another run's end needs no sync.
"""

from __future__ import annotations

from pathlib import Path
from weakref import WeakValueDictionary

from fleetctl.providers.remote.runs.segments import sync_file


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

"""The names of the files in one directory of mirrors. Made by runs.py, called by mirror.py.

A new file is lost with the power until its directory is synced, too. One sync serves all that were
made before it, so a run whose file is older than another run's end has nothing to do.
"""

from __future__ import annotations

from pathlib import Path
from weakref import WeakValueDictionary

from fleetctl.providers.remote.runs.segments import sync


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
        """Make all files up to this number survive a loss of power, once this returns. Blocks."""
        if number <= self._kept:
            return
        noted = self._noted  # before the sync: a file that comes meanwhile may not be in it
        sync(self.directory)
        # Of two that come at once the earlier one may have the last word: then one sync is wasted.
        self._kept = noted


class Listings:
    """One for each directory with mirrors that somebody holds."""

    def __init__(self) -> None:
        self._held = WeakValueDictionary[Path, Listing]()

    def of(self, directory: Path) -> Listing:
        listing = self._held.get(directory)
        if listing is None:
            listing = self._held[directory] = Listing(directory)
        return listing

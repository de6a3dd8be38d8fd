"""Brings back what a command of `fleetctl run` wrote: it ran in a copy of a directory, and its
files belong into that directory, as if it had run there. Called by run.py at its end.

A file of this machine that changed since the copy was taken is never written over.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fleetctl.cli.output.screen import Screen
from fleetctl.common.errors import FleetctlError
from fleetctl.common.text import and_more, byte_size, count_noun, escape_line
from fleetctl.providers.rundir.kept_outputs import KeptFile, KeptOutputs
from fleetctl.tracking.written_files import note_written
from fleetctl.views.objects import View
from fleetctl.views.run_files import find_task_outputs, write_output
from fleetctl.views.store_reading import StoreReading

# All that it writes, but hidden files and caches.
WRITTEN = ("**", "!**/.*", "!**/__pycache__", "!**/node_modules")
CLOCK_S = 0.05  # by which a file system's clock may be behind ours
SHOWN_MAX = 5


class BringBack(NamedTuple):
    """directory: the one whose copy the command ran in. since_s: the time before it was taken."""

    directory: Path
    since_s: float

    @classmethod
    def into(cls, directory: str) -> BringBack:
        return cls(Path(directory).resolve(), time.time() - CLOCK_S)

    def bring(
        self,
        seen: View,
        state_dir: Path,
        reading: StoreReading,
        screen: Screen,
    ) -> None:
        """Writes the outputs of all tasks, and reports the files and what could not be written."""
        written: dict[Path, str] = {}
        size = 0
        refused = []
        kind = seen.resource.kind.lower().replace("batchjob", "job")
        key = f"{kind}/{seen.resource.name}"
        for index, kept, file in _list_kept(seen, state_dir, reading):
            place = self.directory / file.path
            why = self._refusal(file, place, written)
            if why:
                refused.append(f"{key}:{index}/{file.path} ({why})")
                continue
            try:
                if not _has_content(place, file):
                    write_output(kept, file, place)
            except (OSError, FleetctlError) as error:
                refused.append(f"{key}:{index}/{file.path} ({error})")
                continue
            written[place] = file.sha256
            size += file.size
        note_written(written)
        if written:
            names = and_more(
                [escape_line(str(it.relative_to(self.directory))) for it in written],
                most=SHOWN_MAX,
            )
            count = count_noun(len(written), "file")
            screen.talk(f"{count} brought back, {byte_size(size)}: {names}")
        for line in refused[:SHOWN_MAX]:
            screen.warn(f"not brought back: {escape_line(line)}")
        if refused:
            more = f"; {len(refused)} in all" if len(refused) > SHOWN_MAX else ""
            first = escape_line(refused[0].rpartition(" (")[0])
            screen.hint(f"fleetctl cp {first} PATH{more}")

    def _refusal(
        self,
        file: KeptFile,
        place: Path,
        written: dict[Path, str],
    ) -> str:
        """Returns why a file must not be written; "" where it may."""
        if place in written:
            same = written[place] == file.sha256
            if same:
                return ""
            return "another task wrote a file of this name"
        parent = Path(os.path.realpath(place.parent))
        if parent != self.directory and not parent.is_relative_to(self.directory):
            return "a link leads out of the directory there"
        try:
            looks = place.lstat()
        except FileNotFoundError:
            return ""
        except NotADirectoryError:
            return "a file is where it needs a directory"
        if place.is_dir():
            return "a directory has its name here"
        changed = max(looks.st_mtime, looks.st_ctime) >= self.since_s
        if changed and not _has_content(place, file):
            return "the file here changed meanwhile"
        return ""


def _list_kept(
    seen: View,
    state_dir: Path,
    reading: StoreReading,
) -> Iterator[tuple[int, KeptOutputs, KeptFile]]:
    for task in reading.tasks(seen):
        found = find_task_outputs(state_dir, seen, task, reading)
        if found is not None:
            yield from ((task.run.index, found.kept, it) for it in found.kept.files)


def _has_content(place: Path, file: KeptFile) -> bool:
    """Returns whether the regular file there has this content."""
    import hashlib

    if place.is_symlink() or not place.is_file() or place.stat().st_size != file.size:
        return False
    with place.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256

"""Files of this machine that fleetctl wrote on request: `results`, `plot`, `cp`. Recorded in the
state directory, so that such a file in a source is not taken for the program.

Called by the verbs that write (`note`), and where a source is read (`below`).
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.common.state_paths import WRITTEN, find_state_dir

if TYPE_CHECKING:
    from fleetctl.providers.sources.excludes import Written

FILES_MAX = 20_000  # that are remembered, the newest; as many as a source may have to be compared
PARTS_MAX = 64  # notes of single commands, before they become one


def note_written(paths: Iterable[str | Path]) -> None:
    """Records that a verb wrote these."""
    WrittenFiles(find_state_dir()).note(paths)


def note_output() -> None:
    """Records the file that a shell made of the standard output; for a pipe or a terminal it does
    nothing."""
    if sys.platform != "linux":
        return  # no way there to find the file of a descriptor
    with contextlib.suppress(OSError, ValueError):
        if stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode):
            sys.stdout.flush()
            note_written([Path(f"/proc/self/fd/{sys.stdout.fileno()}").readlink()])


class WrittenFiles:
    """The records. home: the state directory. Each command adds a file of its own, so that none
    waits for another; a lost record costs a needless question.
    """

    def __init__(self, home: Path) -> None:
        self._place = home / WRITTEN

    def note(self, paths: Iterable[str | Path]) -> None:
        """Records the present state of these files. A full disk is no error of the verb."""
        found: dict[str, Written] = {}
        with contextlib.suppress(OSError):
            for path in paths:
                looks = os.stat(path)  # of every file
                found[os.path.realpath(path)] = (looks.st_size, looks.st_mtime_ns)
            if found:
                self._keep(found)

    def below(self, directory: str) -> Mapping[str, Written]:
        """Returns the state of a directory's files when they were written; by their paths in it."""
        top = os.path.join(os.path.realpath(directory), "")
        found = self._read(self._parts())
        return {name[len(top) :]: it for name, it in found.items() if name.startswith(top)}

    def _keep(self, found: Mapping[str, Written]) -> None:
        self._place.mkdir(mode=0o700, exist_ok=True)  # without a state directory there is no work
        parts = self._parts()
        last = int(parts[-1].stem) if parts else 0
        if len(parts) >= PARTS_MAX:
            whole = {**self._read(parts), **found}
            found = dict(list(whole.items())[-FILES_MAX:])
        else:
            parts = []
        fresh = self._place / f".{os.getpid()}"
        fresh.write_text(json.dumps(found, separators=(",", ":")), encoding="utf-8")
        fresh.replace(self._place / f"{last + 1:012}.json")
        for part in parts:
            part.unlink(missing_ok=True)

    def _parts(self) -> list[Path]:
        """Returns the records, oldest first."""
        with contextlib.suppress(OSError):
            return sorted(it for it in self._place.iterdir() if it.stem.isdigit())
        return []

    def _read(self, parts: Iterable[Path]) -> dict[str, Written]:
        found: dict[str, Written] = {}
        for part in parts:
            with contextlib.suppress(OSError, ValueError):
                for name, (size, at_ns) in json.loads(part.read_text(encoding="utf-8")).items():
                    found.pop(name, None)
                    found[name] = (size, at_ns)
        return found

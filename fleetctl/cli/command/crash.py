"""Errors of a command: the refusals of several objects, printed after its results, and an error
that no verb foresaw, whose traceback is stored.

The world's errors (a disk, a file, an argument that is no text) get a sentence; the rest are bugs
of ours: a line, a file, and the command that reports it.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
import traceback
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from fleetctl.cli.output.screen import Screen, silence_stdout
from fleetctl.common.errors import FleetctlError, NotFound, Refused
from fleetctl.common.install import old_dependency
from fleetctl.stores.read.connecting import readonly_uri

# The errors of a write to a full or broken disk, or beyond a limit on the size of files.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
CRASHES = "crashes"  # below the state directory
NO_HANDLES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)

_CODES = {"refused": Refused.exit_code, "missing": NotFound.exit_code}


def report_crash(
    error: Exception,
    words: list[str],
    screen: Screen,
) -> None:
    """Prints on `screen` the error that happened while `words` were run."""
    if isinstance(error, OSError) and error.errno is not None:
        why = os.strerror(error.errno).lower()
        if error.errno in NO_ROOM and error.filename is None:
            silence_stdout()
            screen.error(f"the output cannot be written: {why}")
            return
        if error.filename is not None:
            denied = isinstance(error, PermissionError)
            why = "it is not open to you" if denied else why
            hint = (
                "set FLEETCTL_HOME to a directory of your own"
                if denied and _is_in_state_dir(error)
                else ""
            )
            screen.error(f"`{os.fsdecode(error.filename)}` cannot be used: {why}", hint=hint)
            return
        if error.errno in NO_HANDLES:
            screen.error(f"this machine gives no more: {why}", hint="ulimit -a")
            return
    if isinstance(error, UnicodeEncodeError) and not all(map(_is_text, words)):
        wrong = next(word for word in words if not _is_text(word))
        screen.error(f"`{wrong}` is not UTF-8 text")
        return
    if isinstance(error, ImportError):
        why, fix = old_dependency()
        if why:
            screen.error(why, hint=fix)
            return
    if damage := _find_store_damage():
        screen.error(str(damage), hint=damage.hint)
        return
    screen.error(
        f"fleetctl has a bug: {type(error).__name__}; the details are in `{keep_traceback(error)}`",
        hint="`fleetctl bundle` packs them and what else a report needs, without secrets",
    )


def _is_in_state_dir(error: OSError) -> bool:
    """Returns true where the error names a path in the state directory."""
    from fleetctl.common.state_paths import find_state_dir

    try:
        return os.fsdecode(error.filename).startswith(str(find_state_dir()))
    except FleetctlError:
        return False


def _find_store_damage() -> FleetctlError | None:
    """Returns the damage to the store that may be the reason: a broken page looks like a bug to the
    reader. None for a sound store, or where the check fails.
    """
    import sqlite3

    from fleetctl.common.state_paths import STATE_DB, find_state_dir
    from fleetctl.stores.sqlite_errors import damaged_error, primary_code

    try:
        path = find_state_dir() / STATE_DB
        if not path.exists():
            return None
        with closing(sqlite3.connect(readonly_uri(path), uri=True)) as store:
            found = str(store.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        if primary_code(error) not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return None
        found = str(error)
    except (FleetctlError, OSError):
        return None
    if found == "ok":
        return None
    return damaged_error(path, " ".join(found.split()))


def _is_text(word: str) -> bool:
    """Returns false for a word of the command line that is not UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in word)


def keep_traceback(error: BaseException) -> str:
    """Writes the traceback to a new private file; returns its path, or a phrase when no directory
    is writable.

    Locals are left out: they may hold secrets.
    """
    text = "".join(traceback.format_exception(error))
    name = f"crash-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.log"
    for folder in _list_crash_folders():
        path = folder / name
        try:
            folder.mkdir(
                mode=0o700,
                parents=True,
                exist_ok=True,
            )
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", errors="backslashreplace") as log:
                log.write(text)
        except OSError:
            continue  # the next folder may be writable; the last resort is the word below
        return str(path)
    return "nowhere: no folder could be written"


def _list_crash_folders() -> list[Path]:
    from fleetctl.common.state_paths import find_state_dir

    try:
        return [find_state_dir() / CRASHES, Path(tempfile.gettempdir())]
    except (FleetctlError, OSError):
        return []  # no writable directory: the caller reports that


class Refusals:
    """The refusals. keys: of objects that were refused or do not exist. code: the exit code; 0
    without any."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.keys: set[str] = set()
        self.code = 0
        self._said: list[tuple[str, str]] = []

    def add(
        self,
        text: str,
        hint: str,
        code: int,
    ) -> None:
        """Adds a refusal, which `tell` shows. The first of several sets the exit code."""
        self._said.append((text, hint))
        self.code = self.code or code

    def take(self, result: Mapping[str, object]) -> bool:
        """Adds an entry of a reply where it is a refusal; returns False for other entries."""
        code = _CODES.get(str(result.get("outcome")), 0)
        if code:
            self.keys.add(str(result.get("key")))
            self.add(str(result.get("message")), str(result.get("hint") or ""), code)
        return bool(code)

    def tell(self) -> int:
        """Prints all refusals, and returns the exit code."""
        for text, hint in self._said:
            self.screen.error(text, hint=hint)
        return self.code

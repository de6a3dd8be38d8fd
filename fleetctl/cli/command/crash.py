"""What is said of an error that no verb foresaw, and where its traceback goes.

Called by main alone, loaded only then. The world's errors (a disk, a file, an argument that is no
text) get a sentence; the rest are bugs of ours: a line, a file, and the command that reports it.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
import traceback
from contextlib import closing
from pathlib import Path

from fleetctl.cli.output.render import Screen, silence_stdout
from fleetctl.common.errors import FleetctlError
from fleetctl.stores.read.connecting import readonly_uri

# What a full or broken disk, and a limit on the size of files, answer to a write.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
CRASHES = "crashes"  # below the state directory
NO_HANDLES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


def tell(error: Exception, words: list[str], screen: Screen) -> None:
    """Say on `screen` what happened while `words` were run."""
    if isinstance(error, OSError) and error.errno is not None:
        why = os.strerror(error.errno).lower()
        if error.errno in NO_ROOM and error.filename is None:
            silence_stdout()
            screen.error(f"the output cannot be written: {why}")
            return
        if error.filename is not None:
            denied = isinstance(error, PermissionError)
            why = "it is not open to you" if denied else why
            hint = "set FLEETCTL_HOME to a directory of your own" if denied and _ours(error) else ""
            screen.error(f"`{os.fsdecode(error.filename)}` cannot be used: {why}", hint=hint)
            return
        if error.errno in NO_HANDLES:
            screen.error(f"this machine gives no more: {why}", hint="ulimit -a")
            return
    if isinstance(error, UnicodeEncodeError) and not all(map(_is_text, words)):
        wrong = next(word for word in words if not _is_text(word))
        screen.error(f"`{wrong}` is not UTF-8 text")
        return
    if damage := _damage():
        screen.error(str(damage), hint=damage.hint)
        return
    screen.error(
        f"fleetctl has a bug: {type(error).__name__}; the details are in `{keep_traceback(error)}`",
        hint="`fleetctl bundle` packs them and what else a report needs, without secrets",
    )


def _ours(error: OSError) -> bool:
    """Whether it speaks of something in the state directory."""
    from fleetctl.common.home import home

    try:
        return os.fsdecode(error.filename).startswith(str(home()))
    except FleetctlError:
        return False


def _damage() -> FleetctlError | None:
    """What is wrong with the store, when it may well be the reason: a broken page looks like a bug
    to whoever reads it. None when all is well, or when nobody can tell.
    """
    import sqlite3

    from fleetctl.common.home import STATE_DB, home
    from fleetctl.stores.damage import damaged
    from fleetctl.stores.errors import primary_code

    try:
        path = home() / STATE_DB
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
    return None if found == "ok" else damaged(path, " ".join(found.split()))


def _is_text(word: str) -> bool:
    """False for what the command line held that is not UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in word)


def keep_traceback(error: BaseException) -> str:
    """Write the traceback to a new private file; its path, or a word when nothing can be written.

    Locals are left out: they may hold secrets.
    """
    text = "".join(traceback.format_exception(error))
    name = f"crash-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.log"
    for folder in _folders():
        path = folder / name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", errors="backslashreplace") as log:
                log.write(text)
        except OSError:
            continue  # the next folder may be writable; the last resort is the word below
        return str(path)
    return "nowhere: no folder could be written"


def _folders() -> list[Path]:
    from fleetctl.common.home import home

    try:
        return [home() / CRASHES, Path(tempfile.gettempdir())]
    except (FleetctlError, OSError):
        return []  # nowhere to write is what the caller then says

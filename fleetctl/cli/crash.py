"""Where the traceback of a bug of ours goes. Called by main alone, loaded only then."""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from pathlib import Path


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
        except OSError:
            continue  # the next folder may be writable; the last resort is the word below
        with os.fdopen(descriptor, "w", errors="backslashreplace") as log:
            log.write(text)
        return str(path)
    return "nowhere: no folder could be written"


def _folders() -> list[Path]:
    from fleetctl.home import home

    return [home() / "crashes", Path(tempfile.gettempdir())]

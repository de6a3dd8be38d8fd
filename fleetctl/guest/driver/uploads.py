"""Files that the host sends over the line, written below the volume's root.

Part of the guest; used by the driver, between executions.
"""

from __future__ import annotations

import base64
import os
from typing import Any

from fleetctl.guest.task.volumes import write_whole

COPY_BYTES = 1 << 20


class Uploads:
    """Writes the host's files. root: the volume's path; "" when the session has none."""

    def __init__(self, root: str) -> None:
        self._root = root
        # Beside the volume: not every volume can go on with a file that was closed.
        self._spool: Any = None

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._place(path))

    def put(self, message: dict[str, Any]) -> None:
        """Writes one piece of a file: {"path", "data": base64, "first", "last"}. The last piece
        names the file, so that readers see all or none. Raises OSError or ValueError.
        """
        real = self._place(message["path"])
        if message["first"]:
            import tempfile  # a session without uploads starts sooner without it

            self._spool = tempfile.TemporaryFile()
        self._spool.write(base64.b64decode(message["data"]))
        if message["last"]:
            write_whole(real, self._copy)
            self._spool = None

    def _copy(self, file: Any) -> None:
        self._spool.seek(0)
        while data := self._spool.read(COPY_BYTES):
            file.write(data)

    def _place(self, path: str) -> str:
        top = os.path.realpath(self._root)
        real = os.path.realpath(os.path.join(top, path.lstrip("/")))
        if not self._root or not real.startswith(top + os.sep):
            raise ValueError(f"`{path}` is not a path inside of the volume")
        return real

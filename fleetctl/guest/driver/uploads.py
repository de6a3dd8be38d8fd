"""Files that the host sends over the line, written below the volume's root.

Part of the guest; used by the driver, between executions.
"""

from __future__ import annotations

import base64
import os
from typing import Any


class Uploads:
    """root: where the volume is; "" when the session has none."""

    def __init__(self, root: str) -> None:
        self._root = root

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._place(path))

    def put(self, message: dict[str, Any]) -> None:
        """One piece of a file: {"path", "data": base64, "first", "last"}. The last one names it, so
        that readers see a whole file or none. Raises OSError or ValueError.
        """
        real = self._place(message["path"])
        partial = f"{real}.uploading-{os.getpid()}"
        os.makedirs(os.path.dirname(real), exist_ok=True)
        with open(partial, "wb" if message["first"] else "ab") as file:
            file.write(base64.b64decode(message["data"]))
            if message["last"]:
                file.flush()
                os.fsync(file.fileno())
        if message["last"]:
            os.replace(partial, real)

    def _place(self, path: str) -> str:
        top = os.path.realpath(self._root)
        real = os.path.realpath(os.path.join(top, path.lstrip("/")))
        if not self._root or not real.startswith(top + os.sep):
            raise ValueError(f"`{path}` is not a path inside of the volume")
        return real

"""Runs of an open sandbox over one stream. Called by `attach --more`, and as the verb `turns` where
commands get no environment.

Each is a line of JSON on stdin: {"run", "order", "secrets"}. It begins and is followed as if it had
an `attach` of its own, which would cost two round trips and the start of an interpreter.
"""

from __future__ import annotations

import os

from fleetctl.guest.remote.verbs.attach import attach
from fleetctl.guest.task.text import compact, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

READ_BYTES = 1024 * 1024


def attach_in_turn() -> int:
    """Serves requests until stdin ends; returns the exit code. A request that is cut off begins no
    run.
    """
    rest = b""
    code = 0
    while code == 0:
        request, rest = _read_request(rest)
        if request is None:
            break
        os.environ.update(request["secrets"])
        code = attach(request["run"], (0, 0, {}, 0), compact(request["order"]))
    return code


def _read_request(rest: bytes) -> tuple[Optional[dict[str, Any]], bytes]:
    """Returns (the next request, the bytes after it)."""
    parts = [rest]
    while b"\n" not in parts[-1]:
        parts.append(os.read(0, READ_BYTES))
        if not parts[-1]:
            return None, b""
    line, _, rest = b"".join(parts).partition(b"\n")
    return parse(line.decode()), rest

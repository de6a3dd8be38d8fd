"""Selects the files that are shipped with an order for programs to import, and encodes the order
for its way to a guest.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fleetctl.guest.posix.order import posix_order

_HERE = Path(__file__).parents[1] / "library"
_CHECKPOINTS = "fleetctl_checkpoint.py"
_STACKS = "sitecustomize.py"
_MIRROR = "fleetctl_mirror.py"
_MODELS = tuple(
    f"fleetctl_llm{part}.py" for part in ("", "_line", "_rlm", "_queries", "_budget", "_costs")
)


def read_library(
    *,
    checkpoints: bool = False,
    stacks: bool = False,
    mirror: bool = False,
    models: bool = False,
) -> dict[str, str]:
    """Returns texts by file name. checkpoints: with the helper that saves them; stacks: with the
    one that shows where a process hangs; mirror: with the one that copies checkpoints; models: with
    the one that calls model endpoints.
    """
    names = (
        *([_CHECKPOINTS] if checkpoints else []),
        *([_STACKS] if stacks else []),
        *([_MIRROR] if mirror else []),
        *(_MODELS if models else []),
    )
    return {name: _read_text(name) for name in names}


@cache
def _read_text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def order_argument(order: Mapping[str, Any], *, posix: bool) -> str:
    """Returns the argument of `attach --order`. posix: for the guest without Python."""
    if posix:
        return posix_order(order)
    return base64.b64encode(order_input(order, posix=False)).decode()


def order_input(order: Mapping[str, Any], *, posix: bool) -> bytes:
    """Returns the stdin of `attach --order -`."""
    text = posix_order(order) if posix else json.dumps(order, separators=(",", ":"))
    return text.encode()

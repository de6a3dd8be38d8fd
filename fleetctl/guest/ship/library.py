"""Selects the files that are shipped with an order for programs to import. Called by providers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_HERE = Path(__file__).parents[1] / "library"
_CHECKPOINTS = "fleetctl_checkpoint.py"
_STACKS = "sitecustomize.py"
_MIRROR = "fleetctl_mirror.py"
_MODELS = tuple(f"fleetctl_llm{part}.py" for part in ("", "_line", "_rlm", "_budget", "_costs"))


def library(
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

"""What is shipped with an order for programs to import. Called by providers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_HERE = Path(__file__).parents[1] / "library"
_CHECKPOINTS, _STACKS = "fleetctl_checkpoint.py", "sitecustomize.py"
_MIRROR = "fleetctl_mirror.py"
_MODELS = tuple(f"fleetctl_llm{part}.py" for part in ("", "_line", "_rlm", "_budget", "_costs"))


def library(
    *, checkpoints: bool = False, stacks: bool = False, mirror: bool = False, models: bool = False
) -> dict[str, str]:
    """Texts by file name. checkpoints: with what saves them; stacks: with what lets a process that
    hangs say where; mirror: with what copies checkpoints; models: with what asks model endpoints.
    """
    names = (
        *([_CHECKPOINTS] if checkpoints else []),
        *([_STACKS] if stacks else []),
        *([_MIRROR] if mirror else []),
        *(_MODELS if models else []),
    )
    return {name: _text(name) for name in names}


@cache
def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")

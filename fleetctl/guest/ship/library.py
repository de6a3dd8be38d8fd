"""What is shipped with an order for programs to import. Called by providers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_HERE = Path(__file__).parents[1] / "library"
_FILES = ("fleetctl_checkpoint.py",)


@cache
def library() -> dict[str, str]:
    """Texts by file name."""
    return {name: (_HERE / name).read_text(encoding="utf-8") for name in _FILES}

"""How the files of a node are called beside those of its run: node 0 has the run's own."""

from __future__ import annotations

import re


def node_name(run: str, node: int) -> str:
    return f"{run}.n{node}" if node else run


def is_node_name(name: str) -> bool:
    """Whether it is that of a node beside the first; no run is called so."""
    return re.search(r"\.n[1-9][0-9]*$", name) is not None

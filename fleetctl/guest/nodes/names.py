"""How the files of a node are called beside those of its run: node 0 has the run's own."""

from __future__ import annotations

import re


def node_name(run: str, node: int) -> str:
    return f"{run}.n{node}" if node else run


def whole_name(name: str) -> str:
    """Of the run, from that of any of its nodes."""
    return name.rpartition(".n")[0] if is_node_name(name) else name


def node_of(name: str) -> int:
    """Which node's it is; 0 of a run's own."""
    return int(name.rpartition(".n")[2]) if is_node_name(name) else 0


def is_node_name(name: str) -> bool:
    """Whether it is that of a node beside the first; no run is called so."""
    return re.search(r"\.n[1-9][0-9]*$", name) is not None

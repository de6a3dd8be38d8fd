"""Names the files of a node beside those of its run: node 0 has the run's own."""

from __future__ import annotations

import re


def node_name(run: str, node: int) -> str:
    if node:
        return f"{run}.n{node}"
    return run


def whole_name(name: str) -> str:
    """Returns the run's name, given that of any of its nodes."""
    if is_node_name(name):
        return name.rpartition(".n")[0]
    return name


def node_of(name: str) -> int:
    """Returns the rank of a file's node; 0 for a run's own."""
    if is_node_name(name):
        return int(name.rpartition(".n")[2])
    return 0


def is_node_name(name: str) -> bool:
    """Returns whether the name is a further node's; no run has such a name."""
    return re.search(r"\.n[1-9][0-9]*$", name) is not None

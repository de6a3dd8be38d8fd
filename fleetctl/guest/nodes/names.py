"""How the files of a node are called beside those of its run: node 0 has the run's own."""

from __future__ import annotations


def node_name(run: str, node: int) -> str:
    return f"{run}.n{node}" if node else run

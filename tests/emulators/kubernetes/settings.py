"""How an emulated cluster is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class NodeSpec:
    """Sizes are quantities. gpus: of nvidia.com/gpu."""

    name: str
    cpu: str = "32"
    memory: str = "128Gi"
    gpus: int = 0
    pods: int = 250
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class Settings:
    """namespaces: made at the start, beside those that every cluster has. job_backoff_s: before a
    failed pod of a Job is replaced; 10 in real life. eviction_s: how long pods stay bound to a node
    that is lost; 300 in real life. images: by pattern, {entrypoint, env, files}; missing_images:
    patterns of what no registry has, with what pulling says ("" for the usual words).
    storage_class: the default one, whose claims are bound to directories; "" for none. kueue:
    whether it is installed, with no room in any queue.
    """

    nodes: list[NodeSpec] = field(
        default_factory=lambda: [NodeSpec(f"worker-{it}") for it in (1, 2, 3)]
    )
    namespaces: list[str] = field(default_factory=list)
    job_backoff_s: float = 10.0
    restart_scale: float = 1.0
    retry_s: float = 1.0
    eviction_s: float = 300.0
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    missing_images: dict[str, str] = field(default_factory=dict)
    storage_class: str = "standard"
    kueue: bool = False

    @classmethod
    def of(cls, told: dict[str, Any]) -> Settings:
        """Raises TypeError for a name that is none."""
        nodes = [NodeSpec(**it) for it in told["nodes"]] if "nodes" in told else None
        found = cls(**{k: v for k, v in told.items() if k != "nodes"})
        if nodes is not None:
            found.nodes = nodes
        return found

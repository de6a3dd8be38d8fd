"""Sets the variables of each node of several that torchrun, accelerate, Lightning, JAX and plain
scripts read. Pure.

A single node gets no such variable, or plain scripts would become distributed by accident.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def variables(
    rank: int,
    addresses: Sequence[str],
    port: int,
    procs: int,
    interface: str = "",
) -> dict[str, str]:
    """Returns the variables of node `rank`. addresses: of all nodes, by rank, as their peers reach
    them; port: a free one of node 0; procs: processes of a launcher on each node; interface: the
    one that leads to the peers, where libraries would not find it.
    """
    count = len(addresses)
    if count == 1:
        return {}
    head = addresses[0]
    values = {
        "MASTER_ADDR": head,
        "MASTER_PORT": str(port),
        "NODE_RANK": str(rank),
        # As in pods of an Indexed Job: programs written for such pods read their rank there.
        "JOB_COMPLETION_INDEX": str(rank),
        "NNODES": str(count),
        "FLEETCTL_NODE_RANK": str(rank),
        "FLEETCTL_NODES": str(count),
        "FLEETCTL_NODE_IPS": "\n".join(addresses),
        "PET_NNODES": str(count),
        "PET_NPROC_PER_NODE": str(procs),
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": head,
        "PET_MASTER_PORT": str(port),
        # torchrun's own restarts do not go together with the static meeting of several nodes.
        "PET_MAX_RESTARTS": "0",
        "JAX_COORDINATOR_ADDRESS": f"[{head}]:{port}" if ":" in head else f"{head}:{port}",
    }
    if procs == 1:
        # For `python train.py` without a launcher.
        values.update(
            RANK=str(rank),
            WORLD_SIZE=str(count),
            LOCAL_RANK="0",
            LOCAL_WORLD_SIZE="1",
        )
    return {**values, **dict.fromkeys(INTERFACES if interface else (), interface)}

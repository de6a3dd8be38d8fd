"""Splits the order of a run into the orders of its nodes' guests."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.guest.nodes.variables import variables
from fleetctl.providers.remote.gangs.node_gang import NodeGang


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the nodes of an attempt meet. head: the name of node 0 for its peers; port: of it;
    interface: the network that joins them, "" where libraries find it.
    """

    head: str
    port: int
    interface: str = ""


def node_order(
    order: Mapping[str, Any],
    rank: int,
    gang: NodeGang,
    *,
    meeting: Meeting,
    procs: int,
    token: str,
) -> dict[str, object]:
    """order: of the run. procs: processes of a launcher on each node; token: lets the nodes of a
    Ray cluster join.
    """
    head, port = meeting.head, meeting.port
    met = variables(rank, gang.addresses, port, procs, meeting.interface)
    met.update(
        MASTER_ADDR=head,
        PET_MASTER_ADDR=head,
        JAX_COORDINATOR_ADDRESS=f"[{head}]:{port}" if ":" in head else f"{head}:{port}",
    )
    made = {**order, "env": {**order["env"], **met}, "reusable": False}
    if order["ray"]:
        ray = {"rank": rank, "addresses": gang.addresses, "token": token}
        made["ray"] = {**order["ray"], **ray}
    if rank:  # node 0 speaks for all: its time, its metrics, its outputs
        made.update(
            rank=rank,
            timeout_s=None,
            wandb=None,
            metrics=None,
        )
    else:
        made["table"] = gang.table
    return made


def token_of(path: Path) -> str:
    """The same for all nodes of an attempt, also where a controller was restarted between them; in
    a file that only its owner reads, and in no object of the cluster.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return path.read_text("ascii")
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(token := secrets.token_hex(32))
    return token

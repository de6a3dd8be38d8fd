"""Tracks the nodes of an attempt: the order of each node, its readiness and its end.

Made and called by supervise.py, which forks and ends the processes. All nodes are forked and
wait; the last ready node lets all begin.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress
from typing import Any, Generic, Optional, Protocol, TypeVar

from fleetctl.guest.nodes.gang import (
    Stragglers,
    build_group_variables,
    build_node_variables,
    combine_ends,
    node_name,
    state_of,
)
from fleetctl.guest.nodes.ray import build_ray_variables
from fleetctl.guest.task.text import encode_compact

READY_S = 600.0  # for all nodes to be made, copies of the source included
FIRST_ADDRESS = 2  # 127.0.0.1 is replaced by Ray with the address of the machine
# Ended for what another node did, or because node 0 was done.
CONSEQUENCE = "NodeEnded"
OF_ONE_NODE = frozenset({"OOMKilled", "TooManyProcesses"})


class GangMember(Protocol):
    """The sandbox of a node. channel: on which its process waits for the word to begin."""

    rank: int
    channel: Optional[int]


M = TypeVar("M", bound=GangMember)


class LocalGang(Generic[M]):
    """The nodes of an attempt on this machine. order: of the whole attempt; `nodes`, `procs` and
    `gpus` (devices of all nodes) are in it.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.count: int = order["nodes"]
        self.members: list[M] = []
        self.ends: list[Optional[dict[str, Any]]] = [None] * self.count
        self.result = ""  # of node 0, as a line of the journal
        self.begun = False
        self.stragglers = Stragglers()
        self._ready: set[int] = set()
        self._groups = order.get("groups") or []
        self.addresses = self._groups[0]["hosts"] if self._groups else _node_addresses(self.count)
        self._held = [_free_port()]
        self._ray = self._ray_of() if order.get("ray") else None
        self._told_of_ray = build_ray_variables(self._ray) if self._ray is not None else {}

    def order_of(self, rank: int) -> dict[str, Any]:
        """Returns the order of a node. Raises OSError."""
        order, each = self.order, len(self.order["gpus"]) // self.count
        rendezvous = build_node_variables(
            rank,
            self.addresses,
            self.port,
            order["procs"],
            _loopback_name(),
        )
        made = {
            **order,
            "run": node_name(order["run"], rank),
            "sandbox": node_name(order["sandbox"], rank),
            "gpus": order["gpus"][rank * each : (rank + 1) * each],
            "variables": {**order.get("variables", {}), **rendezvous, "FLEETCTL_RUN": order["run"]},
            "waits": True,
            "rank": rank,
            "reusable": False,
        }
        if self._groups:
            own = build_group_variables(self._groups[0], rank, self._groups)
            made["variables"] = {**made["variables"], **own}
        if self._ray is not None:
            made["ray"] = {**self._ray, "rank": rank, "gpus": each}
            made["variables"] = {**made["variables"], **self._told_of_ray}
        if rank:
            # Node 0 speaks for all: its time, its metrics, and whether it gets on, see `rank`.
            made.update(
                timeout_s=None,
                wandb=None,
                metrics=None,
            )
        return made

    def _ray_of(self) -> dict[str, Any]:
        """Returns the order for guest/nodes/ray.py, of any node. Two clusters on one machine share
        no port and no directory. Raises OSError.
        """
        asked = self.order["ray"]
        ports = [_free_port() for _ in range(3)]
        self._held += ports
        head, client, dashboard = map(_port_number, ports)
        head = asked["port"] or head
        return {
            "addresses": self.addresses,
            "port": head,
            "client_port": client,
            "dashboard_port": dashboard if asked["dashboard"] else None,
            "cpus": asked["cpus"],
            "memory": asked["memory"],
            "temp": f"/tmp/ray-{head}",  # Ray wants at most 45 bytes
        }

    @property
    def port(self) -> int:
        """A port that stays reserved until node 0 begins."""
        return _port_number(self._held[0])

    def is_ready(self, member: M) -> bool:
        """Notes that a node is ready; True when this was the last one."""
        self._ready.add(member.rank)
        return not self.begun and len(self._ready) == self.count

    def begin(self, resumed: Optional[dict[str, Any]]) -> None:
        """Lets all nodes go on at once. resumed: the step and the path of the checkpoint that node
        0 goes on from, as do the others.
        """
        self.begun = True
        self.close()
        word = (encode_compact(resumed) + "\n").encode()
        for member in self.members:
            if member.channel is not None:
                with suppress(BrokenPipeError):  # it has ended since, which is reported next
                    os.write(member.channel, word)

    def close(self) -> None:
        for port in self._held:
            port.close()

    def ended(
        self,
        member: M,
        why: str,
        result: str,
        ended: dict[str, Any],
    ) -> None:
        """Notes that a node has ended. why: the reason for which we ended it, or ""."""
        end = self.ends[member.rank] = dict(ended)
        if why == CONSEQUENCE:
            end["stopped"] = True
        elif why and why not in OF_ONE_NODE:
            end["outside"] = True
        if member.rank == 0:
            self.result = result

    @property
    def living(self) -> list[M]:
        return [it for it in self.members if self.ends[it.rank] is None]

    def decides(self, member: M) -> bool:
        """Returns whether the end of this node ends the others: it failed."""
        end = self.ends[member.rank]
        return end is not None and not end["ok"]

    def end(self) -> tuple[str, dict[str, Any]]:
        """Returns (the result's line, the fields of the end record), once all nodes have ended."""
        ended = combine_ends([it for it in self.ends if it is not None])
        ended["at"] = time.time()
        return self.result if ended["ok"] else "", ended

    def table(self) -> list[dict[str, Any]]:
        """Returns a row for each node, by rank."""
        return [
            {
                "state": state_of(end),
                "address": address,
                **({"reason": end["reason"], "exit": end["exit"]} if end is not None else {}),
            }
            for address, end in zip(self.addresses, self.ends)  # Python 3.9
        ]


def _node_addresses(count: int) -> list[str]:
    """Returns an address for each node. Elsewhere than on Linux the loopback has one address, and
    ports distinguish nodes.
    """
    if sys.platform != "linux":
        return ["127.0.0.1"] * count
    return [f"127.0.0.{FIRST_ADDRESS + rank}" for rank in range(count)]


def _loopback_name() -> str:
    if sys.platform == "linux":
        return "lo"
    return "lo0"


def _free_port() -> socket.socket:
    """Bound, so that no other attempt is given it. Raises OSError."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("", 0))
    except OSError:
        made.close()
        raise
    return made


def _port_number(port: socket.socket) -> int:
    found: int = port.getsockname()[1]
    return found

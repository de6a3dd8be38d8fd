"""Nodes that are lost: what becomes of them, and of the pods on them."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.emulators.kubernetes.api.writes.deleting import Deletion, delete
from tests.emulators.kubernetes.api.writes.writing import Writer
from tests.emulators.kubernetes.nodes.kubelet import PODS, Kubelet
from tests.emulators.kubernetes.nodes.scheduler import NODES, disrupt, set_condition
from tests.emulators.kubernetes.store.objects import Entry, Event
from tests.emulators.kubernetes.store.times import now_text

Object = dict[str, Any]
UNREACHABLE = "node.kubernetes.io/unreachable"
TAINTED = "Taint manager: deleting due to NoExecute taint"
ORPHANED = "PodGC: node no longer exists"


class NodeLife:
    """eviction_s: how long pods are left on a lost node."""

    def __init__(self, writer: Writer, kubelet: Kubelet, *, eviction_s: float) -> None:
        self._writer, self._kubelet, self._eviction_s = writer, kubelet, eviction_s
        self._pods, self._nodes = writer.resources.get(*PODS), writer.resources.get(*NODES)
        writer.store.listeners.append(self._on_event)

    async def lose(self, name: str, *, processes_live: bool) -> None:
        await self._kubelet.lose(name, processes_live=processes_live)
        why = "Kubelet stopped posting node status."

        def change(node: Object) -> None:
            set_condition(node, "Ready", "Unknown", "NodeStatusUnknown", why)
            taints = [
                {"key": UNREACHABLE, "effect": it, "timeAdded": now_text()}
                for it in ("NoSchedule", "NoExecute")
            ]
            node["spec"] = {**node["spec"], "taints": [*node["spec"].get("taints", ()), *taints]}

        self._writer.change(self._nodes, "", name, change)
        for entry in self._on(name):
            self._writer.change(self._pods, *entry.place, _not_ready)
        loop = asyncio.get_running_loop()
        loop.call_later(self._eviction_s, self._evict, name)

    def find(self, name: str) -> None:
        def change(node: Object) -> None:
            ready = "kubelet is posting ready status"
            set_condition(node, "Ready", "True", "KubeletReady", ready)
            kept = [it for it in node["spec"].get("taints", ()) if it["key"] != UNREACHABLE]
            node["spec"] = {**node["spec"], "taints": kept}

        self._writer.change(self._nodes, "", name, change)
        self._kubelet.find(name)

    def _evict(self, name: str) -> None:
        if name not in self._kubelet.lost_nodes:
            return
        for entry in self._on(name):
            changed = self._writer.change(
                self._pods,
                *entry.place,
                lambda pod: disrupt(pod, "DeletionByTaintManager", TAINTED),
            )
            if changed is not None and not changed.object["metadata"].get("deletionTimestamp"):
                delete(self._writer, self._pods, changed, Deletion())

    def _on_event(self, event: Event) -> None:
        if event.key == NODES and event.kind == "DELETED":
            name = event.entry.place[1]
            asyncio.get_running_loop().call_soon(self._collect, name)

    def _collect(self, name: str) -> None:
        """Pods of a node that is no more end as failed, and go."""
        for entry in self._on(name):

            def change(pod: Object) -> None:
                disrupt(pod, "DeletionByPodGC", ORPHANED)
                if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                    pod["status"]["phase"] = "Failed"

            changed = self._writer.change(self._pods, *entry.place, change)
            if changed is not None:
                delete(self._writer, self._pods, changed, Deletion(grace_s=0))

    def _on(self, node: str) -> list[Entry]:
        every = self._writer.store.shelf(PODS).ordered()
        return [it for it in every if it.object["spec"].get("nodeName") == node]


def _not_ready(pod: Object) -> None:
    if pod.get("status", {}).get("phase") == "Running":
        set_condition(pod, "Ready", "False", "NodeNotReady", "")

"""What a test asks and orders beside the API: faults, nodes, the truth. It has a port of its own.

Each public coroutine or method of `Control` is a POST of its keyword arguments as JSON to its name.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict
from typing import Any

from aiohttp import web

from tests.emulators.kubernetes.cluster import Cluster
from tests.emulators.kubernetes.nodes.pod_runner import PodRunner
from tests.emulators.kubernetes.settings import NodeSpec

Object = dict[str, Any]


class Control:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def objects(self, plural: str, group: str = "", namespace: str | None = None) -> list[Object]:
        """As they are stored."""
        shelf = self._cluster.store.shelf((group, plural))
        return [it.object for it in shelf.ordered() if namespace in (None, it.place[0])]

    def runs(self) -> list[Object]:
        """Each container that was ever started, in order: {namespace, pod, uid, container, ...}."""
        return [asdict(it) for it in self._cluster.kubelet.runs]

    def processes(self) -> list[Object]:
        """The containers that live now."""
        return [
            {"namespace": it.place[0], "pod": it.place[1], "container": name, "pid": one.pid}
            for it in self._cluster.kubelet.runners.values()
            for name, one in it.containers.items()
            if one.running
        ]

    def requests(self) -> dict[str, int]:
        return self._cluster.server.requests

    def forget_requests(self) -> None:
        self._cluster.server.requests.clear()

    def fault(self, **told: Any) -> int:
        """See api/faulty.Fault; its number."""
        return self._cluster.faults.add(**told).id

    def faults(self) -> list[Object]:
        return self._cluster.faults.told()

    def remove_faults(self, number: int | None = None) -> None:
        self._cluster.faults.remove(number)

    def cut_watches(self, plural: str = "*") -> int:
        return self._cluster.server.cut_watches(plural)

    def cut_streams(self, name: str) -> int:
        """Of commands in a pod."""
        return self._cluster.server.cut_streams(name)

    def compact(self) -> None:
        """Watches that resume from before now meet 410."""
        self._cluster.store.compact()

    def away(self, on: bool) -> None:
        """The server is down for everybody: connections are cut, streams too."""
        self._cluster.server.away = on
        if on:
            self._cluster.server.cut_watches()

    def pause(self, controller: str, on: bool = True) -> None:
        """controller: jobs, garbage, scheduler, kubelet, basics or definitions."""
        getattr(self._cluster, controller).queue.pause(on)

    def config_for(self, user: str, groups: list[str], namespace: str) -> Object:
        return self._cluster.config_for(user, tuple(groups), namespace=namespace)

    def account_config(self, namespace: str, name: str) -> Object:
        return self._cluster.account_config(namespace, name)

    def revoke(self, user: str) -> None:
        self._cluster.users.revoke(user)

    def missing_images(self, images: dict[str, str]) -> None:
        self._cluster.kubelet.missing = images

    def add_node(self, **told: Any) -> None:
        self._cluster.add_node(NodeSpec(**told))

    def admit(self, queue: str, on: bool = True) -> None:
        """Kueue has room in a queue from now on."""
        self._cluster.kueue.admit(queue, on=on)

    def evict(self, namespace: str, name: str, message: str = "") -> None:
        """By the kubelet, as a node under pressure does it: the pod stays, failed."""
        text = message or (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 61Mi. "
        )
        self._runner(namespace, name).end("Evicted", text)

    async def kill(
        self, namespace: str, name: str, container: str = "", reason: str = "OOMKilled"
    ) -> None:
        """SIGKILL for a container, as for one that has used up its memory."""
        runner = self._runner(namespace, name)
        found = container or next(iter(runner.containers))
        await runner.containers[found].kill(reason=reason)

    async def lose_node(self, name: str, processes_live: bool = False) -> None:
        await self._cluster.node_life.lose(name, processes_live=processes_live)

    def find_node(self, name: str) -> None:
        self._cluster.node_life.find(name)

    def _runner(self, namespace: str, name: str) -> PodRunner:
        found = self._cluster.kubelet.runner(namespace, name)
        if found is None:
            raise KeyError(f"no pod {namespace}/{name} has been started")
        return found


async def serve(cluster: Cluster) -> tuple[web.ServerRunner, int]:
    """(what to clean up, port on loopback)."""
    control = Control(cluster)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        name = request.path.strip("/")
        told = json.loads(await request.read() or b"{}")
        try:
            if name.startswith("_"):
                raise KeyError(name)
            found = getattr(control, name)(**told)
            if inspect.isawaitable(found):
                found = await found
        except (KeyError, TypeError, AttributeError) as error:
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)
        return web.json_response({"result": found})

    runner = web.ServerRunner(web.Server(handle, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, int(runner.addresses[0][1])

"""What is asked of pods beside their objects: logs, eviction, binding."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from tests.emulators.kubernetes.api.call import TRUE, Call
from tests.emulators.kubernetes.api.writes.bodies import parsed
from tests.emulators.kubernetes.api.writes.deleting import delete, deletion_of
from tests.emulators.kubernetes.api.writes.writing import Writer
from tests.emulators.kubernetes.nodes import logs
from tests.emulators.kubernetes.nodes.containers import Container
from tests.emulators.kubernetes.nodes.kubelet import PODS, Kubelet
from tests.emulators.kubernetes.nodes.scheduler import disrupt
from tests.emulators.kubernetes.store.errors import ApiError, not_found
from tests.emulators.kubernetes.store.objects import dumps

Object = dict[str, Any]
EVICTED = "Eviction API: evicting"


def pod_of(kubelet: Kubelet, call: Call) -> Object:
    entry = kubelet.store.get(PODS, call.namespace, call.name)
    if entry is None:
        raise not_found("pods", "", call.name)
    return entry.object


def container_named(pod: Object, name: str, pod_name: str) -> str:
    """Raises ApiError 400 where it is not clear which one is meant."""
    spec = pod["spec"]
    names = [it["name"] for it in spec["containers"]]
    others = [it["name"] for it in spec.get("initContainers", ())]
    if not name:
        if len(names) > 1 or not names:
            told = f"a container name must be specified for pod {pod_name}, choose one of: "
            inits = f" or one of the init containers: [{' '.join(others)}]" if others else ""
            raise ApiError(400, f"{told}[{' '.join(names)}]{inits}")
        return str(names[0])
    if name not in names + others:
        raise ApiError(400, f"container {name} is not valid for pod {pod_name}")
    return name


class PodLogs:
    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    async def serve(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        pod, wish = pod_of(self._kubelet, call), logs.wish_of(call.query)
        container = self._container(call, pod)
        found, offset = logs.lines(container.log.path, 0, wish, tail=True)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        if not wish.follow:
            data = b"".join(found)
            response.content_length = len(data[: wish.bytes_max])
            await response.prepare(request)
            await response.write(data[: wish.bytes_max])
            await response.write_eof()
            return response
        await response.prepare(request)
        if found:
            await response.write(b"".join(found))
        async for _ in container.log.changes():
            found, offset = logs.lines(container.log.path, offset, wish, tail=False)
            if found:
                await response.write(b"".join(found))
        found, offset = logs.lines(container.log.path, offset, wish, tail=False)
        if found:
            await response.write(b"".join(found))
        await response.write_eof()
        return response

    def _container(self, call: Call, pod: Object) -> Container:
        name = container_named(pod, call.query.get("container", ""), call.name)
        if pod["spec"].get("nodeName", "") in self._kubelet.lost_nodes:
            kubelet = "127.0.0.1:10250"
            url = f"https://{kubelet}/containerLogs/{call.namespace}/{call.name}"
            message = f'Get "{url}": dial tcp {kubelet}: i/o timeout'
            raise ApiError(500, message)
        runner = self._kubelet.runner(call.namespace, call.name)
        if call.query.get("previous") in TRUE:
            before = runner.previous.get(name) if runner else None
            if before is None:
                message = f'previous terminated container "{name}" in pod "{call.name}" not found'
                raise ApiError(400, message)
            return before
        found = runner.containers.get(name) if runner else None
        if found is None:
            reason = runner.status.reason_of(name) if runner else "ContainerCreating"
            doing = "trying and failing to pull image" if "Pull" in reason else reason
            message = f'container "{name}" in pod "{call.name}" is waiting to start: {doing}'
            raise ApiError(400, message)
        return found


class Evictions:
    """By the API, as `kubectl drain` asks for them."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._pods = writer.resources.get(*PODS)

    def evict(self, call: Call) -> tuple[int, bytes]:
        told = parsed(call)
        current = self._writer.store.get(PODS, call.namespace, call.name)
        if current is None:
            raise not_found("pods", "", call.name)
        changed = self._writer.change(
            self._pods,
            call.namespace,
            call.name,
            lambda pod: disrupt(pod, "EvictionByEvictionAPI", EVICTED),
        )
        assert changed is not None
        how = deletion_of(told.get("deleteOptions") or {}, {}, self._pods)
        delete(self._writer, self._pods, changed, how)
        return 201, dumps({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201})

    def bind(self, call: Call) -> tuple[int, bytes]:
        told = parsed(call)
        node = (told.get("target") or {}).get("name")
        current = self._writer.store.get(PODS, call.namespace, call.name)
        if current is None:
            raise not_found("pods", "", call.name)
        if current.object["spec"].get("nodeName"):
            message = f"pod {call.name} is already assigned to node"
            raise ApiError(
                409, f'Operation cannot be fulfilled on pods/binding "{call.name}": {message}'
            )

        def change(pod: Object) -> None:
            pod["spec"] = {**pod["spec"], "nodeName": node}

        self._writer.change(self._pods, call.namespace, call.name, change)
        return 201, dumps({"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201})

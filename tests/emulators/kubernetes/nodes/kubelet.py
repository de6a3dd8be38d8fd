"""The nodes' agents in one: runs the pods that are bound to nodes, and ends them."""

from __future__ import annotations

import asyncio
import fnmatch
import ipaddress
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.emulators.kubernetes.api.writes.deleting import Deletion, delete
from tests.emulators.kubernetes.api.writes.writing import Writer
from tests.emulators.kubernetes.controllers.working import Queue, Recorder
from tests.emulators.kubernetes.nodes.names import Names
from tests.emulators.kubernetes.nodes.pod_runner import PodRunner
from tests.emulators.kubernetes.store.objects import Event

Object = dict[str, Any]
PODS = ("", "pods")
Where = tuple[str, str]
# All of 127/8 is this machine; clusters of processes side by side have networks of their own.
FIRST_IP = ipaddress.IPv4Address("127.10.0.1") + 2**16 * (os.getpid() % 80)


@dataclass(frozen=True, slots=True)
class Image:
    """What an image brings: a command, variables, and files as host paths, read-only."""

    entrypoint: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """A container that was started."""

    namespace: str
    pod: str
    uid: str
    container: str
    restarts: int
    node: str
    at_s: float


class Kubelet:
    """missing: patterns of images that no registry has. Times in seconds."""

    def __init__(self, writer: Writer, recorder: Recorder, directory: Path) -> None:
        self._writer, self._recorder = writer, recorder
        self.store, self.directory = writer.store, directory
        self.claims = directory / "claims"
        self.boxes = directory / "boxes"
        self._pods = writer.resources.get(*PODS)
        self.runners: dict[str, PodRunner] = {}  # by uid
        self._by_place: dict[Where, PodRunner] = {}
        self._gone: set[str] = set()  # uids whose end is on its way
        self.runs: list[Run] = []
        self.lost_nodes: dict[str, bool] = {}  # name: whether its processes go on
        self._ips: dict[str, str] = {}
        self.names = Names(writer.store, directory / "hosts", address=self.pod_ip)
        self.images: dict[str, Image] = {}
        self.missing: dict[str, str] = {}
        self.retry_s, self.backoff_scale = 1.0, 1.0
        self.variables: dict[str, str] = {}
        self.account_token: Callable[[Object], str] = lambda _pod: ""
        self._kept: set[asyncio.Future[Any]] = set()
        self.queue: Queue[Where] = Queue(self._reconcile)
        self.store.listeners.append(self._on_event)

    def runner(self, namespace: str, name: str) -> PodRunner | None:
        return self._by_place.get((namespace, name))

    def pod_ip(self, uid: str) -> str:
        if uid not in self._ips:
            self._ips[uid] = str(FIRST_IP + len(self._ips))
        return self._ips[uid]

    def account_place(self, pod: Object) -> Path:
        namespace, name = pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]
        entry = self.store.get(("", "serviceaccounts"), namespace, name)
        uid = entry.object["metadata"]["uid"] if entry is not None else pod["metadata"]["uid"]
        return self.directory / "accounts" / str(uid)

    def environment(self) -> dict[str, str]:
        return self.variables

    def image(self, name: str) -> Image:
        for pattern, one in self.images.items():
            if fnmatch.fnmatchcase(name, pattern):
                return one
        return Image()

    def pull_problem(self, name: str) -> str:
        """Why it cannot be pulled; "" when it can."""
        for pattern, why in self.missing.items():
            if fnmatch.fnmatchcase(name, pattern):
                return why or (
                    f'rpc error: code = NotFound desc = failed to pull and unpack image "{name}":'
                    f' failed to resolve reference "{name}": {name}: not found'
                )
        return ""

    def _on_event(self, event: Event) -> None:
        if event.key == PODS and event.entry.object["spec"].get("nodeName"):
            if event.kind == "DELETED":
                runner = self.runners.get(event.entry.object["metadata"]["uid"])
                if runner is not None:
                    self._keep(self._forget(runner))
                return
            self.queue.add(event.entry.place)

    def _reconcile(self, where: Where) -> None:
        entry = self.store.get(PODS, *where)
        if entry is None:
            return
        pod = entry.object
        metadata, node = pod["metadata"], pod["spec"]["nodeName"]
        if node in self.lost_nodes:
            return
        runner = self.runners.get(metadata["uid"])
        over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if runner is None:
            if metadata.get("deletionTimestamp"):
                delete(self._writer, self._pods, entry, Deletion(grace_s=0))
            elif not over:
                self._begin(pod, where)
            return
        if metadata.get("deletionTimestamp") and metadata["uid"] not in self._gone:
            self._gone.add(metadata["uid"])
            self._keep(self._end(runner, float(metadata.get("deletionGracePeriodSeconds", 30))))

    def _begin(self, pod: Object, where: Where) -> None:
        runner = PodRunner(self, pod)
        self.runners[runner.uid] = self._by_place[where] = runner
        runner.start()

    async def _end(self, runner: PodRunner, grace_s: float) -> None:
        """Deleted: stop it, and say when nothing of it is left."""
        runner.stop(grace_s)
        await runner.finished()
        entry = self.store.get(PODS, *runner.place)
        if entry is not None and entry.object["metadata"]["uid"] == runner.uid:
            delete(self._writer, self._pods, entry, Deletion(grace_s=0))

    async def _forget(self, runner: PodRunner) -> None:
        """The object is gone, by force perhaps: so is what runs."""
        runner.status.silent = True
        runner.stop(0)
        await runner.finished()
        self.runners.pop(runner.uid, None)
        self._gone.discard(runner.uid)
        if self._by_place.get(runner.place) is runner:
            del self._by_place[runner.place]
        await asyncio.to_thread(runner.remove)

    def ended(self, runner: PodRunner) -> None:
        if runner.pod["spec"]["nodeName"] not in self.lost_nodes:
            self.queue.add(runner.place)

    def post(self, runner: PodRunner) -> None:
        if runner.pod["spec"]["nodeName"] in self.lost_nodes:
            return

        def change(pod: Object) -> None:
            if pod["metadata"]["uid"] == runner.uid:
                pod["status"] = runner.status.written(pod.get("status") or {}, "127.0.0.1")

        self._writer.change(self._pods, *runner.place, change)

    def count(self, runner: PodRunner, container: str, restarts: int) -> None:
        node = runner.pod["spec"]["nodeName"]
        namespace, name = runner.place
        run = Run(namespace, name, runner.uid, container, restarts, node, time.time())
        self.runs.append(run)

    def tell(self, pod: Object, reason: str, message: str, *, warning: bool = False) -> None:
        host = pod["spec"]["nodeName"]
        self._recorder.tell(pod, reason, message, source="kubelet", warning=warning, host=host)

    async def lose(self, node: str, *, processes_live: bool) -> None:
        """A node that nobody hears of any more; without its processes when the machine is gone."""
        self.lost_nodes[node] = processes_live
        if not processes_live:
            for runner in list(self.runners.values()):
                if runner.pod["spec"]["nodeName"] == node:
                    await runner.vanish()

    def find(self, node: str) -> None:
        """The node is heard of again: what was deleted meanwhile ends now."""
        self.lost_nodes.pop(node, None)
        for runner in list(self.runners.values()):
            if runner.pod["spec"]["nodeName"] == node:
                runner.status.silent = False
                self.post(runner)
        # Also those that were bound to it meanwhile.
        for entry in self.store.shelf(PODS).ordered():
            if entry.object["spec"].get("nodeName") == node:
                self.queue.add(entry.place)

    async def close(self) -> None:
        for runner in list(self.runners.values()):
            await runner.vanish()

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

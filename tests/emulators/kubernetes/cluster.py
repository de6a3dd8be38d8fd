"""A whole cluster in one event loop: API server, controllers, scheduler and nodes.

async with Cluster(directory, Settings()) as cluster:
    ...  # cluster.url, cluster.kubeconfig
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from aiohttp import web

from tests.emulators.boxes import nursery_here
from tests.emulators.kubernetes.access.certificates import (
    kubeconfig,
    server_context,
    write_kubeconfig,
)
from tests.emulators.kubernetes.access.rbac import DEFAULTS, Rbac
from tests.emulators.kubernetes.access.users import ACCOUNTS, ADMIN, Users
from tests.emulators.kubernetes.api.call import Call
from tests.emulators.kubernetes.api.faulty import Faults
from tests.emulators.kubernetes.api.scaling import Scaling
from tests.emulators.kubernetes.api.server import ApiServer, request_factory
from tests.emulators.kubernetes.api.verbs import Verbs
from tests.emulators.kubernetes.api.writes.bodies import parsed
from tests.emulators.kubernetes.api.writes.schemas import Schemas
from tests.emulators.kubernetes.api.writes.writing import Writer
from tests.emulators.kubernetes.controllers.admission import Admission
from tests.emulators.kubernetes.controllers.basics import DEFAULT_CLASS, PROVISIONER, Basics
from tests.emulators.kubernetes.controllers.definitions import Definitions
from tests.emulators.kubernetes.controllers.garbage import Garbage
from tests.emulators.kubernetes.controllers.jobs import Jobs
from tests.emulators.kubernetes.controllers.kueue import Kueue
from tests.emulators.kubernetes.controllers.quotas import Quotas
from tests.emulators.kubernetes.controllers.working import Recorder
from tests.emulators.kubernetes.controllers.workloads import Workloads
from tests.emulators.kubernetes.nodes.kubelet import Image, Kubelet
from tests.emulators.kubernetes.nodes.node_life import NodeLife
from tests.emulators.kubernetes.nodes.pods import Evictions, PodLogs
from tests.emulators.kubernetes.nodes.scheduler import Scheduler
from tests.emulators.kubernetes.nodes.streams.commands import Executions
from tests.emulators.kubernetes.nodes.streams.forwarding import Forwarding
from tests.emulators.kubernetes.settings import NodeSpec, Settings
from tests.emulators.kubernetes.store.objects import Store, clone, dumps
from tests.emulators.kubernetes.store.resources import Resources
from tests.emulators.kubernetes.store.times import now_text, text_of

Object = dict[str, Any]
PODS = ("", "pods")
NODE_INFO = {
    "architecture": "amd64",
    "bootID": "00000000-0000-0000-0000-000000000000",
    "containerRuntimeVersion": "containerd://2.2.1",
    "kernelVersion": "6.12.0",
    "kubeProxyVersion": "",
    "kubeletVersion": "v1.36.2",
    "machineID": "00000000000000000000000000000000",
    "operatingSystem": "linux",
    "osImage": "Emulated Linux",
    "systemUUID": "00000000-0000-0000-0000-000000000000",
}
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class Cluster:
    """Owns everything. directory: for pods and claims; port: 0 takes any that is free."""

    def __init__(self, directory: Path, settings: Settings, *, port: int = 0) -> None:
        self.directory, self.settings, self._port = directory, settings, port
        self.store, self.resources = Store(), Resources()
        self.schemas = Schemas()
        self.writer = Writer(self.store, self.resources, self.schemas)
        self.users, self.rbac, self.faults = Users(self.store), Rbac(self.store), Faults()
        self.verbs = Verbs(self.writer)
        self.server = ApiServer(
            store=self.store,
            resources=self.resources,
            verbs=self.verbs,
            users=self.users,
            rbac=self.rbac,
            faults=self.faults,
        )
        self._context, self.authority = server_context(directory)
        self.recorder = Recorder(self.writer)
        self.garbage = Garbage(self.writer)
        self.definitions = Definitions(self.writer)
        self.basics = Basics(self.writer, self.recorder, self.authority.decode())
        self.admission = Admission(self.writer)  # before quotas: it gives pods their sizes
        self.quotas = Quotas(self.writer)
        self.jobs = Jobs(self.writer, self.recorder, backoff_s=settings.job_backoff_s)
        self.scheduler = Scheduler(self.writer, self.recorder)
        self.workloads = Workloads(self.writer, self.recorder)
        self.kueue = Kueue(self.writer)
        self.kubelet = Kubelet(self.writer, self.recorder, directory)
        self.node_life = NodeLife(self.writer, self.kubelet, eviction_s=settings.eviction_s)
        self._serve_below()
        self._runner: web.ServerRunner | None = None
        self.url, self.kubeconfig = "", directory / "kubeconfig"

    async def __aenter__(self) -> Cluster:
        # In memory where there is room: a container starts in half the time.
        self.kubelet.boxes = (await nursery_here()).scratch / f"kubernetes-{id(self)}"
        self._furnish()
        await self._listen()
        host, port = self.url.removeprefix("https://").split(":")
        self.kubelet.variables = {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "KUBERNETES_SERVICE_PORT_HTTPS": port,
        }
        self.kubelet.account_token = self._account_token
        token = self.users.token_for(ADMIN)
        write_kubeconfig(self.kubeconfig, self._config(token, ADMIN.name, "default"))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.kubelet.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        server = web.Server(
            self.server.handle,
            request_factory=request_factory(None, loop),
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=120.0,  # after which the real server closes idle connections, too
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._context)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"https://127.0.0.1:{port}"

    def config_for(self, user: str, groups: tuple[str, ...], *, namespace: str) -> Object:
        """A kubeconfig of somebody who may do what RBAC says."""
        return self._config(self.users.token_of(user, groups), user, namespace)

    def account_config(self, namespace: str, name: str) -> Object:
        token = self.users.account_token(namespace, name)
        return self._config(token, f"system:serviceaccount:{namespace}:{name}", namespace)

    def _config(self, token: str, user: str, namespace: str) -> Object:
        found: Object = kubeconfig(self.url, self.authority, token, user=user, namespace=namespace)
        return found

    def _account_token(self, pod: Object) -> str:
        metadata, spec = pod["metadata"], pod["spec"]
        return self.users.account_token(metadata["namespace"], spec["serviceAccountName"])

    def _account_token_request(self, call: Call) -> tuple[int, bytes]:
        """What `kubectl create token` asks for."""
        self.verbs.current(call)
        told = parsed(call)
        seconds = (told.get("spec") or {}).get("expirationSeconds", 3600)
        status = {
            "token": self.users.account_token(call.namespace, call.name),
            "expirationTimestamp": text_of(time.time() + seconds),
        }
        return 201, dumps({**told, "status": status})

    def _serve_below(self) -> None:
        logs, executions = PodLogs(self.kubelet), Executions(self.kubelet)
        evictions = Evictions(self.writer)
        self.server.streaming |= {
            (PODS, "log"): logs.serve,
            (PODS, "exec"): executions.exec,
            (PODS, "attach"): executions.attach,
            (PODS, "portforward"): Forwarding(self.kubelet).serve,
        }
        self.server.below |= {
            (PODS, "eviction"): evictions.evict,
            (PODS, "binding"): evictions.bind,
            ("*", "scale"): Scaling(self.writer, self.verbs).serve,
            (ACCOUNTS, "token"): self._account_token_request,
        }

    def _furnish(self) -> None:
        """What a fresh cluster has."""
        get = self.resources.get
        for name in (*NAMESPACES, *self.settings.namespaces):
            self.writer.create(get("", "namespaces"), {"metadata": {"name": name}})
        for body in DEFAULTS:
            resource = self.resources.of_kind("rbac.authorization.k8s.io", body["kind"])
            assert resource is not None
            self.writer.create(resource, clone(body))
        for name, value in (
            ("system-cluster-critical", 2_000_000_000),
            ("system-node-critical", 2_000_001_000),
        ):
            body = {"metadata": {"name": name}, "value": value}
            self.writer.create(get("scheduling.k8s.io", "priorityclasses"), body)
        if self.settings.storage_class:
            metadata = {
                "name": self.settings.storage_class,
                "annotations": {DEFAULT_CLASS: "true"},
            }
            body = {"metadata": metadata, "provisioner": PROVISIONER, "reclaimPolicy": "Delete"}
            body["volumeBindingMode"] = "Immediate"
            self.writer.create(get("storage.k8s.io", "storageclasses"), body)
        if self.settings.kueue:
            self.kueue.begin()
        for node in self.settings.nodes:
            self.add_node(node)
        kubelet = self.kubelet
        kubelet.retry_s, kubelet.backoff_scale = self.settings.retry_s, self.settings.restart_scale
        kubelet.missing = dict(self.settings.missing_images)
        for pattern, told in self.settings.images.items():
            kubelet.images[pattern] = Image(
                tuple(told.get("entrypoint", ())),
                told.get("env", {}),
                {k: Path(v) for k, v in told.get("files", {}).items()},
            )

    def add_node(self, node: NodeSpec) -> None:
        resource = self.resources.get("", "nodes")
        labels = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", **node.labels}
        spec: Object = {"taints": node.taints} if node.taints else {}
        self.writer.create(
            resource, {"metadata": {"name": node.name, "labels": labels}, "spec": spec}
        )
        sizes = {"cpu": node.cpu, "memory": node.memory, "pods": str(node.pods)}
        sizes["ephemeral-storage"] = "100Gi"
        if node.gpus:
            sizes["nvidia.com/gpu"] = str(node.gpus)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        ready |= {"message": "kubelet is posting ready status", "lastTransitionTime": now_text()}
        ready["lastHeartbeatTime"] = ready["lastTransitionTime"]
        status = {
            "capacity": sizes,
            "allocatable": sizes,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "nodeInfo": NODE_INFO,
        }
        self.writer.change(resource, "", node.name, lambda one: one.update(status=status))

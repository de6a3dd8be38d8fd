"""What the tests of the emulated Kubernetes share: an emulator, clients of it, and waiting."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient

from tests.emulators.driving.kube_tools import Kube, tool
from tests.emulators.kubernetes.running import KubernetesEmulator

WAIT_S, STEP_S = 60.0, 0.02
GROUP, VERSION, PLURAL = "example.com", "v1", "widgets"
WIDGETS = (GROUP, VERSION, "default", PLURAL)
NODES = [{"name": f"node-{it}", "cpu": "4", "memory": "16Gi", "gpus": 1} for it in (1, 2, 3)]
SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10, "description": "How large."},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "word": {"type": "string", "pattern": "^[a-z]+$"},
        "replicas": {"type": "integer"},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
            },
        },
    },
}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {
        "name": "Ready",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
    },
    {"name": "Note", "type": "string", "jsonPath": r".metadata.annotations.example\.com/note"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"plural": PLURAL, "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
        "scope": "Namespaced",
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "additionalPrinterColumns": COLUMNS,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": SPEC,
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


def widget(name: str, size: Any = 3, **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Widget", "metadata": {"name": name}}
    return {**head, "spec": {"size": size, **spec}}


def job(name: str, script: str, **spec: Any) -> dict[str, Any]:
    """pod: fields of the pod's spec; container: of its one container."""
    container = {"name": "main", "image": "busybox:1.37", "command": ["sh", "-c", script]}
    container |= spec.pop("container", {})
    pod = {"restartPolicy": "Never", "containers": [container], **spec.pop("pod", {})}
    head = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    return {**head, "spec": {"template": {"spec": pod}, **spec}}


class Asking:
    """The official client. widgets: for custom objects; `kind`: any resource, by discovery."""

    def __init__(self, kubeconfig: Path) -> None:
        self.api = config.new_client_from_config(str(kubeconfig))
        self.widgets = client.CustomObjectsApi(self.api)
        self._dynamic = DynamicClient(self.api)

    def kind(self, kind: str, api_version: str = "v1") -> Any:
        return self._dynamic.resources.get(api_version=api_version, kind=kind)

    def make(self, body: dict[str, Any], *, namespace: str = "default") -> dict[str, Any]:
        """Raises ApiException."""
        resource = self.kind(body["kind"], body["apiVersion"])
        made: dict[str, Any] = resource.create(body=body, namespace=namespace).to_dict()
        return made

    def create(self, body: dict[str, Any], **options: Any) -> Any:
        """A widget. Raises ApiException."""
        return self.widgets.create_namespaced_custom_object(*WIDGETS, body, **options)

    def get(self, name: str) -> Any:
        return self.widgets.get_namespaced_custom_object(*WIDGETS, name)

    def list(self, **options: Any) -> Any:
        return self.widgets.list_namespaced_custom_object(*WIDGETS, **options)

    def close(self) -> None:
        self.api.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesEmulator]:
    """One for a module; each test uses names of its own."""
    with KubernetesEmulator(nodes=NODES, job_backoff_s=0.05, retry_s=0.05) as one:
        yield one


@pytest.fixture(scope="module")
def asking(cluster: KubernetesEmulator) -> Iterator[Asking]:
    """Widgets are defined."""
    one = Asking(cluster.kubeconfig)
    one.make(DEFINITION)
    until(lambda: one.kind("Widget", f"{GROUP}/{VERSION}"))
    yield one
    one.close()


@pytest.fixture
def kubectl(cluster: KubernetesEmulator, tmp_path: Path) -> Kube:
    return Kube(tool("kubectl"), cluster.kubeconfig, tmp_path)


def refusal(call: Callable[[], Any]) -> dict[str, Any]:
    """The Status with which a call is refused."""
    with pytest.raises(ApiException) as refused:
        call()
    status: dict[str, Any] = json.loads(refused.value.body)
    assert status["kind"] == "Status" and status["code"] == refused.value.status
    return status


def until(holds: Callable[[], Any]) -> Any:
    """What it says once that is true. The wait is generous, because no test fails by time."""
    end_s = time.monotonic() + WAIT_S
    while not (found := holds()):
        assert time.monotonic() < end_s, "it never came"
        time.sleep(STEP_S)
    return found

"""What plays the tests of the operator: an emulated cluster with our CRDs and roles, operators as
processes under their service account, and people who write custom resources.

People read through the emulator's own truth, so that every `get` that it counts is the operator's.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from fleetctl.operator.crds.definition import GROUP, VERSION, definitions
from fleetctl.specs.kinds.registry import API_VERSION, KINDS
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.forked import Forked

ROOT = Path(__file__).parents[2]
ROLES = ROOT / "deploy/kustomize/roles.yaml"
HANG_S = 400.0
# One that leads alone needs no other to follow it, and a busy machine keeps no short lease.
LEASE_S = 600
LOOK_S = 0.02
NAMESPACE = "fleetctl"
MERGE = "application/merge-patch+json"

Object = dict[str, Any]


def until(true: Callable[[], Any], what: str, *, within_s: float = HANG_S) -> Any:
    """What it says once that is something. The bound is against a hang alone."""
    ends_s = time.monotonic() + within_s
    while time.monotonic() < ends_s:
        if found := true():
            return found
        time.sleep(LOOK_S)
    raise AssertionError(f"it never happened: {what}")


class People:
    """Whoever has kubectl, as an administrator."""

    def __init__(self, cluster: KubernetesEmulator) -> None:
        self._cluster = cluster
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        (user,) = config["users"]
        self.token = user["user"]["token"]
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE

    def ask(self, method: str, path: str, body: Any = None, sort: str = "application/json") -> Any:
        request = urllib.request.Request(
            self._cluster.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": sort},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=HANG_S, context=self._context) as answer:
            return json.load(answer)

    def create(
        self, kind: str, name: str, spec: Object, namespace: str = "default", **more: Any
    ) -> Object:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": {"name": name, **more},
            "spec": spec,
        }
        made: Object = self.ask("POST", self._path(kind, namespace), manifest)
        return made

    def patch(self, kind: str, name: str, body: Object, namespace: str = "default") -> Object:
        path = f"{self._path(kind, namespace)}/{name}"
        made: Object = self.ask("PATCH", path, body, MERGE)
        return made

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        self.ask("DELETE", f"{self._path(kind, namespace)}/{name}")

    def _path(self, kind: str, namespace: str) -> str:
        row = KINDS[kind]
        within = f"/namespaces/{namespace}" if row.namespaced else ""
        return f"/apis/{GROUP}/{VERSION}{within}/{row.plural}"

    # -- the truth -----------------------------------------------------------------------------

    def get(self, kind: str, name: str) -> Object | None:
        found = self._cluster.objects(KINDS[kind].plural, GROUP)
        return next((it for it in found if it["metadata"]["name"] == name), None)

    def condition(self, kind: str, name: str, sort: str) -> Object:
        """Empty while there is none."""
        found = self.get(kind, name) or {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((it for it in conditions if it["type"] == sort), {})

    def wait_for(self, kind: str, name: str, sort: str, status: str = "True") -> Object:
        """As kubectl wait does: of the newest generation."""

        def holds() -> Object | None:
            found = self.condition(kind, name, sort)
            newest = (self.get(kind, name) or {"metadata": {}})["metadata"].get("generation", 0)
            there = found.get("status") == status and found["observedGeneration"] >= newest
            return found if there else None

        found: Object = until(holds, f"{kind} {name}: {sort}={status}")
        return found

    def gone(self, kind: str, name: str) -> None:
        until(lambda: self.get(kind, name) is None, f"{kind} {name} is gone")

    def events(self, name: str) -> list[Object]:
        found = self._cluster.objects("events")
        return [it for it in found if it["involvedObject"].get("name") == name]

    def writes(self) -> dict[str, int]:
        """What the operator has written of custom resources: people only create and delete, and a
        lease is renewed by the clock.
        """
        return {
            what: count
            for what, count in self._cluster.requests().items()
            if (what.startswith("patch ") or what == "create events")
        }


class Operator:
    """One process. home: of its state."""

    def __init__(
        self, cluster: KubernetesEmulator, home: Path, kubeconfig: Path, log: Path, *words: str
    ) -> None:
        self.home, self.log = home, log
        empty = log.with_suffix(".in")
        empty.touch()
        env = {
            **os.environ,
            "FLEETCTL_HOME": str(home),
            "KUBECONFIG": str(kubeconfig),
            "FLEETCTL_LOOP": "asyncio",
        }
        lease = ("--lease-namespace", NAMESPACE, "--lease-seconds", str(LEASE_S))
        words = ("operator", *lease, *words)  # of an option that is given twice, the last counts
        self.process = Forked(words, env=env, streams=[empty, log, log])

    @property
    def pid(self) -> str:
        return str(self.process._process.pid)

    def leads(self) -> bool:
        return "operator: leads lease" in self.told()

    def told(self) -> str:
        """Its log so far."""
        return self.log.read_text() if self.log.exists() else ""

    def stop(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(15)
        return self.process.wait(HANG_S)


@contextlib.contextmanager
def cluster_with_our_kinds() -> Iterator[KubernetesEmulator]:
    with KubernetesEmulator(namespaces=[NAMESPACE]) as cluster:
        people = People(cluster)
        for definition in definitions():
            people.ask(
                "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition
            )
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "fleetctl-operator"},
        }
        people.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
        for role in yaml.safe_load_all(ROLES.read_text()):
            people.ask("POST", _role_path(role), role)
        for kind in KINDS.values():
            until(lambda kind=kind: _served(people, kind.plural), f"{kind.plural} are served")
        cluster.forget_requests()
        yield cluster


def _served(people: People, plural: str) -> bool:
    try:
        people.ask("GET", f"/apis/{GROUP}/{VERSION}/{plural}")
    except urllib.error.HTTPError:
        return False
    return True


def _role_path(role: Object) -> str:
    plural = role["kind"].lower() + "s"
    within = "" if role["kind"].startswith("Cluster") else f"/namespaces/{NAMESPACE}"
    return f"/apis/rbac.authorization.k8s.io/v1{within}/{plural}"


def account_config(cluster: KubernetesEmulator) -> Path:
    """The kubeconfig of the operator's service account: it may do what deploy/ grants it."""
    return cluster.account_kubeconfig(NAMESPACE, "fleetctl-operator")

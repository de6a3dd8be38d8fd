"""What plays the tests of the operator: an emulated cluster with our CRDs and roles, operators as
processes under their service account, and people who write custom resources.

People read through the emulator's own truth, so that every `get` that it counts is the operator's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import yaml

from fleetctl.operator.crds.definition import GROUP, VERSION, definition_of
from fleetctl.specs.kinds.registry import API_VERSION, KINDS
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.forked import Forked

ROOT = Path(__file__).parents[2]
ROLES = ROOT / "deploy/kustomize/roles.yaml"
HANG_S = 400.0
# One that leads alone needs no other to follow it, and a busy machine keeps no short lease.
LEASE_S = 600
# Of two, one of which follows: as short as a busy machine can keep, mostly. An operator that cannot
# is started again.
SHORT_LEASE_S = 10
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
    """Whoever has kubectl; kubeconfig: of whom, by default of an administrator."""

    def __init__(self, cluster: KubernetesEmulator, kubeconfig: Path | None = None) -> None:
        self._cluster = cluster
        config = yaml.safe_load((kubeconfig or cluster.kubeconfig).read_text())
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
        try:
            with urllib.request.urlopen(request, timeout=HANG_S, context=self._context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            error.msg = f"{error.msg}: {error.read().decode()}"
            raise

    def text(self, path: str) -> str:
        """What is no object: a pod's log."""
        request = urllib.request.Request(
            self._cluster.url + path, headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=HANG_S, context=self._context) as answer:
            text: bytes = answer.read()
        return text.decode()

    def code(self, method: str, path: str, body: Any = None, sort: str = "application/json") -> int:
        """The status of an answer, whatever it is."""
        try:
            self.ask(method, path, body, sort)
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    def create(
        self, kind: str, name: str, spec: Object, namespace: str = "default", **more: Any
    ) -> Object:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": {"name": name, **more},
            "spec": spec,
        }
        made: Object = self.ask("POST", self.path(kind, namespace), manifest)
        return made

    def patch(self, kind: str, name: str, body: Object, namespace: str = "default") -> Object:
        path = f"{self.path(kind, namespace)}/{name}"
        made: Object = self.ask("PATCH", path, body, MERGE)
        return made

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        self.ask("DELETE", f"{self.path(kind, namespace)}/{name}")

    def path(self, kind: str, namespace: str) -> str:
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


class Pair:
    """Replicas that share a home, as those of deploy/ share a disk. words: options of both."""

    def __init__(self, cluster: KubernetesEmulator, directory: Path, *words: str) -> None:
        self.cluster, self._directory, self._words = cluster, directory, words
        self.people = People(cluster)
        self.all: list[Operator] = []
        self.gone: list[Operator] = []

    def start(self) -> Operator:
        one = Operator(
            self.cluster,
            self._directory / "home",
            account_config(self.cluster),
            self._directory / f"log-{len(self.all) + len(self.gone)}",
            *("--lease-seconds", str(SHORT_LEASE_S), "--lease", self._directory.name),
            *self._words,
        )
        self.all.append(one)
        return one

    def until(self, true: Callable[[], Any], what: str) -> Any:
        """As the kubelet does it: who ended is started again, meanwhile."""

        def holds() -> Any:
            if found := true():
                return found
            for one in [it for it in self.all if it.process.poll() is not None]:
                self.all.remove(one)
                self.gone.append(one)
                self.start()
            return None

        return until(holds, what)

    def leader(self) -> Operator:
        found: Operator = self.until(
            lambda: next((it for it in self.all if it.leads() and it.process.poll() is None), None),
            "one of them leads",
        )
        return found

    def holder(self) -> str:
        """The pid of who has the lease; empty while it is given back."""
        found = self.cluster.objects("leases", "coordination.k8s.io", NAMESPACE)
        words = found[0]["spec"]["holderIdentity"].split("_") if found else []
        return words[-2] if len(words) > 1 else ""

    def end(self) -> None:
        for one in (*self.all, *self.gone):
            with contextlib.suppress(ProcessLookupError):
                one.process.send_signal(signal.SIGCONT)
            one.stop()


@contextlib.contextmanager
def cluster_with_our_kinds(
    without: Collection[str] = (), roles: Collection[Path] = (ROLES,)
) -> Iterator[KubernetesEmulator]:
    """without: kinds whose definitions are not there. roles: files of the operator's rights."""
    kinds = [it for it in KINDS.values() if it.name not in without]
    with KubernetesEmulator(namespaces=[NAMESPACE]) as cluster:
        people = People(cluster)
        for kind in kinds:
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            people.ask("POST", path, definition_of(kind))
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "fleetctl-operator"},
        }
        people.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
        for role in (it for file in roles for it in yaml.safe_load_all(file.read_text())):
            people.ask("POST", _role_path(role), role)
        for kind in kinds:
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

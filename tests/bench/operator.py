"""What custom resources cost the operator: writes and CPU each, how soon it acts and has a pod
made, five hundred that are there when it starts and are deleted at once, and what ten thousand that
are over cost while nothing happens. On the emulated cluster, whose own CPU is apart.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from fleetctl.operator.crds.definition import GROUP
from fleetctl.operator.mirror.custom_resource import FINALIZER
from tests.bench.harness import Figure, median, process_cpu_s, process_rss_mb
from tests.emulators.driving.kube_tools import Kube, tool
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.operators import (
    LEASE_S,
    NAMESPACE,
    ROOT,
    People,
    account_config,
    cluster_with_our_kinds,
    until,
)

APPLIED, FINISHED, WAITING = 1_000, 10_000, 500
WRITES_MAX = 6
CPU_MS_MAX = 5.0
ROUNDS = 30
IDLE_S, HANG_S = 60.0, 900.0
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "Provider": f"/apis/{GROUP}/v1alpha1/providers",
    "ClusterRole": f"{RBAC}/clusterroles",
    "RoleBinding": f"{RBAC}/namespaces/default/rolebindings",
}
# Equal content: the first runs, and the others take its result, so that no task's CPU is counted.
SPEC = {"cache": {"policy": "ReuseSucceeded"}, "template": {"python": "SUBMIT(x=1)"}}
MANIFEST = """\
apiVersion: fleetctl.dev/v1alpha1
kind: BatchJob
metadata: {{name: m{number}}}
spec: {{cache: {{policy: ReuseSucceeded}}, template: {{python: "SUBMIT(x=1)"}}}}
"""


class Metered:
    """An operator whose process tells its client's CPU apart; see meter.py. plain: it does not, and
    has no modules but its own in memory.
    """

    def __init__(
        self, cluster: KubernetesEmulator, path: Path, *more: str, plain: bool = False
    ) -> None:
        self._file = path / "readings.json"
        env = {
            **os.environ,
            "FLEETCTL_HOME": str(path / "home"),
            "KUBECONFIG": str(account_config(cluster)),
            "FLEETCTL_LOOP": "asyncio",
        }
        module = ["fleetctl"] if plain else ["tests.bench.meter", str(self._file)]
        words = [
            sys.executable,
            "-m",
            *module,
            "operator",
            "--lease-namespace",
            NAMESPACE,
            "--lease-seconds",
            str(LEASE_S),
            *more,
        ]
        with (path / "log").open("ab") as log:
            self._process = subprocess.Popen(
                words, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.pid = self._process.pid

    def readings(self) -> dict[str, float]:
        self._file.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        until(self._file.exists, "the operator answers")
        found: dict[str, float] = json.loads(self._file.read_text())
        return found

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def figures() -> Iterator[Figure]:
    yield _until_pods()
    yield _cpu_each()
    yield from _started()
    with cluster_with_our_kinds() as cluster, tempfile.TemporaryDirectory() as directory:
        path, people = Path(directory), People(cluster)
        one = Metered(cluster, path)
        try:
            people.create("BatchJob", "first", SPEC)
            people.wait_for("BatchJob", "first", "Complete")
            acted_s = [_until_held(cluster, people, number) for number in range(ROUNDS)]
            yield _soon(median(acted_s))
            kubectl = Kube(tool("kubectl"), cluster.kubeconfig, path)
            yield from _applied(cluster, kubectl, one)
            yield from _idle(cluster, kubectl, one.pid)
        finally:
            one.stop()


def _until_pods() -> Figure:
    """Of one resource at a time; the pod's object is what is waited for, not its start."""
    with cluster_with_our_kinds() as cluster, tempfile.TemporaryDirectory() as directory:
        people = People(cluster)
        for document in yaml.safe_load_all((ROOT / "deploy/runs.yaml").read_text()):
            people.ask("POST", PATHS[document["kind"]], document)
        means = ("--local-means", "kubernetes")
        one = Metered(cluster, Path(directory), *means, plain=True)
        try:
            took_s = []
            for number in range(ROUNDS + 1):
                name = f"soon-{number}"
                people.create("BatchJob", name, {"template": {"python": f"SUBMIT(x={number})"}})
                began_s = time.monotonic()
                until(partial(_has_pod, cluster, name), "its pod exists")
                took_s.append(time.monotonic() - began_s)
                people.wait_for("BatchJob", name, "Complete")
        finally:
            one.stop()
    middle_s = median(took_s[1:])  # the first one waits for imports
    what = "operator: a custom resource is made until its pod exists, p50"
    return Figure(what, f"{middle_s * 1000:.0f} ms", "150 ms", middle_s <= 0.15)


def _cpu_each() -> Figure:
    """Of the whole process, which nothing meters: counting by parts takes a sixth more."""
    with cluster_with_our_kinds() as cluster, tempfile.TemporaryDirectory() as directory:
        path, people = Path(directory), People(cluster)
        one = Metered(cluster, path, plain=True)
        try:
            people.create("BatchJob", "first", SPEC)
            people.wait_for("BatchJob", "first", "Complete")
            before_s = process_cpu_s(one.pid)
            _create(Kube(tool("kubectl"), cluster.kubeconfig, path), range(APPLIED))
            until(lambda: _complete(cluster) == APPLIED + 1, "all are over", within_s=HANG_S)
            each_ms = (process_cpu_s(one.pid) - before_s) / APPLIED * 1000
        finally:
            one.stop()
    what = f"operator: {APPLIED:,} custom resources until Complete, CPU each, whole process"
    return Figure(what, f"{each_ms:.1f} ms", f"{CPU_MS_MAX:.0f} ms", each_ms <= CPU_MS_MAX)


def _has_pod(cluster: KubernetesEmulator, name: str) -> bool:
    pods = cluster.objects("pods", "", "default")
    return any(it["metadata"]["labels"].get("fleetctl.dev/name") == name for it in pods)


def _started() -> Iterator[Figure]:
    """Of an operator that finds resources without a status; then all are deleted by one request."""
    with cluster_with_our_kinds() as cluster, tempfile.TemporaryDirectory() as directory:
        kubectl = Kube(tool("kubectl"), cluster.kubeconfig, Path(directory))
        _create(kubectl, range(WAITING))
        began_s = time.monotonic()
        one = Metered(cluster, Path(directory), plain=True)
        try:
            until(lambda: _looked_at(cluster) == WAITING, "all have a status", within_s=HANG_S)
            took_s = time.monotonic() - began_s
            until(lambda: _complete(cluster) == WAITING, "all are over", within_s=HANG_S)
            memory_mb = process_rss_mb(one.pid)
            began_s = time.monotonic()
            kubectl.ok("delete", "--raw", f"/apis/{GROUP}/v1alpha1/namespaces/default/batchjobs")
            until(lambda: not cluster.objects("batchjobs", GROUP), "all are gone", within_s=HANG_S)
            gone_s = time.monotonic() - began_s
        finally:
            one.stop()
    what = f"operator: {WAITING} custom resources"
    yield Figure(
        f"{what}, from its start until all have a status", f"{took_s:.0f} s", "20 s", took_s <= 20
    )
    yield Figure(f"{what}, memory after", f"{memory_mb:.0f} MB", "130 MB", memory_mb <= 130)
    yield Figure(f"{what}, deleted by one request", f"{gone_s:.1f} s", "", None)


def _looked_at(cluster: KubernetesEmulator) -> int:
    time.sleep(0.2)
    return sum(bool(it.get("status")) for it in cluster.objects("batchjobs", GROUP))


def _soon(acted_s: float) -> Figure:
    what = "operator: a custom resource is made until its finalizer is seen, p50"
    return Figure(what, f"{acted_s * 1000:.0f} ms", "50 ms", acted_s <= 0.05)


def _until_held(cluster: KubernetesEmulator, people: People, number: int) -> float:
    """Seconds from the answer to the creation; a look takes about 2 ms."""
    host, _, port = cluster.url.removeprefix("https://").partition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    line = http.client.HTTPSConnection(host, int(port), context=context)
    headers = {"Authorization": f"Bearer {people.token}"}
    path = f"/apis/{GROUP}/v1alpha1/namespaces/default/batchjobs/soon-{number}"
    line.connect()
    people.create("BatchJob", f"soon-{number}", SPEC)
    began_s = time.monotonic()
    while True:
        line.request("GET", path, headers=headers)
        found: dict[str, Any] = json.loads(line.getresponse().read())
        if FINALIZER in found["metadata"].get("finalizers", ()):
            return time.monotonic() - began_s


def _applied(cluster: KubernetesEmulator, kubectl: Kube, one: Metered) -> list[Figure]:
    people = People(cluster)
    until(lambda: _complete(cluster) == ROUNDS + 1, "those before are over")
    cluster.forget_requests()
    before, began_s = one.readings(), time.monotonic()
    _create(kubectl, range(APPLIED))
    until(lambda: _complete(cluster) == APPLIED + ROUNDS + 1, "all are over", within_s=HANG_S)
    took_s, after = time.monotonic() - began_s, one.readings()
    spent_ms = {key: (after[key] - before[key]) / APPLIED * 1000 for key in after}
    client_ms = spent_ms["sdk_threads"] + spent_ms["sdk_steps"]
    ours_ms = spent_ms["process"] - client_ms
    writes = sum(people.writes().values()) / APPLIED
    # What the metering itself costs is in the first; `_cpu_each` has the whole without it.
    name = f"operator: {APPLIED:,} custom resources until Complete"
    return [
        Figure(f"{name}, API writes each", f"{writes:.1f}", f"{WRITES_MAX}", writes <= WRITES_MAX),
        Figure(f"{name}, CPU each, engine and mirror", f"{ours_ms:.1f} ms", "", None),
        Figure(f"{name}, CPU each, client, TLS and JSON", f"{client_ms:.1f} ms", "", None),
        Figure(name, f"{took_s:.0f} s", "", None),
    ]


def _create(kubectl: Kube, numbers: range) -> None:
    """By POST: a server-side apply is a patch, as the operator's own writes are."""
    text = "---\n".join(MANIFEST.format(number=number) for number in numbers)
    kubectl.ok("create", "--validate=false", "-f", "-", stdin=text)


def _idle(cluster: KubernetesEmulator, kubectl: Kube, pid: int) -> list[Figure]:
    more = FINISHED - APPLIED - ROUNDS - 1
    for first in range(0, more, APPLIED):
        _create(kubectl, range(APPLIED + first, APPLIED + min(first + APPLIED, more)))
    until(lambda: _complete(cluster) == FINISHED, "ten thousand are over", within_s=HANG_S)
    time.sleep(5.0)  # its last writes come back by the watch
    before_s = process_cpu_s(pid)
    time.sleep(IDLE_S)
    share = (process_cpu_s(pid) - before_s) / IDLE_S * 100
    memory_mb = process_rss_mb(pid)
    beside = f"operator: idle beside {FINISHED:,} finished custom resources"
    return [
        Figure(f"{beside}, share of a core", f"{share:.2f} %", "1 %", share <= 1.0),
        Figure(f"{beside}, memory", f"{memory_mb:.0f} MB", "300 MB", memory_mb <= 300),
    ]


def _complete(cluster: KubernetesEmulator) -> int:
    """Looked at seldom: the whole list crosses a process border."""
    time.sleep(1.0)
    found = cluster.objects("batchjobs", GROUP)
    conditions = (it.get("status", {}).get("conditions", ()) for it in found)
    return sum(any(one["type"] == "Complete" for one in it) for it in conditions)

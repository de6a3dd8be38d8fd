"""The emulated cluster under real kubectl and helm, as people use them."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, stream

from tests.emulators.driving.kube_tools import Kube, tool
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.emulators.suite.kubernetes_driving import (
    Asking,
    asking,
    cluster,
    job,
    kubectl,
    until,
    widget,
)

__all__ = ["asking", "cluster", "kubectl"]

HANG_S = 300.0  # nothing takes so long


def test_what_is_applied_twice_is_unchanged_and_diffs_when_it_is_not(
    asking: Asking, kubectl: Kube
) -> None:
    def said(verb: str, size: int) -> tuple[int, str]:
        ran = kubectl(verb, "-f", "-", stdin=json.dumps(widget("applied", size)))
        return ran.code, ran.out

    assert said("apply", 3) == (0, "widget.example.com/applied created\n")
    assert said("apply", 3) == (0, "widget.example.com/applied unchanged\n")
    code, out = said("diff", 4)
    assert code == 1 and "-  size: 3\n+  size: 4" in out
    assert said("apply", 4) == (0, "widget.example.com/applied configured\n")
    ran = kubectl("apply", "-f", "-", stdin=json.dumps(widget("typo", 3, colour="red")))
    assert ran.code == 1 and 'strict decoding error: unknown field "spec.colour"' in ran.err
    ran = kubectl("apply", "-f", "-", stdin=json.dumps(widget("large", 11)))
    assert "spec.size in body should be less than or equal to 10" in ran.err


def test_columns_are_those_of_the_definition(asking: Asking, kubectl: Kube) -> None:
    body = widget("shown", 5)
    body["metadata"]["annotations"] = {"example.com/note": "hello"}
    asking.create(body)
    status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl.ok("patch", "wd", "shown", "--subresource=status", "--type=merge", "-p", status)
    lines = kubectl.ok("get", "wd", "shown").splitlines()
    assert lines[0].split() == ["NAME", "SIZE", "READY", "NOTE", "AGE"]
    assert lines[1].split()[:4] == ["shown", "5", "True", "hello"]
    assert kubectl.ok("get", "wd", "shown", "-o", "jsonpath={.spec.size}") == "5"
    assert kubectl.ok("scale", "wd/shown", "--replicas=3") == "widget.example.com/shown scaled\n"
    assert asking.get("shown")["spec"]["replicas"] == 3
    assert "How large." in kubectl.ok("explain", "widget.spec.size")
    assert "parallelism" in kubectl.ok("explain", "job.spec")


def test_a_job_is_made_waited_for_and_its_logs_are_read(
    cluster: KubernetesEmulator, kubectl: Kube
) -> None:
    kubectl.ok("create", "job", "said", "--image=busybox:1.37", "--", "sh", "-c", "echo a; echo b")
    kubectl.ok("wait", "--for=condition=complete", "job/said", "--timeout=60s")
    assert kubectl.ok("logs", "-f", "job/said") == "a\nb\n"
    assert kubectl.ok("logs", "--tail=1", "job/said") == "b\n"
    assert kubectl.ok("get", "job", "said").splitlines()[1].split()[:3] == [
        "said",
        "Complete",
        "1/1",
    ]
    kubectl.ok("delete", "job", "said")
    until(lambda: not [it for it in cluster.objects("pods") if "said" in it["metadata"]["name"]])


def test_a_line_that_the_runtime_kept_in_parts_is_one_line(
    cluster: KubernetesEmulator, kubectl: Kube
) -> None:
    script = "head -c 100000 /dev/zero | tr '\\0' x; echo; echo end"
    kubectl.ok("create", "job", "long", "--image=busybox:1.37", "--", "sh", "-c", script)
    kubectl.ok("wait", "--for=condition=complete", "job/long", "--timeout=600s")
    assert kubectl.ok("logs", "job/long") == "x" * 100_000 + "\nend\n"
    stamped = kubectl.ok("logs", "--timestamps", "job/long").splitlines()
    assert [len(line) - len("2026-01-01T00:00:00.000000000Z ") for line in stamped] == [100_000, 3]
    kubectl.ok("delete", "job", "long")
    until(lambda: not [it for it in cluster.objects("pods") if "long" in it["metadata"]["name"]])


def test_commands_files_and_ports_of_a_pod_are_reached(
    asking: Asking, cluster: KubernetesEmulator, kubectl: Kube, tmp_path: Path
) -> None:
    script = "cd /srv && echo page > index.html && exec python3 -u -m http.server 0 -b 127.0.0.1 "
    script += "-p HTTP/1.1"
    asking.make(job("serves", script))
    pod = until(
        lambda: next((it["pod"] for it in cluster.processes() if "serves" in it["pod"]), None)
    )
    ran = kubectl("exec", "-i", pod, "--", "sh", "-c", "cat; echo no >&2; exit 3", stdin="yes")
    assert (ran.code, ran.out) == (3, "yes") and ran.err.startswith("no\n")
    (tmp_path / "given").write_text("kept\n")
    kubectl.ok("cp", str(tmp_path / "given"), f"{pod}:/srv/given")
    said = until(lambda: kubectl.ok("logs", pod))
    port = int(said.split(" port ")[1].split()[0])
    command = [kubectl.program, "port-forward", f"pod/{pod}", f":{port}"]
    env = {"KUBECONFIG": str(kubectl.kubeconfig), "HOME": str(tmp_path)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as forwarding:
        assert forwarding.stdout is not None
        here = int(forwarding.stdout.readline().split("127.0.0.1:")[1].split()[0])
        for _ in range(2):
            with urllib.request.urlopen(f"http://127.0.0.1:{here}/given", timeout=HANG_S) as answer:
                assert answer.read() == b"kept\n"
        forwarding.terminate()
    core = client.CoreV1Api(asking.api)
    connect = core.connect_get_namespaced_pod_portforward
    forward = stream.portforward(connect, pod, "default", ports=str(port))
    socket = forward.socket(port)
    socket.settimeout(HANG_S)
    # The connection stays: the client's thread may die of a close that comes with the last data,
    # and leave who reads to its end waiting for ever.
    asking_page = HTTPConnection("pod")
    asking_page.sock = socket
    asking_page.request("GET", "/")
    assert asking_page.getresponse().read() == b"page\n"
    asked = stream.stream(
        core.connect_get_namespaced_pod_exec,
        pod,
        "default",
        command=["sh", "-c", "echo out; exit 4"],
        stdout=True,
        stderr=True,
        _preload_content=False,
    )
    asked.run_forever(timeout=HANG_S)
    assert (asked.read_stdout(), asked.returncode) == ("out\n", 4)
    kubectl.ok("delete", "job", "serves", "--cascade=foreground")
    until(lambda: not [it for it in cluster.processes() if "serves" in it["pod"]])


def test_who_runs_a_pod_is_attached_to_it(cluster: KubernetesEmulator, kubectl: Kube) -> None:
    script = 'while read -r word; do echo "got $word"; done; exit 5'
    words = ["run", "attached", "-i", "--quiet", "--image=busybox:1.37", "--restart=Never"]
    ran = kubectl(*words, "--", "sh", "-c", script, stdin="a\nb\n")
    assert ran.code == 5
    assert kubectl.ok("logs", "attached") == "got a\ngot b\n"


def test_who_may_what_is_told(cluster: KubernetesEmulator, kubectl: Kube) -> None:
    def may() -> str:
        return kubectl("auth", "can-i", "list", "pods", "--as", "bob").out

    assert may() == "no\n"
    kubectl.ok("create", "role", "look", "--verb=get,list", "--resource=pods,jobs.batch")
    kubectl.ok("create", "rolebinding", "look", "--role=look", "--user=bob")
    assert may() == "yes\n"
    ran = kubectl("get", "secrets", "--as", "bob")
    assert ran.err == (
        'Error from server (Forbidden): secrets is forbidden: User "bob" cannot list resource'
        ' "secrets" in API group "" in the namespace "default"\n'
    )


def test_helm_installs_upgrades_and_takes_away(cluster: KubernetesEmulator, tmp_path: Path) -> None:
    helm = Kube(tool("helm"), cluster.kubeconfig, tmp_path)
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    head = {"apiVersion": "v2", "name": "chart", "version": "0.1.0"}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(head))
    pod = {
        "containers": [
            {"name": "main", "image": "busybox:1.37", "command": ["sleep", "300"]},
        ]
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "app"},
        "spec": {
            "replicas": "COUNT",
            "selector": {"matchLabels": {"app": "app"}},
            "template": {"metadata": {"labels": {"app": "app"}}, "spec": pod},
        },
    }
    text = yaml.safe_dump(deployment).replace("COUNT", "{{ .Values.count }}")
    (chart / "templates" / "app.yaml").write_text(text)
    helm.ok("install", "app", str(chart), "--set", "count=1", "--wait", "--timeout", "400s")
    assert len(running(cluster, "app-")) == 1
    helm.ok("upgrade", "app", str(chart), "--set", "count=2", "--wait", "--timeout", "400s")
    assert len(running(cluster, "app-")) == 2
    helm.ok("uninstall", "app", "--wait", "--timeout", "400s")
    until(lambda: not running(cluster, "app-"))


def running(cluster: KubernetesEmulator, prefix: str) -> list[str]:
    return [it["pod"] for it in cluster.processes() if it["pod"].startswith(prefix)]


def test_a_container_is_changed_in_place_by_its_name(
    asking: Asking, cluster: KubernetesEmulator, kubectl: Kube
) -> None:
    container = {"name": "main", "image": "busybox:1.37", "command": ["sleep", "300"]}
    labels = {"app": "changed"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "changed"}}
    body: dict[str, Any] = {**head, "spec": spec}

    def containers() -> list[dict[str, Any]]:
        (found,) = cluster.objects("deployments", "apps")
        told: list[dict[str, Any]] = found["spec"]["template"]["spec"]["containers"]
        return told

    kubectl.ok("apply", "-f", "-", stdin=json.dumps(body))
    kubectl.ok("set", "env", "deploy/changed", "A=b")
    side = {"name": "side", "image": "busybox:1.37"}
    patch = json.dumps({"spec": {"template": {"spec": {"containers": [side]}}}})
    kubectl.ok("patch", "deploy", "changed", "-p", patch)
    assert {it["name"]: it.get("env") for it in containers()} == {
        "main": [{"name": "A", "value": "b"}],
        "side": None,
    }
    # What is applied again is as it was applied; what others have added stays.
    container["image"] = "busybox:1.38"
    kubectl.ok("apply", "-f", "-", stdin=json.dumps(body))
    assert {it["name"]: it["image"] for it in containers()} == {
        "main": "busybox:1.38",
        "side": "busybox:1.37",
    }
    body["spec"] = {**spec, "replicas": 1}
    ran = kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(body))
    assert 'conflict with "kubectl-client-side-apply" using apps/v1: .spec.replicas' in ran.err
    kubectl.ok("delete", "deploy", "changed")


def test_models_of_the_official_client_take_what_the_cluster_makes(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    core, storage = client.CoreV1Api(asking.api), client.StorageV1Api(asking.api)
    asking.make(job("modelled", "sleep 300"))
    until(lambda: [it for it in cluster.processes() if "modelled" in it["pod"]])
    found = core.list_namespaced_pod("default", label_selector="job-name=modelled")
    (pod,) = found.items
    assert pod.status.container_statuses[0].state.running.started_at
    assert core.list_node().items[0].status.allocatable["cpu"] == "4"
    assert core.list_event_for_all_namespaces().items[0].involved_object.uid
    assert storage.list_storage_class().items[0].metadata.name == "standard"
    jobs = client.BatchV1Api(asking.api)
    assert jobs.read_namespaced_job("modelled", "default").status.active == 1
    jobs.delete_namespaced_job("modelled", "default", propagation_policy="Background")
    until(lambda: not [it for it in cluster.processes() if "modelled" in it["pod"]])

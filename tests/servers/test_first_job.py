"""The page of the first job in a cluster, line by line: kubectl and helm themselves, the operator
as its own pod from the chart.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.driving.kube_tools import tool
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.servers.operators import HANG_S, ROOT

PAGE = ROOT / "docs/how-to/first-job-in-a-cluster.md"
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    for line in block.splitlines()
]
SAYS = {
    "kubectl get jobs.fleetctl.dev": "hello",
    "kubectl get batchjob hello --output": "3 of 3 tasks succeeded",
    "kubectl describe batchjob hello": "AllSucceeded|Completed",
    "kubectl exec deploy/fleetctl-operator --namespace fleetctl -- fleetctl logs": "greeting Grace",
    "kubectl exec deploy/fleetctl-operator --namespace fleetctl -- fleetctl results": "hello, Ada",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesEmulator]:
    program = str(Path(sys.executable).with_name("fleetctl"))
    path = f"{Path(program).parent}:/usr/local/bin:/usr/bin:/bin"
    home = {"FLEETCTL_HOME": "/var/lib/fleetctl/home", "PATH": path}
    here = {str(ROOT): str(ROOT)}  # as the image has it
    images: dict[str, Any] = {"fleetctl:*": {"entrypoint": [program], "env": home, "files": here}}
    with KubernetesEmulator(images=images) as one:
        yield one


def test_the_page_is_tried_line_by_line(cluster: KubernetesEmulator, tmp_path: Path) -> None:
    assert len(COMMANDS) >= 10
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("kubectl", "helm"):
        (tools / name).symlink_to(tool(name))
    env = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "KUBECONFIG": str(cluster.kubeconfig),
        "HOME": str(tmp_path),
    }
    for command in COMMANDS:
        ran = subprocess.run(
            command, shell=True, cwd=ROOT, env=env, capture_output=True, text=True, timeout=HANG_S
        )
        pods = [
            (it["metadata"]["name"], it.get("status"))
            for it in cluster.objects("pods", "", "fleetctl")
        ]
        assert ran.returncode == 0, f"$ {command}\n{ran.stdout}{ran.stderr}\n{pods}"
        for begin, said in SAYS.items():
            if command.startswith(begin):
                assert re.search(said, ran.stdout), f"$ {command}\n{ran.stdout}"
    assert cluster.objects("jobs", "batch") == []
    assert cluster.objects("customresourcedefinitions", "apiextensions.k8s.io") == []

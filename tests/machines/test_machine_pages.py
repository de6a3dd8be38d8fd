"""The pages about machines of one's own and Slurm, tried on both through the command line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from tests.machines.container_images import containers_of, python_image
from tests.machines.machine_lives import MachineLife, SlurmLife, SshLife
from tests.machines.slurm_cluster import SlurmCluster
from tests.machines.ssh_server import SshServer

BEGIN_S = 300.0  # against a hang alone
PAGES = Path(__file__).parents[2] / "docs"
SLURM_THERE = pytest.mark.needs("slurmctld", "slurmd", "squeue", "munged")
SLURM_LONG = pytest.mark.only_all(reason="a real Slurm of three nodes")
# Waits for a command beside it, so that each verb finds it at work.
WORK = """
python3 -u -m http.server 0 --bind 127.0.0.1 >served 2>&1 &
echo begun; echo 7 >note
while [ ! -e go ]; do sleep 0.1; done
kill $!; cat note $DATA/given; echo
"""


def block_of(page: str, language: str, number: int = 0) -> str:
    text = (PAGES / page).read_text("utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[number]  # type: ignore[no-any-return]


def document_of(page: str, number: int) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(block_of(page, "yaml", number))
    return {"apiVersion": "fleetctl.dev/v1alpha1", **document}


def provider_of(page: str) -> dict[str, Any]:
    return document_of(page, 0)


def job_of(life: MachineLife, provider: str, **template: object) -> dict[str, Any]:
    at = str(life.root / "data")
    script = WORK.replace("$DATA", at)
    template = {"script": script, "volumes": [{"name": "data", "mountPath": at}], **template}
    return {
        "apiVersion": "fleetctl.dev/v1alpha1",
        "kind": "BatchJob",
        "metadata": {"name": "tried"},
        "spec": {"placement": {"provider": provider}, "template": template},
    }


def done(life: MachineLife, *words: str, stdin: str = "") -> str:
    ended = life.command(*words, stdin=stdin)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def refusal(life: MachineLife, document: dict[str, Any]) -> str:
    ended = life.command("apply", "-f", "-", stdin=json.dumps(document))
    assert ended.returncode != 0
    assert life.command("get", "job/tried").returncode != 0  # nothing is stored
    return ended.stderr


def try_verbs(life: MachineLife, document: dict[str, Any], machine: str) -> str:
    """Returns the service's name of the machine. machine: a pattern for it in `describe`."""
    given = life.root / "given"
    given.write_text("given")
    volume = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "Volume", "metadata": {"name": "data"}}
    volume["spec"] = {"provider": document["spec"]["placement"]["provider"]}
    done(life, "apply", "-f", "-", stdin=json.dumps(volume))
    done(life, "cp", str(given), "volume/data:given")
    done(life, "apply", "-f", "-", stdin=json.dumps(document))
    until_s = time.monotonic() + BEGIN_S
    while (seen := life.command("exec", "job/tried", "--", "cat", "note")).stdout != "7\n":
        assert time.monotonic() < until_s, seen.stderr
    assert fetch_through_port(life, "note") == b"7\n"
    described = done(life, "describe", "job/tried")
    assert "1 active" in described
    shown = re.search(rf"task 0 attempt 1: ({machine})\n", described)
    assert shown is not None, described
    done(life, "exec", "job/tried", "--", "touch", "go")
    logged = done(life, "logs", "-f", "job/tried").splitlines()
    assert logged[:3] == ["[0/1] begun", "[0/1] 7", "[0/1] given"]
    assert "/given" in done(life, "ls", "volume/data:").split()
    assert shown[1] in done(life, "describe", "job/tried")  # also after its end
    attempts = json.loads(done(life, "get", "attempts", "job/tried", "-o", "json"))["items"]
    assert [it["status"]["machine"] for it in attempts] == [shown[2]]
    return shown[2]


def fetch_through_port(life: MachineLife, name: str) -> bytes:
    """Returns a file that the task serves, by `port-forward`."""
    until_s = time.monotonic() + BEGIN_S
    words = ("exec", "job/tried", "--", "cat", "served")
    while (port := re.search(r"port (\d+)", life.command(*words).stdout)) is None:
        assert time.monotonic() < until_s

    command = [sys.executable, "-m", "fleetctl", "port-forward", "job/tried", f"0:{port[1]}"]
    with subprocess.Popen(command, env=life.env, stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout is not None
        address = forward.stdout.readline().strip()
        assert address not in ("", f"127.0.0.1:{port[1]}")
        try:
            with urllib.request.urlopen(f"http://{address}/{name}", timeout=BEGIN_S) as reply:
                return bytes(reply.read())
        finally:
            forward.send_signal(signal.SIGINT)
            assert forward.wait(BEGIN_S) == 130


@pytest.mark.needs("sshd")
def test_the_page_about_machines_of_ones_own(tmp_path: Path) -> None:
    provider = provider_of("how-to/run-on-your-own-machines.md")
    with SshServer(tmp_path / "server") as server:
        (tmp_path / "life").mkdir()
        life = SshLife(tmp_path / "life", Random(1), server)
        ssh = provider["spec"]["ssh"]
        page_host = next(it for it in ssh["hosts"] if isinstance(it, dict) and "slots" in it)
        ssh["hosts"] = [{**page_host, **server.host, "directory": str(life.machine)}]
        ssh["config"] = str(server.config)
        try:
            done(life, "apply", "-f", "-", stdin=json.dumps(provider))
            assert "0 of 2 slots taken" in life.command("doctor").stdout
            assert "lab" in done(life, "get", "providers")
            job = job_of(life, "lab", resources={"cpu": 1, "memory": "256Mi"})
            for image, said in (
                ({"apt": ["jq"]}, "its machines are used as they are"),
                ({"registry": "debian:12", "pip": ["jq"]}, "adds no `image.pip` to an image"),
            ):
                assert said in refusal(life, job_of(life, "lab", image=image))
            try_verbs(life, job, r"host (127\.0\.0\.1:\d+)")
        finally:
            assert life.end() == []


@pytest.mark.needs("sshd", "podman", "runc")
def test_the_part_about_images_of_a_registry(tmp_path: Path) -> None:
    page = "how-to/run-on-your-own-machines.md"
    job, provider = document_of(page, 1), document_of(page, 2)
    # Its registry is out of reach of the tests; another name for an image of this machine.
    image = job["spec"]["template"]["image"]
    image["registry"] = python_image()
    job["spec"]["template"]["command"] = ["sh", "-c", "cat /etc/made-for; echo $STAGE"]
    with SshServer(tmp_path / "server") as server:
        (tmp_path / "life").mkdir()
        life = SshLife(tmp_path / "life", Random(1), server)
        ssh = provider["spec"]["ssh"]
        ssh["hosts"] = [{**server.host, "directory": str(life.machine)}]
        ssh["config"] = str(server.config)
        try:
            done(life, "apply", "-f", "-", stdin=json.dumps(provider))
            assert "containers by podman" in life.command("doctor").stdout
            done(life, "apply", "-f", "-", "--wait", "--timeout", "5m", stdin=json.dumps(job))
            logged = done(life, "logs", "job/in-an-image").splitlines()
            assert logged == ["[0/1] tests of fleetctl", "[0/1] trial"]
            tried = job_of(life, "lab", image={"registry": python_image()})
            try_verbs(life, tried, r"host (127\.0\.0\.1:\d+)")
        finally:
            assert life.end() == []
        assert containers_of(life.machine) == []


@pytest.fixture
def slurm(tmp_path: Path) -> Any:
    with SlurmCluster(tmp_path / "cluster") as one:
        (tmp_path / "life").mkdir()
        life = SlurmLife(tmp_path / "life", Random(1), one)
        provider = provider_of("how-to/run-on-slurm.md")
        page = provider["spec"]["slurm"]
        options = {"sharedDir": str(life.machine), "options": page["options"]}
        provider["spec"]["slurm"] = {**options, "partition": "debug"}
        done(life, "apply", "-f", "-", stdin=json.dumps(provider))
        try:
            yield life
        finally:
            assert life.end() == []


@SLURM_THERE
@SLURM_LONG
def test_the_page_about_slurm(slurm: SlurmLife) -> None:
    asked = {"resources": {"cpu": 1, "memory": "100Mi", "gpu": "any:1"}, "timeoutSeconds": "1h"}
    number = try_verbs(slurm, job_of(slurm, "cluster", **asked), r"Slurm job (\d+)")
    shown = slurm.cluster.run("scontrol", "show", "job", "-o", number)
    assert "Comment=batchjob/tried " in shown
    for field in ("CPUs/Task=1", "MinMemoryNode=100M", "TimeLimit=01:06:00", "gres:gpu:1"):
        assert field in shown
    assert "Nice=10 " in shown


@SLURM_THERE
@SLURM_LONG
def test_the_page_for_users_of_submitit(slurm: SlurmLife) -> None:
    page = block_of("coming-from/slurm.md", "py")
    # Its nodes are small.
    text = page.replace("mem_gb=32", 'mem_gb=1, on="cluster"')
    assert text != page
    (slurm.root / "work.py").write_text("def train(lr):\n    return lr * 2\n")
    (slurm.root / "sweep.py").write_text(text)
    words = [sys.executable, "sweep.py"]
    env = {**slurm.env, "PYTHONPATH": str(slurm.root)}
    shown = subprocess.run(words, cwd=slurm.root, env=env, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == "0.2 [0.2, 0.4, 0.6]\n"
    jobs = json.loads(done(slurm, "get", "jobs", "-o", "json"))["items"]
    assert len(jobs) > 0

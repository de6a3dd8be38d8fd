"""Jobs, claims and images as they are made of orders and Provider objects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.kubernetes.gangs.conclusion import EOF
from fleetctl.providers.kubernetes.manifests import claims, entry, jobs
from fleetctl.providers.kubernetes.manifests.images import image_of
from fleetctl.providers.kubernetes.manifests.labels import tags_of
from fleetctl.providers.kubernetes.runs.story import frames_of
from fleetctl.providers.prices.own import usd_per_s
from fleetctl.providers.remote.sandboxes import names
from fleetctl.providers.remote.sandboxes.base import At
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.prices import Prices
from fleetctl.specs.blocks.resources import Resources
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.provider import ProviderSpec

CONFIG_MAP_BYTES_MAX = 1024 * 1024


def job(template: dict[str, Any], settings: dict[str, Any] | None = None) -> dict[str, Any]:
    made = Template.model_validate({"script": "true", **template})
    known = ClusterSettings.model_validate(settings or {})
    request = RunRequest(
        "fl-abc", "fl-abc", "store", "uid", "batchjob/x", 3, 1, made, "hash", {}, reusable=False
    )
    tags = names.tags(request, "store", 5.0)
    volumes = {it.name: claims.claim_name(it.name) for it in made.volumes}
    return jobs.job(
        jobs.Made(request, tags, image_of(made, known), volumes, 100.0, 600.0, 50.0), known
    )


def test_a_job_is_named_as_its_run_carries_our_marks_and_retries_nothing() -> None:
    made = job({"terminationGracePeriodSeconds": 30})
    assert made["metadata"]["name"] == "fl-abc"
    for carrier in (made, made["spec"]["template"]):
        assert names.is_of(tags_of(carrier), "store", "fl-abc")
        assert tags_of(carrier)["index"] == "3"
    spec = made["spec"]
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (0, "Failed")
    assert spec["ttlSecondsAfterFinished"] == 50
    assert spec["activeDeadlineSeconds"] == 100 + 86_400
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["activeDeadlineSeconds"]) == ("Never", 100)
    assert pod["terminationGracePeriodSeconds"] == 50
    assert pod["automountServiceAccountToken"] is False
    assert "finalizers" not in made["metadata"]
    [rule] = spec["podFailurePolicy"]["rules"]
    assert rule["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]


def test_what_a_provider_object_says_is_in_the_pod() -> None:
    made = job(
        {"resources": {"cpu": "500m", "memory": "1Gi", "disk": "2Gi", "gpu": "A100:2"}},
        {
            "kueueQueue": "team",
            "serviceAccount": "trainer",
            "priorityClass": "batch",
            "runtimeClass": "gvisor",
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "imagePullSecrets": ["registry"],
        },
    )
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    pod = made["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "trainer"
    assert pod["automountServiceAccountToken"] is True
    assert (pod["priorityClassName"], pod["runtimeClassName"]) == ("batch", "gvisor")
    assert pod["nodeSelector"] == {"pool": "gpu", "nvidia.com/gpu.product": "A100"}
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    [main] = pod["containers"]
    assert main["resources"]["limits"] == main["resources"]["requests"]
    assert main["resources"]["limits"] == {
        "cpu": "500m",
        "memory": str(1024**3),
        "ephemeral-storage": str(2 * 1024**3),
        "nvidia.com/gpu": "2",
    }
    shared = {"medium": "Memory", "sizeLimit": str(1024**3)}
    assert {"name": "fleetctl-shm", "emptyDir": shared} in pod["volumes"]


@pytest.mark.parametrize(
    ("template", "image"),
    [
        ({}, "python:3.12-slim-bookworm"),
        ({"image": {"python": "3.11.9"}}, "python:3.11.9-slim-bookworm"),
        ({"image": {"pip": ["a"]}}, "ghcr.io/astral-sh/uv:python3.12-bookworm-slim"),
        ({"image": "pytorch/pytorch"}, "pytorch/pytorch"),
        ({"source": {"git": {"url": "https://a/b"}}}, "python:3.12-bookworm"),
    ],
)
def test_an_image_is_taken_as_it_is_or_a_plain_python(template: dict[str, Any], image: str) -> None:
    [main] = job(template)["spec"]["template"]["spec"]["containers"]
    assert main["image"] == image


@pytest.mark.parametrize(
    ("image", "steps"),
    [
        (
            {"apt": ["git", "jq"], "pip": ["a>=1"], "run": ["echo 'x' >/x"]},
            "FROM python:3.12-slim-bookworm\n"
            "RUN apt-get update && apt-get install -y --no-install-recommends git jq\n"
            "RUN pip install 'a>=1'\n"
            "RUN echo 'x' >/x\n",
        ),
        ({"run": ["true"]}, "FROM python:3.12-slim-bookworm\nRUN true\n"),
        ({"registry": "a", "pip": ["b"]}, "FROM a\nRUN pip install b\n"),
        ({"run": ["true\nfalse"]}, None),
        ({"registry": "a", "python": "3.11"}, None),
        ({"snapshot": "x"}, None),
    ],
)
def test_what_only_a_build_could_make_is_refused_with_a_way_out(
    image: dict[str, Any], steps: str | None
) -> None:
    """Where one line can, the hint is the command that builds it."""
    with pytest.raises(Refused) as caught:
        job({"image": image})
    assert caught.value.hint
    _, _, line = caught.value.hint.partition(": printf ")
    assert bool(line) == (steps is not None), caught.value.hint
    if steps is not None:
        command, _, builder = line.rpartition(" | ")
        said = subprocess.run(["sh", "-c", f"printf {command}"], capture_output=True, text=True)
        assert (said.stdout, builder) == (steps, "docker build -t REGISTRY/NAME -")


def test_the_guest_fits_into_one_config_map_whose_name_is_its_content() -> None:
    made = entry.files()
    assert sum(len(text.encode()) for text in made["data"].values()) < CONFIG_MAP_BYTES_MAX * 0.8
    assert made["immutable"] is True
    assert made["metadata"]["name"] == entry.files_name()


@pytest.mark.parametrize("name", ["entry.sh", "prepare.sh"])
def test_a_shell_reads_what_pods_begin_with(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(entry.files()["data"][name])
    done = subprocess.run(["sh", "-n", str(tmp_path / name)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pod_of_many_runs_tells_all_of_them_and_asks_its_guest_about_few(tmp_path: Path) -> None:
    """Each question is a Python of its own, and the pod's end waits for all of them."""
    runs, asked = tmp_path / "runs", tmp_path / "asked"
    runs.mkdir()
    data = entry.files()["data"]
    (tmp_path / "guest.py").write_text(data["guest.py"])
    (tmp_path / "guest.sh").write_text("exit 0\n")  # its idling ends, as at the end of a life
    guest = tmp_path / "guest"
    guest.write_text(f'echo "$*" >>{asked}\nexec {sys.executable} -IS {tmp_path}/guest.py "$@"\n')
    story = '{"e":"started","at":1,"keeper":"k","note":""}\n'
    ended = '{"e":"ended","at":2,"ok":true,"infra":false,"reason":"Completed","exit":0}\n'
    for number, name in enumerate(("a", "b", "served", "unended", "newest")):
        (runs / f"{name}.begun").touch()
        os.utime(runs / f"{name}.begun", (number, number))
        (runs / f"{name}.jsonl").write_text(story + (ended if name != "unended" else ""))
    (runs / "served.services").write_text("database")
    script = data["entry.sh"].replace(entry.STATE_DIR, str(tmp_path))
    script = script.replace(entry.HERE + "/", f"{tmp_path}/")
    words = ["sh", "-c", script, "entry.sh", "1", "sh", str(guest)]
    told = subprocess.run(words, capture_output=True, check=True).stdout
    for name in ("a", "b", "served", "newest"):
        assert frames_of(told, name, At(0, 0)) == (story + ended).encode() + EOF
        assert frames_of(told, name, At(len(story), 0)) == ended.encode() + EOF
    assert frames_of(told, "unended", At(0, 0)).startswith(story.encode())
    questions = asked.read_text().splitlines()
    assert sorted(it.split()[4] for it in questions) == ["newest", "served", "unended"]


def test_a_claim_has_its_volumes_name_where_kubernetes_takes_it() -> None:
    assert claims.claim_name("data") == "data"
    assert claims.claim_name("team.data") == "team.data"
    assert claims.claim_name("Data_2").startswith("volume-")
    settings = ClusterSettings.model_validate({"volumes": {"storageClass": "fast", "size": "1Gi"}})
    made = claims.claim("data", settings.volumes)
    assert claims.is_ours(made)
    assert made["spec"]["storageClassName"] == "fast"
    assert made["spec"]["resources"]["requests"]["storage"] == str(1024**3)


@pytest.mark.parametrize(
    ("prices", "resources", "usd_per_hour"),
    [
        ({"cpu": 0.1, "memory": 0.01}, {"cpu": 4, "memory": "8Gi"}, 0.48),
        ({"perHour": 1.0, "cpu": 0.5}, {"cpu": 2}, 2.0),
        ({"cpu": 0.1, "gpu": {"A100": 2.0}}, {"cpu": 1, "gpu": "A100:2"}, 4.1),
        ({"cpu": 0.1}, {"memory": "8Gi"}, None),  # how many cores nobody knows
        ({"memory": 0.1, "gpu": {"A100": 2.0}}, {"memory": "1Gi", "gpu": "H100"}, None),
    ],
)
def test_a_cluster_costs_what_its_provider_object_says(
    prices: dict[str, Any], resources: dict[str, Any], usd_per_hour: float | None
) -> None:
    asked = Resources.model_validate(resources)
    usd = usd_per_s(Prices.model_validate(prices), asked)
    assert usd == (None if usd_per_hour is None else pytest.approx(usd_per_hour / 3600))


def test_only_a_cluster_has_a_kubernetes_block() -> None:
    with pytest.raises(ValueError, match="is no cluster"):
        ProviderSpec.model_validate({"type": "modal", "kubernetes": {"namespace": "x"}})
    with pytest.raises(ValueError, match="exactly one of `claim` and `hostPath`"):
        ClusterSettings.model_validate({"packageCache": {}})
    with pytest.raises(ValueError, match="may hold"):
        ClusterSettings.model_validate({"pythonImage": "python:{version}"})

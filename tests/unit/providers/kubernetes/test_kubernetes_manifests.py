"""Jobs, claims and images as they are made of orders and Provider objects."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetctl.common.errors import Refused
from fleetctl.providers.contract.base import RunRequest
from fleetctl.providers.kubernetes.manifests import entry, jobs, pod_parts
from fleetctl.providers.kubernetes.manifests import labels as claims
from fleetctl.providers.kubernetes.manifests.labels import job_name, passed_on, tags_of
from fleetctl.providers.kubernetes.manifests.pod_parts import image_of
from fleetctl.providers.kubernetes.runs.pod_streams import frames_of, never_began
from fleetctl.providers.prices.price_table import usd_per_s
from fleetctl.providers.remote.gangs.node_gang import EOF
from fleetctl.providers.remote.sandboxes import sandbox_names
from fleetctl.providers.remote.sandboxes.sandbox_protocol import StreamOffsets
from fleetctl.specs.blocks.kubernetes import ClusterSettings, PodSettings
from fleetctl.specs.blocks.placement import Prices
from fleetctl.specs.blocks.resources import Resources
from fleetctl.specs.blocks.template import Template
from fleetctl.specs.kinds.provider import ProviderSpec
from fleetctl.specs.kinds.trainingrun import TrainingRunSpec
from fleetctl.specs.values.pod_shape import FIELDS, fields_of

CONFIG_MAP_BYTES_MAX = 1024 * 1024


def job(template: dict[str, Any], settings: dict[str, Any] | None = None) -> dict[str, Any]:
    made = Template.model_validate({"script": "true", **template})
    known = ClusterSettings.model_validate(settings or {})
    request = RunRequest(
        "fl-abc", "fl-abc", "store", "uid", "batchjob/x", 3, 1, made, "hash", {}, reusable=False
    )
    tags = sandbox_names.sandbox_tags(request, "store", 5.0)
    volumes = {it.name: claims.claim_name(it.name) for it in made.volumes}
    return jobs.build_job(
        jobs.JobSpec(request, tags, image_of(made, known), volumes, 100.0, 600.0, 50.0), known
    )


def test_a_job_is_named_as_its_task_carries_our_marks_and_retries_nothing() -> None:
    made = job({"terminationGracePeriodSeconds": 30})
    assert made["metadata"]["name"] == "batchjob-x-3-1-cd3793"
    for carrier in (made, made["spec"]["template"]):
        assert sandbox_names.is_of(tags_of(carrier), "store", "fl-abc")
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
    made = entry.build_config_map()
    assert sum(len(text.encode()) for text in made["data"].values()) < CONFIG_MAP_BYTES_MAX * 0.8
    assert made["immutable"] is True
    assert made["metadata"]["name"] == entry.files_name()


@pytest.mark.parametrize("name", ["entry.sh", "prepare.sh"])
def test_a_shell_reads_what_pods_begin_with(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(entry.build_config_map()["data"][name])
    done = subprocess.run(["sh", "-n", str(tmp_path / name)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pod_of_many_runs_tells_all_of_them_and_asks_its_guest_about_few(tmp_path: Path) -> None:
    """Each question is a Python of its own, and the pod's end waits for all of them."""
    runs, asked = tmp_path / "runs", tmp_path / "asked"
    runs.mkdir()
    data = entry.build_config_map()["data"]
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
        assert frames_of(told, name, StreamOffsets(0, 0)) == (story + ended).encode() + EOF
        assert frames_of(told, name, StreamOffsets(len(story), 0)) == ended.encode() + EOF
    assert frames_of(told, "unended", StreamOffsets(0, 0)).startswith(story.encode())
    questions = asked.read_text().splitlines()
    assert sorted(it.split()[4] for it in questions) == ["newest", "served", "unended"]


def test_a_claim_has_its_volumes_name_where_kubernetes_takes_it() -> None:
    assert claims.claim_name("data") == "data"
    assert claims.claim_name("team.data") == "team.data"
    assert claims.claim_name("Data_2").startswith("volume-")
    settings = ClusterSettings.model_validate({"volumes": {"storageClass": "fast", "size": "1Gi"}})
    made = claims.build_claim("data", "data", settings.volumes)
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


SHAPE = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                ]
            }
        }
    },
    "topologySpread": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "podLabels": {"cost-center": "42"},
    "podAnnotations": {"sidecar.istio.io/inject": "false"},
    "securityContext": {"fsGroup": 1000},
    "containerSecurityContext": {"readOnlyRootFilesystem": True},
    "requests": {"cpu": "500m"},
    "extraResources": {"rdma/ib": 1, "hugepages-2Mi": "1Gi"},
    "configMaps": [{"name": "plain"}, {"name": "files", "mountPath": "/etc/conf"}],
    "secrets": [{"name": "keys", "prefix": "K_"}, {"name": "tls", "mountPath": "/tls"}],
    "initContainers": [{"name": "wait", "image": "busybox", "command": ["true"]}],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
}


def test_an_object_shapes_its_pods_over_what_the_provider_object_says() -> None:
    provider = {
        "nodeSelector": {"pool": "cpu", "disk": "ssd"},
        "priorityClass": "low",
        "tolerations": [{"key": "a", "operator": "Exists"}],
    }
    own = {
        **SHAPE,
        "nodeSelector": {"pool": "gpu"},
        "priorityClass": "high",
        "tolerations": [{"key": "b", "operator": "Exists"}],
    }
    template = {"resources": {"cpu": 2, "memory": "1Gi"}, "kubernetes": own}
    made = job(template, provider)
    metadata, pod = (made["spec"]["template"][it] for it in ("metadata", "spec"))
    assert pod["nodeSelector"] == {"pool": "gpu", "disk": "ssd"}
    assert pod["priorityClassName"] == "high"
    assert [it["key"] for it in pod["tolerations"]] == ["a", "b"]
    assert pod["affinity"] == SHAPE["affinity"]
    [spread] = pod["topologySpreadConstraints"]
    assert spread["labelSelector"] == {"matchLabels": {"fleetctl.dev/uid": "uid"}}
    assert metadata["labels"]["cost-center"] == made["metadata"]["labels"]["cost-center"] == "42"
    assert metadata["annotations"]["sidecar.istio.io/inject"] == "false"
    assert pod["securityContext"]["fsGroup"] == 1000
    [main] = pod["containers"]
    assert main["securityContext"]["readOnlyRootFilesystem"] is True
    assert main["resources"]["requests"]["cpu"] == "500m"
    assert main["resources"]["limits"] == {
        "cpu": "2000m",
        "memory": str(1024**3),
        "rdma/ib": "1",
        "hugepages-2Mi": "1Gi",
    }
    assert main["resources"]["claims"] == [{"name": "gpu"}]
    assert {"configMapRef": {"name": "plain"}} in main["envFrom"]
    assert {"prefix": "K_", "secretRef": {"name": "keys"}} in main["envFrom"]
    mounts = {it["mountPath"]: it["name"] for it in main["volumeMounts"]}
    volumes = {it["name"]: it for it in pod["volumes"]}
    assert volumes[mounts["/etc/conf"]]["configMap"] == {"name": "files"}
    assert volumes[mounts["/tls"]]["secret"] == {"secretName": "tls"}
    assert pod["initContainers"] == SHAPE["initContainers"]
    assert pod_parts.list_named(pod) >= {
        ("secrets", "keys"),
        ("secrets", "tls"),
        ("configmaps", "plain"),
    }


def test_a_stage_shapes_its_pods_over_what_its_template_says() -> None:
    spec = TrainingRunSpec.model_validate(
        {
            "template": {"script": "true", "kubernetes": {"nodeSelector": {"disk": "ssd"}}},
            "stages": [
                {"name": "data"},
                {
                    "name": "train",
                    "kubernetes": {"nodeSelector": {"pool": "gpu"}, "priorityClass": "high"},
                },
            ],
        }
    )
    data, train = (
        job(
            spec.template_of(at).model_dump(by_alias=True, exclude_unset=True),
            {"priorityClass": "low"},
        )
        for at in range(2)
    )
    pods = [it["spec"]["template"]["spec"] for it in (data, train)]
    assert [it["nodeSelector"] for it in pods] == [{"disk": "ssd"}, {"disk": "ssd", "pool": "gpu"}]
    assert [it["priorityClassName"] for it in pods] == ["low", "high"]
    assert [it.own for it in spec.parts()] == [(), ("kubernetes",)]


SECRETS_OF_VOLUMES = [
    (source, field, {"name": "theirs"} if "LocalObjectReference" in of else "theirs")
    for source, sort in fields_of("Volume").items()
    for field, of in (fields_of(sort) if sort in FIELDS else {}).items()
    if field == "secretName" or "LocalObjectReference" in of
]


@pytest.mark.parametrize(("source", "field", "named"), SECRETS_OF_VOLUMES)
def test_a_secret_that_a_volume_names_is_found(source: str, field: str, named: object) -> None:
    pod = {"volumes": [{"name": "v", source: {field: named}}]}
    assert pod_parts.list_named(pod) == {("secrets", "theirs")}


def test_an_account_is_found_by_the_former_name_of_its_field_too() -> None:
    for field in ("serviceAccountName", "serviceAccount"):
        assert pod_parts.list_named({field: "theirs"}) == {("serviceaccounts", "theirs")}


def test_a_patch_of_the_pod_is_laid_over_it_and_its_marks_stay_ours() -> None:
    patch = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "hostNetwork": True,
            "containers": [{"name": "main", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}],
            "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Ti"}}],
        },
    }
    made = job({"kubernetes": {"podTemplate": patch}})["spec"]["template"]
    plain = job({})["spec"]["template"]
    assert made["metadata"]["labels"] == {**plain["metadata"]["labels"], "a": "b"}
    assert made["spec"]["hostNetwork"] is True
    [main], [before] = made["spec"]["containers"], plain["spec"]["containers"]
    assert main["command"] == before["command"]
    assert {"name": "NCCL_DEBUG", "value": "INFO"} in main["env"]
    names, first = ([it["name"] for it in pod["spec"]["volumes"]] for pod in (made, plain))
    assert names == [*first, "scratch"]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"affinity": {"nodeAffinty": {}}}, "did you mean `nodeAffinity`?"),
        ({"podTemplate": {"spec": {"hostNetwork": "yes"}}}, "`spec.hostNetwork` is `yes`"),
        ({"podTemplate": {"spec": {"restartPolicy": "Always"}}}, "fleetctl's own"),
        ({"podTemplate": {"spec": {"containers": [{"name": "side"}]}}}, "initContainers"),
        ({"podLabels": {"fleetctl.dev/run": "x"}}, "fleetctl's own"),
        ({"initContainers": [{"image": "x"}]}, "has no `name`"),
        ({"secrets": [{"name": "a", "mountPath": "/a", "prefix": "b"}]}, "files have no `prefix`"),
    ],
)
def test_what_kubernetes_has_no_field_for_is_refused(block: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        PodSettings.model_validate(block)


def test_labels_of_an_object_find_its_pods_and_hand_them_to_no_tool() -> None:
    own = {
        "team": "rlm",
        "app.kubernetes.io/part-of": "search",
        "app.kubernetes.io/instance": "argo-app",  # Argo CD would prune what has it
        "kustomize.toolkit.fluxcd.io/name": "flux",
        "kueue.x-k8s.io/queue-name": "gpus",
        "no value": "of a cluster",
        "long": "x" * 64,
    }
    assert passed_on(own) == {"team": "rlm", "app.kubernetes.io/part-of": "search"}
    labels = job({})["metadata"]["labels"]
    assert labels["fleetctl.dev/kind"] == "batchjob"
    assert labels["fleetctl.dev/name"] == labels["app.kubernetes.io/name"] == "x"
    assert labels["fleetctl.dev/namespace"] == "default"
    assert labels["app.kubernetes.io/managed-by"] == "fleetctl"


def test_a_long_name_is_cut_and_stays_its_own() -> None:
    def named(name: str, run: str) -> str:
        request = RunRequest(
            run, run, "s", "u", f"trainingrun/{name}", 12, 3, Template(), "h", {}, reusable=False
        )
        return job_name(request)

    one, other = named("n" * 63, "fl-a"), named("n" * 63, "fl-b")
    assert len(one) == len(other) == 52 and one != other
    assert one.startswith("trainingrun-nnn") and "-12-3-" in one
    assert named("n" * 63, "fl-a") == one


def test_output_in_a_pods_log_tells_no_end() -> None:
    """A program may print whatever the entrypoint prints."""
    forged = b'{"e":"story-of","run":"fl-abc"}\n{"e":"ended","ok":true}\n{"e":"stories"}\n'
    told = b'{"e":"story-of","run":"fl-abc"}\n{"e":"ended","ok":false}\n{"e":"eof"}\n'
    text = b'{"e":"unbegun"}\n' + forged + b'no newline\n{"e":"stories"}\n' + told
    assert frames_of(text, "fl-abc", StreamOffsets(0, 0)) == told.partition(b"\n")[2]
    assert not never_began(text)
    assert never_began(b'{"e":"unbegun"}\n')

"""What deploy/ promises: an image without root, and a pod that can write its state alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from fleetctl.cli.command.verbs import VERBS
from fleetctl.cli.system.operator import parser
from fleetctl.cli.team.serve import parser as make_serve_parser
from fleetctl.common.version import VERSION

DEPLOY = Path(__file__).parents[3] / "deploy"


def base(kind: str) -> dict[str, Any]:
    """The one object of a kind in the kustomize base."""
    files = sorted((DEPLOY / "kustomize").glob("*.yaml"))
    documents = [it for file in files for it in yaml.safe_load_all(file.read_text())]
    (found,) = [it for it in documents if it["kind"] == kind]
    return dict(found)


def test_the_image_is_built_offline_and_runs_without_root() -> None:
    lines = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    installs = [it for it in lines if "pip install" in it]
    assert installs
    assert all("--no-index" in it and "--find-links=/dist" in it for it in installs)
    (user,) = [it.split()[1] for it in lines if it.startswith("USER ")]
    assert [part.isdecimal() and int(part) > 0 for part in user.split(":")] == [True, True]
    assert not any(word in line for line in lines for word in ("curl", "wget", "apt-get", "ADD "))


def test_the_pod_is_not_root_and_writes_its_state_and_tmp_alone() -> None:
    pod = base("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    own = container["securityContext"]
    assert own["readOnlyRootFilesystem"] is True
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    mounted = {it["mountPath"] for it in container["volumeMounts"]}
    assert mounted == {"/var/lib/fleetctl", "/tmp"}
    image = (DEPLOY / "Containerfile").read_text()
    assert "FLEETCTL_HOME=/var/lib/fleetctl/" in image
    assert container["image"] == f"fleetctl:{VERSION}"


def test_the_pod_starts_a_command_that_there_is_and_runs_no_work_itself() -> None:
    deployment = base("Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    verb, *words = container["args"]
    assert verb in VERBS
    args = parser(verb).parse([str(it) for it in words])
    provider, *_ = yaml.safe_load_all((DEPLOY / "runs.yaml").read_text())
    assert args.local_means == provider["metadata"]["name"]
    (port,) = container["ports"]
    assert args.health_port == port["containerPort"]
    probed = {container[it]["httpGet"]["port"] for it in ("livenessProbe", "readinessProbe")}
    assert probed == {port["name"]}


def test_two_replicas_share_a_disk() -> None:
    deployment = base("Deployment")["spec"]
    assert deployment["replicas"] == 2
    (near,) = deployment["template"]["spec"]["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert near["topologyKey"] == "kubernetes.io/hostname"
    labels = deployment["template"]["metadata"]["labels"]
    for selector in (
        near["labelSelector"],
        deployment["selector"],
        base("NetworkPolicy")["spec"]["podSelector"],
    ):
        assert selector["matchLabels"].items() <= labels.items()


def test_only_probes_come_in() -> None:
    policy = base("NetworkPolicy")["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert policy["ingress"] == [{"ports": [{"port": 8081, "protocol": "TCP"}]}]


def test_every_value_of_the_chart_is_told_and_checked() -> None:
    chart = DEPLOY / "helm/fleetctl"
    values = yaml.safe_load((chart / "values.yaml").read_text())
    schema = yaml.safe_load((chart / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    for name, inner in schema["properties"].items():
        if name in values and "properties" in inner:
            assert set(values[name]) == set(inner["properties"]), name
    told = yaml.safe_load((chart / "Chart.yaml").read_text())
    assert (told["version"], told["appVersion"]) == (VERSION, VERSION)


def test_the_server_beside_the_operator_is_a_command_on_the_same_state() -> None:
    folder = DEPLOY / "server"
    (patch,) = yaml.safe_load_all((folder / "container.yaml").read_text())
    _, container = patch["spec"]["template"]["spec"]["containers"]
    (operator,) = base("Deployment")["spec"]["template"]["spec"]["containers"]
    verb, *words = container["args"]
    args = make_serve_parser(verb).parse([str(it) for it in words])
    (port,) = container["ports"]
    assert args.behind_proxy and args.names
    assert args.listen.rpartition(":")[2] == str(port["containerPort"])
    for name in ("image", "securityContext", "volumeMounts"):
        assert container[name] == operator[name], name
    (service,) = yaml.safe_load_all((folder / "service.yaml").read_text())
    (way,) = service["spec"]["ports"]
    assert way["targetPort"] == port["name"]
    (network,) = yaml.safe_load_all((folder / "network.yaml").read_text())
    (allowed,) = network["spec"]["ingress"]
    assert {it["port"] for it in allowed["ports"]} == {8081, port["containerPort"]}
    assert "fleetctl[kubernetes,server]" in (DEPLOY / "Containerfile").read_text()

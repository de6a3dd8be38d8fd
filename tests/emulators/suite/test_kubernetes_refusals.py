"""What a real API server 1.36 refuses, in its words: each row was seen there."""

from __future__ import annotations

import copy
import json
import ssl
import urllib.request
from typing import Any

import pytest
import yaml

from tests.emulators.driving.kube_tools import Kube
from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.emulators.suite.kubernetes_driving import (
    DEFINITION,
    Asking,
    asking,
    cluster,
    job,
    kubectl,
    refusal,
    until,
)

__all__ = ["asking", "cluster", "kubectl"]

Object = dict[str, Any]
OPEN = {"x-kubernetes-preserve-unknown-fields": True}
RULES = "x-kubernetes-validations"
LONG = {"type": "array", "items": {"type": "string"}}


def defined(plural: str, spec: Object) -> Object:
    """A CRD whose spec has this schema."""
    made: Object = copy.deepcopy(DEFINITION)
    made["metadata"]["name"] = f"{plural}.example.com"
    made["spec"]["names"] = {"plural": plural, "kind": plural.capitalize()}
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec
    made["spec"]["versions"][0].pop("additionalPrinterColumns")
    made["spec"]["versions"][0].pop("subresources")
    return made


def ruled(rule: str, **fields: Object) -> Object:
    return {"type": "object", "properties": fields, RULES: [{"rule": rule}]}


# (schema of the spec, what the server says of it; empty: it takes it)
SCHEMAS: dict[str, tuple[Object, str]] = {
    "a list of anything is no field of a rule": (
        ruled("!has(self.items)", items={"type": "array", "items": OPEN}),
        "compilation failed: ERROR: <input>:1:11: undefined field 'items'",
    ),
    "a list of maps of anything is none": (
        ruled(
            "!has(self.rows)",
            rows={"type": "array", "items": {"type": "object", "additionalProperties": OPEN}},
        ),
        "undefined field 'rows'",
    ),
    "a map of lists of anything is none": (
        ruled(
            "!has(self.matrix)",
            matrix={
                "type": "object",
                "additionalProperties": {"type": "array", "items": OPEN},
            },
        ),
        "undefined field 'matrix'",
    ),
    "an object of anything is one": (ruled("!has(self.any)", any={"type": "object", **OPEN}), ""),
    "what may be a number or a text is one": (
        ruled("has(self.n)", n={"x-kubernetes-int-or-string": True}),
        "",
    ),
    "a name that the schema does not have": (
        ruled("self.paralelism > 0", parallelism={"type": "integer"}),
        "undefined field 'paralelism'",
    ),
    "a text is not compared with a number": (
        ruled("self.word == 1", word={"type": "string"}),
        "found no matching overload for '_==_' applied to '(string, int)'",
    ),
    "a rule is true or false": (
        ruled("self.n + 1", n={"type": "integer"}),
        "must evaluate to a bool",
    ),
    "a variable that there is not": (
        ruled("object.n > 1", n={"type": "integer"}),
        "undeclared reference to 'object'",
    ),
    "a word of CEL's own is written with underscores": (
        ruled("self.__namespace__ == 'x'", namespace={"type": "string"}),
        "",
    ),
    "loops over lists without a limit cost too much": (
        ruled("self.a.all(x, self.a.all(y, x == y))", a=LONG),
        "estimated rule cost exceeds budget by factor of more than 100x",
    ),
    "loops over short ones do not": (
        ruled("self.a.all(x, self.a.all(y, x == y))", a={**LONG, "maxItems": 10}),
        "",
    ),
    "a field has a type": (
        {"type": "object", "properties": {"a": {"description": "of any"}}},
        "properties[a].type: Required value: must not be empty for specified object fields",
    ),
    "a list has items": (
        {"type": "object", "properties": {"a": {"type": "array"}}},
        "properties[a].items: Required value: must be specified",
    ),
    "fields and a map of others exclude each other": (
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "additionalProperties": {"type": "string"},
        },
        "additionalProperties and properties are mutual exclusive",
    ),
    "nothing is referred to": (
        {"type": "object", "properties": {"a": {"type": "object", "$ref": "#/x"}}},
        "$ref is not supported",
    ),
    "a pattern does not look around": (
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?!x)"}}},
        "must be a valid regular expression",
    ),
}


@pytest.mark.parametrize("case", list(SCHEMAS))
def test_a_definition_is_refused_as_the_real_server_refuses_it(asking: Asking, case: str) -> None:
    schema, words = SCHEMAS[case]
    body = defined(f"case{list(SCHEMAS).index(case)}s", schema)
    if not words:
        asking.make(body)
        return
    told = refusal(lambda: asking.make(body))
    assert (told["code"], told["reason"]) == (422, "Invalid")
    assert words in told["message"]
    assert "spec.validation.openAPIV3Schema.properties[spec]" in told["message"]


def test_a_limit_beyond_what_json_numbers_carry_refuses_every_value(asking: Asking) -> None:
    seed = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
    asking.make(defined("seeds", {"type": "object", "properties": {"seed": seed}}))
    head = {"apiVersion": "example.com/v1", "kind": "Seeds", "metadata": {"name": "x"}}
    until(lambda: asking.kind("Seeds", "example.com/v1"))
    asking.make({**head, "metadata": {"name": "none"}, "spec": {}})
    told = refusal(lambda: asking.make({**head, "spec": {"seed": 7}}))
    words = "Maximum boundary value must be of type integer (default format) in spec.seed"
    assert words in told["message"]


def test_kubectl_reads_yaml_by_its_old_rules(asking: Asking, kubectl: Kube) -> None:
    """Keys `on` and `y` are truth there, so that a strict server does not know them."""
    spec = {
        "type": "object",
        "properties": {
            "on": {"type": "string"},
            "params": {"type": "object", **OPEN},
        },
    }
    asking.make(defined("olds", spec))
    until(lambda: asking.kind("Olds", "example.com/v1"))
    head = "apiVersion: example.com/v1\nkind: Olds\nmetadata: {name: x}\n"
    ran = kubectl("apply", "-f", "-", stdin=f"{head}spec: {{on: x}}\n")
    assert 'unknown field "spec.true"' in ran.err
    kubectl.ok("apply", "-f", "-", stdin=f'{head}spec: {{params: {{y: 1, n: 2, "no": 3}}}}\n')
    assert kubectl.ok("get", "olds", "x", "-o", "jsonpath={.spec.params}") == (
        '{"false":2,"no":3,"true":1}'
    )


def test_the_server_reads_yaml_by_its_old_rules_too(cluster: KubernetesEmulator) -> None:
    """What helm's library, Argo CD and Flux send is YAML or what the same reader made of it."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: old}\ndata: {y: a, on: b, 8: c}\n"
    url = f"{cluster.url}/api/v1/namespaces/default/configmaps/old?fieldManager=x"
    token = config["users"][0]["user"]["token"]
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/apply-patch+yaml",
    }
    request = urllib.request.Request(url, body.encode(), headers, method="PATCH")
    context = ssl._create_unverified_context()
    with urllib.request.urlopen(request, context=context) as answer:
        assert json.load(answer)["data"] == {"true": "b", "8": "c"}


# -- admission -------------------------------------------------------------------------------------

RESTRICTED = (
    'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "main"'
    " must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities"
    ' (container "main" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true'
    ' (pod or container "main" must set securityContext.runAsNonRoot=true), seccompProfile (pod or'
    ' container "main" must set securityContext.seccompProfile.type to "RuntimeDefault" or'
    ' "Localhost")'
)
SAFE = {
    "pod": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    },
    "container": {
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    },
}
HOST = {"volumes": [{"name": "disk", "hostPath": {"path": "/"}}]}
SIZED = {"resources": {"limits": {"cpu": "8", "memory": "1Gi"}}}


def limits(kind: str, **spec: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "bound"}, "spec": spec}


QUOTA = limits("ResourceQuota", hard={"pods": "2", "requests.cpu": "4", "limits.memory": "4Gi"})
RANGE = limits("LimitRange", limits=[{"type": "Container", "max": {"cpu": "1"}}])

# (labels of the namespace, what is in it, of the Job, what its event says)
ADMITTED: dict[str, tuple[dict[str, str], list[Object], Object, str]] = {
    "restricted": ({"enforce": "restricted"}, [], {}, RESTRICTED),
    "restricted takes what is safe": ({"enforce": "restricted"}, [], SAFE, ""),
    "restricted names a volume": (
        {"enforce": "restricted"},
        [],
        {**SAFE, "pod": {**SAFE["pod"], **HOST}},
        'restricted volume types (volume "disk" uses restricted volume type "hostPath")',
    ),
    "baseline": (
        {"enforce": "baseline"},
        [],
        {"pod": {"hostNetwork": True, **HOST}},
        'violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true), hostPath'
        ' volumes (volume "disk")',
    ),
    "baseline takes what asks for nothing": ({"enforce": "baseline"}, [], {}, ""),
    "a quota that is too small": (
        {},
        [QUOTA],
        {"container": SIZED},
        "exceeded quota: bound, requested: requests.cpu=8, used: requests.cpu=0, limited:"
        " requests.cpu=4",
    ),
    "a quota wants sizes": (
        {},
        [QUOTA],
        {},
        "failed quota: bound: must specify limits.memory for: main; requests.cpu for: main",
    ),
    "a range": (
        {},
        [RANGE],
        {"container": SIZED},
        "maximum cpu usage per Container is 1, but limit is 8",
    ),
    "a range of pods": (
        {},
        [limits("LimitRange", limits=[{"type": "Pod", "min": {"cpu": "10"}}])],
        {"container": SIZED},
        "minimum cpu usage per Pod is 10, but request is 8",
    ),
    "a priority class": (
        {},
        [],
        {"pod": {"priorityClassName": "nosuch"}},
        "no PriorityClass with name nosuch was found",
    ),
    "a runtime class": (
        {},
        [],
        {"pod": {"runtimeClassName": "nosuch"}},
        'pod rejected: RuntimeClass "nosuch" not found',
    ),
    "a service account": (
        {},
        [],
        {"pod": {"serviceAccountName": "nosuch"}},
        'serviceaccount "nosuch" not found',
    ),
}


# (resources of a container, what the server says of a Job with it)
SIZES: dict[str, tuple[Object, str]] = {
    "huge pages alone": (
        {"limits": {"hugepages-2Mi": "1Gi"}},
        "spec.template.spec.containers[0].resources: Forbidden: HugePages require cpu or memory",
    ),
    "less of a device than its limit": (
        {"limits": {"rdma/ib": 2}, "requests": {"rdma/ib": 1}},
        'requests: Invalid value: "1": must be equal to rdma/ib limit of 2',
    ),
    "a device without a limit": (
        {"requests": {"rdma/ib": 1}},
        "limits: Required value: Limit must be set for non overcommitable resources",
    ),
    "a word of nobody's": (
        {"limits": {"rdma": 1}},
        'Invalid value: "rdma": must be a standard resource type or fully qualified',
    ),
}


@pytest.mark.parametrize("case", list(SIZES))
def test_a_job_asks_for_sizes_that_a_node_can_count(asking: Asking, case: str) -> None:
    resources, words = SIZES[case]
    told = refusal(lambda: asking.make(job("sized", "true", container={"resources": resources})))
    assert (told["code"], told["reason"]) == (422, "Invalid")
    assert words in told["message"]


@pytest.mark.parametrize("case", list(ADMITTED))
def test_what_admission_refuses_of_a_jobs_pod_is_an_event_of_the_job(
    asking: Asking, cluster: KubernetesEmulator, case: str
) -> None:
    labels, objects, own, words = ADMITTED[case]
    namespace = f"admits-{list(ADMITTED).index(case)}"
    marks = {f"pod-security.kubernetes.io/{key}": level for key, level in labels.items()}
    head = {"apiVersion": "v1", "kind": "Namespace"}
    asking.make({**head, "metadata": {"name": namespace, "labels": marks}})
    until(lambda: cluster.objects("serviceaccounts", "", namespace))
    for one in objects:
        asking.make(copy.deepcopy(one), namespace=namespace)
    asking.make(job("x", "true", **copy.deepcopy(own)), namespace=namespace)
    if not words:
        until(lambda: cluster.objects("pods", "", namespace))
        return
    event = until(lambda: _refused_pods(cluster, namespace))[0]
    assert event["involvedObject"]["kind"] == "Job" and event["type"] == "Warning"
    assert event["message"].startswith('Error creating: pods "x-')
    assert words in event["message"]
    assert cluster.objects("pods", "", namespace) == []


def _refused_pods(cluster: KubernetesEmulator, namespace: str) -> list[Object]:
    events = cluster.objects("events", "", namespace)
    return [it for it in events if it["reason"] == "FailedCreate"]


def test_a_range_gives_pods_the_sizes_that_they_do_not_name(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    asking.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ranged"}})
    until(lambda: cluster.objects("serviceaccounts", "", "ranged"))
    given = {"type": "Container", "default": {"memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}}
    asking.make(limits("LimitRange", limits=[given]), namespace="ranged")
    asking.make(job("x", "true"), namespace="ranged")
    (pod,) = until(lambda: cluster.objects("pods", "", "ranged"))
    (container,) = pod["spec"]["containers"]
    assert container["resources"] == {
        "limits": {"memory": "1Gi"},
        "requests": {"cpu": "100m", "memory": "1Gi"},
    }


def test_a_kubelet_runs_no_root_where_a_pod_forbids_it(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    asking.make(job("rooted", "true", pod={"securityContext": {"runAsNonRoot": True}}))
    words = "container has runAsNonRoot and image will run as root"

    def waits() -> str:
        for pod in cluster.objects("pods", "", "default"):
            for one in (pod.get("status") or {}).get("containerStatuses") or ():
                waiting = (one.get("state") or {}).get("waiting") or {}
                if words in str(waiting.get("message")):
                    return str(waiting["reason"])
        return ""

    assert until(waits) == "CreateContainerConfigError"

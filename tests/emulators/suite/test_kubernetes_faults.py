"""What goes wrong at the emulated API server when a test says so, and who may do what there."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from tests.emulators.kubernetes.running import KubernetesEmulator
from tests.emulators.suite.kubernetes_driving import (
    WIDGETS,
    Asking,
    asking,
    cluster,
    job,
    refusal,
    until,
    widget,
)

__all__ = ["asking", "cluster"]


@pytest.mark.parametrize("code", [409, 410, 429, 500, 503])
def test_any_verb_can_be_refused(asking: Asking, cluster: KubernetesEmulator, code: int) -> None:
    cluster.fault(verb="create", resource="widgets", code=code, count=1, retry_after_s=7)
    name = f"refused-{code}"
    with pytest.raises(ApiException) as refused:
        asking.create(widget(name))
    assert refused.value.status == code
    assert refused.value.headers["Retry-After"] == "7"
    assert json.loads(refused.value.body)["code"] == code
    assert name not in names(cluster)
    asking.create(widget(name))


def names(cluster: KubernetesEmulator) -> set[str]:
    return {it["metadata"]["name"] for it in cluster.objects("widgets", "example.com")}


def test_an_answer_can_be_lost_after_the_deed(asking: Asking, cluster: KubernetesEmulator) -> None:
    cluster.fault(verb="create", resource="widgets", lost=True)
    with pytest.raises(HTTPError):
        asking.create(widget("lost"))
    assert "lost" in names(cluster)


def test_a_list_can_be_stale_for_who_does_not_ask_for_the_newest(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    asking.create(widget("old"))
    asking.create(widget("new"))
    cluster.fault(verb="list", resource="widgets", stale=1, count=9)
    assert "new" not in {
        it["metadata"]["name"] for it in asking.list(resource_version="0")["items"]
    }
    assert {"old", "new"} <= {it["metadata"]["name"] for it in asking.list()["items"]}
    cluster.remove_faults()


def test_a_watch_can_be_cut_and_a_server_can_be_away(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    cluster.fault(verb="watch", resource="widgets", cut_s=0.05)
    with pytest.raises(HTTPError):
        for _ in watching(asking):
            pass
    cluster.away(on=True)
    with pytest.raises(HTTPError):
        asking.list()
    cluster.away(on=False)
    assert asking.list()["kind"] == "WidgetList"


def watching(asking: Asking) -> Any:
    answer = asking.list(watch=True, resource_version="0", _preload_content=False)
    return answer.stream()


def test_who_has_no_role_is_told_so_and_who_has_one_may_no_more(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    alice = Asking(cluster.kubeconfig_for("alice"))
    error = refusal(lambda: alice.list())
    assert (error["code"], error["reason"]) == (403, "Forbidden")
    assert error["message"] == (
        'widgets.example.com is forbidden: User "alice" cannot list resource "widgets" in API group'
        ' "example.com" in the namespace "default"'
    )
    rbac = "rbac.authorization.k8s.io"
    rule = {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list"]}
    role: dict[str, Any] = {"apiVersion": f"{rbac}/v1", "metadata": {"name": "readers"}}
    asking.make({**role, "kind": "Role", "rules": [rule]})
    asking.make(
        {
            **role,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "readers"},
            "subjects": [{"kind": "User", "apiGroup": rbac, "name": "alice"}],
        }
    )
    assert alice.list()["kind"] == "WidgetList"
    asking.create(widget("kept"))
    error = refusal(lambda: alice.widgets.delete_namespaced_custom_object(*WIDGETS, "kept"))
    assert 'widgets.example.com "kept" is forbidden: User "alice" cannot delete' in error["message"]
    cluster.revoke("alice")
    assert refusal(lambda: alice.list())["code"] == 401


def test_a_role_gathers_the_rules_of_roles_with_its_label(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    """As a definition's own roles become part of `view` and, through it, of `edit`."""
    rbac = "rbac.authorization.k8s.io"
    people = {name: Asking(cluster.kubeconfig_for(name)) for name in ("bob", "carol")}
    for name, role in (("bob", "view"), ("carol", "edit")):
        asking.make(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "apiGroup": rbac, "name": name}],
            }
        )
        assert refusal(lambda name=name: people[name].list())["code"] == 403
    asking.make(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "widgets", "labels": {f"{rbac}/aggregate-to-view": "true"}},
            "rules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list"]}],
        }
    )
    for one in people.values():
        assert one.list()["kind"] == "WidgetList"
        assert refusal(lambda one=one: one.create(widget("gathered")))["code"] == 403


def test_a_service_account_sees_the_api_from_its_pod(
    asking: Asking, cluster: KubernetesEmulator
) -> None:
    script = """
        cd /var/run/secrets/kubernetes.io/serviceaccount
        python3 - <<'END'
import os, ssl, urllib.error, urllib.request
url = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
asked = urllib.request.Request(url + "/api/v1/namespaces/default/pods")
asked.add_header("Authorization", "Bearer " + open("token").read())
try:
    urllib.request.urlopen(asked, context=ssl.create_default_context(cafile="ca.crt"))
except urllib.error.HTTPError as error:
    print(error.read().decode())
END"""
    asking.make(job("inside", script))
    pod = cluster_pod(cluster, "inside")
    core = client.CoreV1Api(asking.api)
    answer = core.read_namespaced_pod_log(pod, "default", follow=True, _preload_content=False)
    said = json.loads(answer.data)["message"]
    assert 'User "system:serviceaccount:default:default" cannot list resource "pods"' in said


def cluster_pod(cluster: KubernetesEmulator, job: str) -> str:
    found: str = until(
        lambda: next((it["pod"] for it in cluster.runs() if it["pod"].startswith(job)), None)
    )
    return found


def test_nobody_is_trusted_without_the_authority(cluster: KubernetesEmulator) -> None:
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"{cluster.url}/version", context=ssl.create_default_context())

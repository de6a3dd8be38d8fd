"""The rights of the operator and of users on custom resources, as roles of Kubernetes. Pure.

Made from the registry of kinds, so that a new one is among them; written by write.py.
"""

from __future__ import annotations

from typing import Any

from fleetctl.operator.crds.definition import GROUP
from fleetctl.specs.kinds.registry import KINDS

NAMESPACE = "fleetctl"
ACCOUNT = "fleetctl-operator"
VIEW, EDIT = (
    "rbac.authorization.k8s.io/aggregate-to-view",
    "rbac.authorization.k8s.io/aggregate-to-edit",
)

Document = dict[str, Any]


def list_plurals(
    *,
    below: str = "",
    namespaced: bool = False,
    runs: bool = False,
) -> list[str]:
    """Lists the plurals of kinds. below: a subresource of each. namespaced, runs: only
    such kinds.
    """
    rows = sorted(KINDS.values(), key=lambda it: it.plural)
    chosen = [it for it in rows if (it.namespaced or not namespaced) and (it.runs or not runs)]
    return [f"{it.plural}/{below}" if below else it.plural for it in chosen]


def build_chart_kinds() -> Document:
    """Returns the kinds over which the templates of the Helm chart range."""
    namespaced = list_plurals(namespaced=True)
    return {
        "all": list_plurals(),
        "cluster": [it for it in list_plurals() if it not in namespaced],
        "namespaced": namespaced,
        "scaled": list_plurals(below="scale", runs=True),
    }


def build_roles() -> list[Document]:
    """Returns the roles of the operator: tests/servers/test_operator.py compares them with its
    calls.
    """
    wide = _build_role(
        "ClusterRole",
        ACCOUNT,
        _build_rule(
            GROUP,
            list_plurals(),
            "get",
            "list",
            "watch",
            "patch",
        ),
        _build_rule(GROUP, list_plurals(below="status"), "patch"),
        _build_rule("", ["events"], "create"),
    )
    lease = {
        **_build_rule("coordination.k8s.io", ["leases"], "get", "update"),
        "resourceNames": [ACCOUNT],
    }
    # A name cannot limit the creation of objects.
    made = _build_rule("coordination.k8s.io", ["leases"], "create")
    return [
        wide,
        _build_binding("ClusterRoleBinding", "ClusterRole", ACCOUNT),
        _build_role("Role", "fleetctl-lease", lease, made),
        _build_binding("RoleBinding", "Role", "fleetctl-lease"),
    ]


def build_server_roles() -> list[Document]:
    """Returns the roles that the operator needs beside its own where a server with it changes
    objects: what users may do there is checked before, by the role of their token.
    """
    name = "fleetctl-server"
    rule = _build_rule(GROUP, list_plurals(), "create", "delete")
    return [
        _build_role("ClusterRole", name, rule),
        _build_binding("ClusterRoleBinding", "ClusterRole", name),
    ]


def build_people_roles() -> list[Document]:
    """Returns the roles of users: a user with the right to view or edit a namespace may view or
    edit its custom resources too. Providers are of the whole cluster, and their keys are the
    operator's: they are left to administrators.
    """
    edited = [*list_plurals(namespaced=True), *list_plurals(below="scale", runs=True)]
    edit = _build_rule(
        GROUP,
        edited,
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
    )
    view = _build_rule(
        GROUP,
        list_plurals(),
        "get",
        "list",
        "watch",
    )
    made = [
        _build_role("ClusterRole", "fleetctl-view", view),
        _build_role("ClusterRole", "fleetctl-edit", edit),
    ]
    for role, label in zip(made, (VIEW, EDIT), strict=True):
        role["metadata"]["labels"] = {label: "true"}
    return made


def _build_rule(
    group: str,
    resources: list[str],
    *verbs: str,
) -> Document:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def _build_role(
    kind: str,
    name: str,
    *rules: Document,
) -> Document:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "rules": list(rules),
    }


def _build_binding(
    kind: str,
    role: str,
    name: str,
) -> Document:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }

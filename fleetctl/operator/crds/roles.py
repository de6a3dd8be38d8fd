"""What the operator and people may do with custom resources, as roles of Kubernetes. Pure.

Made from the registry of kinds, so that a new one is among them; written by write.py.
"""

from __future__ import annotations

from typing import Any

from fleetctl.operator.crds.definition import GROUP
from fleetctl.specs.kinds.registry import KINDS

NAMESPACE, ACCOUNT = "fleetctl", "fleetctl-operator"
VIEW, EDIT = (
    "rbac.authorization.k8s.io/aggregate-to-view",
    "rbac.authorization.k8s.io/aggregate-to-edit",
)

Document = dict[str, Any]


def plurals(*, below: str = "", namespaced: bool = False, runs: bool = False) -> list[str]:
    """below: a subresource of each. namespaced, runs: only such kinds."""
    rows = sorted(KINDS.values(), key=lambda it: it.plural)
    chosen = [it for it in rows if (it.namespaced or not namespaced) and (it.runs or not runs)]
    return [f"{it.plural}/{below}" if below else it.plural for it in chosen]


def kinds_of_a_chart() -> Document:
    """What the templates of the Helm chart range over."""
    return {
        "all": plurals(),
        "namespaced": plurals(namespaced=True),
        "scaled": plurals(below="scale", runs=True),
    }


def roles() -> list[Document]:
    """Of the operator: tests/servers/test_operator.py holds them to what it calls."""
    wide = _role(
        "ClusterRole",
        ACCOUNT,
        _rule(GROUP, plurals(), "get", "list", "watch", "patch"),
        _rule(GROUP, plurals(below="status"), "patch"),
        _rule("", ["events"], "create"),
    )
    lease = {
        **_rule("coordination.k8s.io", ["leases"], "get", "update"),
        "resourceNames": [ACCOUNT],
    }
    # A name cannot limit what is made.
    made = _rule("coordination.k8s.io", ["leases"], "create")
    return [
        wide,
        _binding("ClusterRoleBinding", "ClusterRole", ACCOUNT),
        _role("Role", "fleetctl-lease", lease, made),
        _binding("RoleBinding", "Role", "fleetctl-lease"),
    ]


def people() -> list[Document]:
    """Whoever may view or edit a namespace may view or edit its custom resources too. Providers are
    of the whole cluster, and their keys are the operator's: they are left to administrators.
    """
    edited = [*plurals(namespaced=True), *plurals(below="scale", runs=True)]
    edit = _rule(GROUP, edited, "create", "update", "patch", "delete", "deletecollection")
    view = _rule(GROUP, plurals(), "get", "list", "watch")
    made = [
        _role("ClusterRole", "fleetctl-view", view),
        _role("ClusterRole", "fleetctl-edit", edit),
    ]
    for role, label in zip(made, (VIEW, EDIT), strict=True):
        role["metadata"]["labels"] = {label: "true"}
    return made


def _rule(group: str, resources: list[str], *verbs: str) -> Document:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def _role(kind: str, name: str, *rules: Document) -> Document:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "rules": list(rules),
    }


def _binding(kind: str, role: str, name: str) -> Document:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }

"""Who may do what: Roles, ClusterRoles and their bindings, as they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.emulators.kubernetes.access.users import MASTERS
from tests.emulators.kubernetes.api.call import User
from tests.emulators.kubernetes.store.errors import ApiError, forbidden
from tests.emulators.kubernetes.store.objects import Store

GROUP = "rbac.authorization.k8s.io"
Rule = dict[str, Any]
_GATHERED = f"{GROUP}/aggregate-to-"
_READ, _WRITE = (
    ["get", "list", "watch"],
    [
        "create",
        "delete",
        "deletecollection",
        "patch",
        "update",
    ],
)


@dataclass(frozen=True, slots=True)
class Wish:
    """path: of what is no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def what(self) -> str:
        return self.resource + (f"/{self.subresource}" if self.subresource else "")


class Rbac:
    def __init__(self, store: Store) -> None:
        self._store = store

    def allows(self, user: User, wish: Wish) -> bool:
        if MASTERS in user.groups:
            return True
        return any(_grants(rule, wish) for rule in self.rules(user, wish.namespace))

    def rules(self, user: User, namespace: str) -> Iterator[Rule]:
        """All that hold for a user at the cluster's scope and in one namespace."""
        for entry in self._store.shelf((GROUP, "clusterrolebindings")).ordered():
            yield from self._bound(entry.object, user, "")
        if namespace:
            for entry in self._store.shelf((GROUP, "rolebindings")).ordered():
                if entry.place[0] == namespace:
                    yield from self._bound(entry.object, user, namespace)

    def _bound(self, binding: dict[str, Any], user: User, namespace: str) -> Iterator[Rule]:
        if not any(_is(it, user, namespace) for it in binding.get("subjects") or ()):
            return
        reference = binding["roleRef"]
        plural = "roles" if reference["kind"] == "Role" else "clusterroles"
        place = namespace if plural == "roles" else ""
        role = self._store.get((GROUP, plural), place, reference["name"])
        if role is not None:
            yield from self._whole(role.object, set())

    def _whole(self, role: dict[str, Any], passed: set[str]) -> Iterator[Rule]:
        """A role's own rules, and those of the ClusterRoles that it gathers by their labels."""
        yield from role.get("rules") or ()
        for wanted in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
            labels = (wanted.get("matchLabels") or {}).items()
            for entry in self._store.shelf((GROUP, "clusterroles")).ordered():
                metadata = entry.object["metadata"]
                if (
                    metadata["name"] in passed
                    or not labels <= (metadata.get("labels") or {}).items()
                ):
                    continue
                passed.add(metadata["name"])
                yield from self._whole(entry.object, passed)

    def refusal(self, user: User, wish: Wish) -> ApiError:
        if wish.path:
            message = f'forbidden: User "{user.name}" cannot {wish.verb} path "{wish.path}"'
            return ApiError(403, message, details={})
        where = f'in the namespace "{wish.namespace}"' if wish.namespace else "at the cluster scope"
        why = (
            f'User "{user.name}" cannot {wish.verb} resource "{wish.what}" in API group'
            f' "{wish.group}" {where}'
        )
        return forbidden(wish.resource, wish.group, wish.name, why)


def _is(subject: dict[str, Any], user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "User":
        return bool(name == user.name)
    if kind == "Group":
        return name in user.groups
    place = subject.get("namespace") or namespace
    return user.name == f"system:serviceaccount:{place}:{name}"


def _grants(rule: Rule, wish: Wish) -> bool:
    verbs = rule.get("verbs") or ()
    if wish.verb not in verbs and "*" not in verbs:
        return False
    if wish.path:
        return any(
            it == wish.path or (it.endswith("*") and wish.path.startswith(it[:-1]))
            for it in rule.get("nonResourceURLs") or ()
        )
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    if wish.group not in groups and "*" not in groups:
        return False
    whole = {wish.what, "*"} | ({f"*/{wish.subresource}"} if wish.subresource else set())
    if not whole & set(resources):
        return False
    names = rule.get("resourceNames") or ()
    return not names or wish.name in names


def _role(name: str, rules: list[Rule], *, gathers: str = "", part_of: str = "") -> dict[str, Any]:
    """gathers, part_of: the end of a label `aggregate-to-...`."""
    labels = {f"{_GATHERED}{part_of}": "true"} if part_of else {}
    made = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels},
        "rules": rules,
    }
    if gathers:
        selector = {"matchLabels": {f"{_GATHERED}{gathers}": "true"}}
        made["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    return made


def _binding(role: str, group: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "apiGroup": GROUP, "name": group}],
    }


_REVIEWS = [
    {
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        "verbs": ["create"],
    },
    {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["selfsubjectreviews"],
        "verbs": ["create"],
    },
]
_PATHS = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/version/"]
_PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_NAMED = {
    "": [
        "configmaps",
        "endpoints",
        "events",
        "persistentvolumeclaims",
        "pods",
        "pods/log",
        "services",
        "serviceaccounts",
    ],
    "batch": ["jobs", "cronjobs", "jobs/status"],
    "apps": ["deployments", "replicasets", "statefulsets", "daemonsets"],
}


def _named(verbs: list[str], extra: list[str]) -> list[Rule]:
    return [
        {
            "apiGroups": [group],
            "resources": [*plurals, *(extra if not group else ())],
            "verbs": verbs,
        }
        for group, plurals in _NAMED.items()
    ]


_EDIT = ["secrets", "pods/exec", "pods/attach", "pods/portforward", "pods/eviction"]
DEFAULTS: tuple[dict[str, Any], ...] = (
    _role(
        "cluster-admin",
        [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ],
    ),
    _role("view", _named(_READ, []), gathers="view", part_of="edit"),
    _role("edit", _named(_READ + _WRITE, _EDIT), gathers="edit", part_of="admin"),
    _role("system:basic-user", _REVIEWS),
    _role("system:discovery", [{"nonResourceURLs": _PATHS, "verbs": ["get"]}]),
    _role("system:public-info-viewer", [{"nonResourceURLs": _PUBLIC, "verbs": ["get"]}]),
    _binding("cluster-admin", MASTERS),
    _binding("system:basic-user", "system:authenticated"),
    _binding("system:discovery", "system:authenticated"),
    _binding("system:public-info-viewer", "system:unauthenticated"),
)

"""Which resources the server has: a table of the built-in ones, to which CRDs add their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

ALL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE = ("create",)
Key = tuple[str, str]  # (group, plural)


@dataclass(frozen=True, slots=True)
class Resource:
    """versions: those served, preferred first; definition: of a CRD, its object."""

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    namespaced: bool
    singular: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL
    definition: dict[str, Any] | None = field(default=None, compare=False)

    @property
    def key(self) -> Key:
        return self.group, self.plural

    @property
    def version(self) -> str:
        return self.versions[0]

    @property
    def list_kind(self) -> str:
        return self.kind + "List"

    def api_version(self, version: str = "") -> str:
        version = version or self.version
        return f"{self.group}/{version}" if self.group else version


def _row(group: str, line: str, *, versions: tuple[str, ...] = ("v1",)) -> Resource:
    """`plural Kind [ns] [short=a,b] [cat=a,b] [sub=a,b] [verbs=a,b]`."""
    plural, kind, *words = line.split()
    options = dict(it.split("=", 1) for it in words if "=" in it)

    def several(name: str) -> tuple[str, ...]:
        return tuple(options[name].split(",")) if name in options else ()

    return Resource(
        group=group,
        versions=versions,
        plural=plural,
        kind=kind,
        namespaced="ns" in words,
        singular=kind.lower(),
        short=several("short"),
        categories=several("cat"),
        subresources=several("sub"),
        verbs=several("verbs") or ALL,
    )


_BUILTIN = {
    "": """
        namespaces Namespace short=ns sub=status,finalize
        nodes Node short=no sub=status
        pods Pod ns short=po cat=all sub=status,log,exec,attach,portforward,eviction,binding
        services Service ns short=svc cat=all sub=status
        endpoints Endpoints ns short=ep
        secrets Secret ns
        configmaps ConfigMap ns short=cm
        persistentvolumeclaims PersistentVolumeClaim ns short=pvc sub=status
        persistentvolumes PersistentVolume short=pv sub=status
        serviceaccounts ServiceAccount ns short=sa sub=token
        events Event ns short=ev
        resourcequotas ResourceQuota ns short=quota sub=status
        limitranges LimitRange ns short=limits
    """,
    "apps": """
        deployments Deployment ns short=deploy cat=all sub=status,scale
        replicasets ReplicaSet ns short=rs cat=all sub=status,scale
        statefulsets StatefulSet ns short=sts cat=all sub=status,scale
        daemonsets DaemonSet ns short=ds cat=all sub=status
    """,
    "batch": """
        jobs Job ns cat=all sub=status
        cronjobs CronJob ns short=cj cat=all sub=status
    """,
    "coordination.k8s.io": "leases Lease ns",
    "events.k8s.io": "events Event ns short=ev",
    "rbac.authorization.k8s.io": """
        roles Role ns
        rolebindings RoleBinding ns
        clusterroles ClusterRole
        clusterrolebindings ClusterRoleBinding
    """,
    "authorization.k8s.io": """
        selfsubjectaccessreviews SelfSubjectAccessReview verbs=create
        selfsubjectrulesreviews SelfSubjectRulesReview verbs=create
        subjectaccessreviews SubjectAccessReview verbs=create
        localsubjectaccessreviews LocalSubjectAccessReview ns verbs=create
    """,
    "authentication.k8s.io": """
        selfsubjectreviews SelfSubjectReview verbs=create
        tokenreviews TokenReview verbs=create
    """,
    "scheduling.k8s.io": "priorityclasses PriorityClass short=pc",
    "node.k8s.io": "runtimeclasses RuntimeClass",
    "storage.k8s.io": "storageclasses StorageClass short=sc",
    "policy": "poddisruptionbudgets PodDisruptionBudget ns short=pdb sub=status",
    "networking.k8s.io": """
        networkpolicies NetworkPolicy ns short=netpol
        ingresses Ingress ns short=ing sub=status
    """,
    "apiextensions.k8s.io": """
        customresourcedefinitions CustomResourceDefinition short=crd,crds sub=status
    """,
}

BUILTIN: tuple[Resource, ...] = tuple(
    _row(group, line) for group, lines in _BUILTIN.items() for line in lines.strip().splitlines()
)


class Resources:
    """Those served now. Changes only through `add` and `drop`, by the controller of CRDs."""

    def __init__(self) -> None:
        self._by_key: dict[Key, Resource] = {it.key: it for it in BUILTIN}
        self.generation = 0  # counts changes, for caches of what is derived

    def __iter__(self) -> Iterator[Resource]:
        return iter(list(self._by_key.values()))

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        found = self._by_key.get((group, plural))
        return found if found is not None and version in found.versions else None

    def get(self, group: str, plural: str) -> Resource:
        return self._by_key[group, plural]

    def find_key(self, key: Key) -> Resource | None:
        return self._by_key.get(key)

    def of_kind(self, group: str, kind: str) -> Resource | None:
        for one in self._by_key.values():
            if one.group == group and one.kind == kind:
                return one
        return None

    def groups(self) -> dict[str, list[str]]:
        """Versions of each group, preferred first; the core group is ""."""
        found: dict[str, list[str]] = {}
        for one in self._by_key.values():
            versions = found.setdefault(one.group, [])
            versions += [it for it in one.versions if it not in versions]
        return found

    def of_version(self, group: str, version: str) -> list[Resource]:
        return [it for it in self._by_key.values() if it.group == group and version in it.versions]

    def add(self, resource: Resource) -> None:
        self._by_key[resource.key] = resource
        self.generation += 1

    def drop(self, key: Key) -> None:
        if self._by_key.pop(key, None) is not None:
            self.generation += 1

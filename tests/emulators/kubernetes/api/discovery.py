"""Which groups, versions and resources there are, in the old form and in the aggregated one."""

from __future__ import annotations

from typing import Any

from tests.emulators.kubernetes.api.call import Call
from tests.emulators.kubernetes.api.writes.schemas import version_of
from tests.emulators.kubernetes.store.errors import no_such_path
from tests.emulators.kubernetes.store.resources import Resource, Resources

Object = dict[str, Any]
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERSION = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-06-10T00:00:00Z",
    "goVersion": "go1.26.3",
    "compiler": "gc",
    "platform": "linux/amd64",
}
# Subresources: kind of what is sent and answered, its group and version, verbs.
_READ_WRITE = ("get", "patch", "update")
SUBRESOURCES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "status": ("", "", "", _READ_WRITE),
    "scale": ("Scale", "autoscaling", "v1", _READ_WRITE),
    "log": ("", "", "", ("get",)),
    "exec": ("PodExecOptions", "", "v1", ("create", "get")),
    "attach": ("PodAttachOptions", "", "v1", ("create", "get")),
    "portforward": ("PodPortForwardOptions", "", "v1", ("create", "get")),
    "eviction": ("Eviction", "policy", "v1", ("create",)),
    "binding": ("Binding", "", "v1", ("create",)),
    "finalize": ("", "", "", ("update",)),
    "token": ("TokenRequest", "authentication.k8s.io", "v1", ("create",)),
}


def aggregated(call: Call) -> bool:
    return "as=APIGroupDiscoveryList" in call.accept and "v=v2" in call.accept.replace(
        "v2beta1", ""
    )


def answer(call: Call, resources: Resources) -> tuple[Object, str]:
    """(body, content type) of /api, /apis and what is below. Raises ApiError 404."""
    parts = call.parts
    plain = "application/json"
    if parts == ("api",):
        if aggregated(call):
            return _aggregated(resources, core=True), AGGREGATED
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}, plain
    if parts == ("apis",):
        if aggregated(call):
            return _aggregated(resources, core=False), AGGREGATED
        groups = [_group(name, versions) for name, versions in resources.groups().items() if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}, plain
    if parts[0] == "api" and len(parts) == 2:
        return _resource_list(resources, "", parts[1]), plain
    if parts[0] == "apis" and len(parts) == 2 and parts[1] in resources.groups():
        head = {"kind": "APIGroup", "apiVersion": "v1"}
        return head | _group(parts[1], resources.groups()[parts[1]]), plain
    if parts[0] == "apis" and len(parts) == 3:
        return _resource_list(resources, parts[1], parts[2]), plain
    raise no_such_path()


def _group(name: str, versions: list[str]) -> Object:
    found = [{"groupVersion": f"{name}/{it}", "version": it} for it in versions]
    return {"name": name, "versions": found, "preferredVersion": found[0]}


def subresources_of(resource: Resource, version: str) -> tuple[str, ...]:
    if resource.definition is None:
        return resource.subresources
    told = version_of(resource, version).get("subresources") or {}
    return tuple(it for it in ("status", "scale") if it in told)


def _resource_list(resources: Resources, group: str, version: str) -> Object:
    found = resources.of_version(group, version)
    if not found:
        raise no_such_path()
    rows = []
    for one in found:
        row: Object = {
            "name": one.plural,
            "singularName": one.singular,
            "namespaced": one.namespaced,
            "kind": one.kind,
            "verbs": list(one.verbs),
        }
        if one.short:
            row["shortNames"] = list(one.short)
        if one.categories:
            row["categories"] = list(one.categories)
        rows.append(row)
        for name in subresources_of(one, version):
            kind, sub_group, sub_version, verbs = SUBRESOURCES[name]
            below: Object = {
                "name": f"{one.plural}/{name}",
                "singularName": "",
                "namespaced": one.namespaced,
                "kind": kind or one.kind,
                "verbs": list(verbs),
            }
            if kind and sub_group:
                below |= {"group": sub_group, "version": sub_version}
            rows.append(below)
    api_version = f"{group}/{version}" if group else version
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version}
    return {**head, "resources": rows}


def _aggregated(resources: Resources, *, core: bool) -> Object:
    items = []
    for group, versions in resources.groups().items():
        if bool(group) == core:
            continue
        rows = [
            {
                "version": it,
                "resources": [
                    _aggregated_resource(one, it) for one in resources.of_version(group, it)
                ],
                "freshness": "Current",
            }
            for it in versions
        ]
        metadata = (
            {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None}
        )
        items.append({"metadata": metadata, "versions": rows})
    head = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
    return {**head, "metadata": {}, "items": items}


def _aggregated_resource(one: Resource, version: str) -> Object:
    found: Object = {
        "resource": one.plural,
        "responseKind": {"group": one.group, "version": version, "kind": one.kind},
        "scope": "Namespaced" if one.namespaced else "Cluster",
        "singularResource": one.singular,
        "verbs": list(one.verbs),
    }
    if one.short:
        found["shortNames"] = list(one.short)
    if one.categories:
        found["categories"] = list(one.categories)
    below = []
    for name in subresources_of(one, version):
        kind, sub_group, sub_version, verbs = SUBRESOURCES[name]
        response = {"group": one.group, "version": version, "kind": one.kind}
        if kind:
            response = {"group": sub_group, "version": sub_version, "kind": kind}
        below.append({"subresource": name, "responseKind": response, "verbs": list(verbs)})
    if below:
        found["subresources"] = below
    return found

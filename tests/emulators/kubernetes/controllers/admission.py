"""What admission refuses of a pod: Pod Security by its namespace's label, and LimitRanges.

Quotas are in controllers/quotas.py; accounts and priorities in controllers/basics.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.emulators.kubernetes.api.writes.writing import NAMESPACES, Writer
from tests.emulators.kubernetes.schema.quantities import quantity
from tests.emulators.kubernetes.store.errors import forbidden
from tests.emulators.kubernetes.store.resources import Resource

Object = dict[str, Any]
PODS, RANGES = ("", "pods"), ("", "limitranges")
LEVEL = "pod-security.kubernetes.io/enforce"
LEVELS = ("privileged", "baseline", "restricted")
_HARMLESS_TYPES = frozenset(
    (
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"),
        *("projected", "secret", "image", "name"),
    )
)
_ADDED = frozenset(
    (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    )
)
_SECCOMP = ("RuntimeDefault", "Localhost")


class Admission:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        writer.admission.append(self._admit)

    def _admit(self, resource: Resource, body: Object) -> None:
        """Raises ApiError 403. Pods get what a LimitRange gives them."""
        if resource.key != PODS:
            return
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        for one in self._writer.store.shelf(RANGES).ordered():
            if one.place[0] == namespace:
                problems = [*_limited(one.object, body["spec"])]
                if problems:
                    raise forbidden("pods", "", name, _listed(problems))
        level = self._level(namespace)
        found = [*_baseline(body["spec"])] if level != "privileged" else []
        if level == "restricted":
            found = [*_restricted(body["spec"], found)]
        if found:
            why = f'violates PodSecurity "{level}:latest": {", ".join(found)}'
            raise forbidden("pods", "", name, why)

    def _level(self, namespace: str) -> str:
        entry = self._writer.store.get(NAMESPACES, "", namespace)
        labels = (entry.object["metadata"].get("labels") or {}) if entry is not None else {}
        level = labels.get(LEVEL, "privileged")
        return level if level in LEVELS else "restricted"  # the server takes the worst


def _containers(spec: Object) -> list[Object]:
    return [*spec.get("initContainers", ()), *spec.get("containers", ())]


def _named(kind: str, names: list[str]) -> str:
    """`container "a"`, `containers "a", "b"`."""
    listed = ", ".join(f'"{it}"' for it in names)
    return f"{kind}{'s' if len(names) > 1 else ''} {listed}"


def _baseline(spec: Object) -> Iterator[str]:
    hosts = [it for it in ("hostNetwork", "hostPID", "hostIPC") if spec.get(it)]
    if hosts:
        yield f"host namespaces ({', '.join(f'{it}=true' for it in hosts)})"
    paths = [it["name"] for it in spec.get("volumes", ()) if "hostPath" in it]
    if paths:
        yield f"hostPath volumes ({_named('volume', paths)})"
    own = [(it["name"], it.get("securityContext") or {}) for it in _containers(spec)]
    privileged = [name for name, context in own if context.get("privileged")]
    if privileged:
        what = _named("container", privileged)
        yield f"privileged ({what} must not set securityContext.privileged=true)"
    for name, context in own:
        added = set((context.get("capabilities") or {}).get("add") or ()) - _ADDED
        if added:
            listed = ", ".join(f'"{it}"' for it in sorted(added))
            yield (
                f"non-default capabilities ({_named('container', [name])} must not include {listed}"
                " in securityContext.capabilities.add)"
            )
    pod = spec.get("securityContext") or {}
    if (pod.get("seccompProfile") or {}).get("type") == "Unconfined":
        yield (
            'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")'
        )
    ports = sorted(
        {
            port["hostPort"]
            for it in _containers(spec)
            for port in it.get("ports", ())
            if "hostPort" in port
        }
    )
    if ports:
        yield f"hostPort (uses hostPorts {', '.join(map(str, ports))})"


def _restricted(spec: Object, baseline: list[str]) -> Iterator[str]:
    yield from (it for it in baseline if not it.startswith("hostPath"))
    pod = spec.get("securityContext") or {}
    own = [(it["name"], it.get("securityContext") or {}) for it in _containers(spec)]
    rising = [name for name, it in own if it.get("allowPrivilegeEscalation") is not False]
    if rising:
        what = _named("container", rising)
        yield (
            f"allowPrivilegeEscalation != false ({what} must set"
            " securityContext.allowPrivilegeEscalation=false)"
        )
    able = [
        name for name, it in own if "ALL" not in ((it.get("capabilities") or {}).get("drop") or ())
    ]
    if able:
        what = _named("container", able)
        yield (
            f'unrestricted capabilities ({what} must set securityContext.capabilities.drop=["ALL"])'
        )
    yield from _volumes(spec)
    root = [name for name, it in own if it.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True]
    if root:
        what = _named("container", root)
        yield (f"runAsNonRoot != true (pod or {what} must set securityContext.runAsNonRoot=true)")
    zero = [name for name, it in own if it.get("runAsUser") == 0]
    if pod.get("runAsUser") == 0:
        yield "runAsUser=0 (pod must not set runAsUser=0)"
    elif zero:
        yield f"runAsUser=0 ({_named('container', zero)} must not set runAsUser=0)"
    loose = [
        name
        for name, it in own
        if (it.get("seccompProfile") or pod.get("seccompProfile") or {}).get("type") not in _SECCOMP
    ]
    if loose:
        what = _named("container", loose)
        yield (
            f"seccompProfile (pod or {what} must set securityContext.seccompProfile.type to"
            ' "RuntimeDefault" or "Localhost")'
        )


def _volumes(spec: Object) -> Iterator[str]:
    for volume in spec.get("volumes", ()):
        for sort in sorted(set(volume) - _HARMLESS_TYPES):
            what = _named("volume", [volume["name"]])
            yield f'restricted volume types ({what} uses restricted volume type "{sort}")'


def _limited(limits: Object, spec: Object) -> Iterator[str]:
    """Sets the defaults of a LimitRange, and yields the violations of its limits."""
    for one in limits["spec"].get("limits") or ():
        if one.get("type") == "Pod":
            yield from _beyond(one, _sum_sizes(spec["containers"]))
        if one.get("type") != "Container":
            continue
        for container in _containers(spec):
            sizes = container.setdefault("resources", {})
            for where, given in (("limits", "default"), ("requests", "defaultRequest")):
                for name, size in (one.get(given) or {}).items():
                    sizes.setdefault(where, {}).setdefault(name, size)
            for name, size in (one.get("default") or {}).items():
                sizes.setdefault("requests", {}).setdefault(name, size)
            yield from _beyond(one, sizes)


def _sum_sizes(containers: Sequence[Object]) -> Object:
    """Returns the sizes of a pod; those of a single container as they are written."""
    found: Object = {"limits": {}, "requests": {}}
    for where, sizes in found.items():
        for one in containers:
            for name, size in (one.get("resources", {}).get(where) or {}).items():
                before = sizes.get(name)
                both = None if before is None else quantity(before) + quantity(size)
                sizes[name] = size if both is None else f"{both:.12g}"
    return found


def _beyond(limit: Object, sizes: Object) -> Iterator[str]:
    for name, most in (limit.get("max") or {}).items():
        asked = (sizes.get("limits") or {}).get(name)
        begin = f"maximum {name} usage per {limit['type']} is {most}"
        if asked is None:
            yield f"{begin}.  No limit is specified"
        elif quantity(asked) > quantity(most):
            yield f"{begin}, but limit is {asked}"
    for name, least in (limit.get("min") or {}).items():
        asked = (sizes.get("requests") or {}).get(name)
        begin = f"minimum {name} usage per {limit['type']} is {least}"
        if asked is None:
            yield f"{begin}.  No request is specified"
        elif quantity(asked) < quantity(least):
            yield f"{begin}, but request is {asked}"


def _listed(problems: list[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"

"""What a container finds at its mount paths, and in its environment."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.emulators.kubernetes.store.objects import Store

Object = dict[str, Any]
SECRETS, CONFIGS = ("", "secrets"), ("", "configmaps")
ACCESS = "kube-api-access-"  # how admission calls the volume with the account's token
CLAIMS = ("", "persistentvolumeclaims")


class NotYet(Exception):
    """Something that the pod needs is missing. reason: of an event or of a waiting container."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


@dataclass(slots=True)
class Mounts:
    """Host paths by paths in the container."""

    writable: dict[str, Path] = field(default_factory=dict)
    read_only: dict[str, Path] = field(default_factory=dict)


class Volumes:
    """Of one pod, below `directory`. claims: where the directories of claims are; account: where
    what its service account sees of the API is, for all pods of that account; token: makes one.
    """

    def __init__(
        self,
        pod: Object,
        directory: Path,
        claims: Path,
        store: Store,
        *,
        account: Path,
        token: Callable[[], str],
    ) -> None:
        self._pod, self._store = pod, store
        self._directory, self._claims = directory, claims
        self._namespace = pod["metadata"]["namespace"]
        self._account, self._token = account, token

    def prepare(self) -> dict[str, Path]:
        """The host path of each volume. Raises NotYet."""
        return {it["name"]: self._one(it) for it in self._pod["spec"].get("volumes", ())}

    def _one(self, volume: Object) -> Path:
        here = self._directory / volume["name"]
        if "persistentVolumeClaim" in volume:
            return self._claim(volume["persistentVolumeClaim"]["claimName"])
        if "hostPath" in volume:
            here = self._directory.parents[2] / "host" / volume["hostPath"]["path"].strip("/")
            here.mkdir(parents=True, exist_ok=True)
            return here
        if volume["name"].startswith(ACCESS):
            here = self._account
            if (here / "namespace").exists():  # the last of its files
                return here
        here.mkdir(parents=True, exist_ok=True)
        for kind in ("secret", "configMap", "downwardAPI", "projected"):
            if kind in volume:
                source = volume[kind]
                parts = source["sources"] if kind == "projected" else [{kind: source}]
                for part in parts:
                    self._project(here, volume["name"], part, source.get("defaultMode", 420))
        return here

    def _claim(self, name: str) -> Path:
        entry = self._store.get(CLAIMS, self._namespace, name)
        if entry is None or entry.object.get("status", {}).get("phase") != "Bound":
            raise NotYet("FailedMount", f'persistentvolumeclaim "{name}" not bound')
        here = self._claims / entry.object["spec"]["volumeName"]
        here.mkdir(parents=True, exist_ok=True)
        return here

    def _project(self, here: Path, name: str, part: Object, mode: int) -> None:
        if "secret" in part:
            files = self._data(SECRETS, part["secret"], name)
        elif "configMap" in part:
            files = self._data(CONFIGS, part["configMap"], name)
        elif "serviceAccountToken" in part:
            path = part["serviceAccountToken"]["path"]
            files = {path: self._token().encode()}
        else:
            items = part.get("downwardAPI", {}).get("items") or ()
            files = {it["path"]: self.field(it["fieldRef"]["fieldPath"]).encode() for it in items}
        for path, data in files.items():
            target = here / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            target.chmod(mode)

    def _data(self, key: tuple[str, str], source: Object, volume: str) -> dict[str, bytes]:
        name = source.get("secretName") or source.get("name", "")
        entry = self._store.get(key, self._namespace, name)
        if entry is None:
            if source.get("optional"):
                return {}
            what = "secret" if key == SECRETS else "configmap"
            raise NotYet(
                "FailedMount",
                f'MountVolume.SetUp failed for volume "{volume}" : {what} "{name}" not found',
            )
        files = content(key, entry.object)
        items = source.get("items")
        if not items:
            return files
        return {it["path"]: files[it["key"]] for it in items if it["key"] in files}

    def mounts(self, container: Object, volumes: dict[str, Path]) -> Mounts:
        found = Mounts()
        readable = {
            it["name"]
            for it in self._pod["spec"].get("volumes", ())
            if {"secret", "configMap", "downwardAPI", "projected"} & set(it)
            or it.get("persistentVolumeClaim", {}).get("readOnly")
        }
        for mount in container.get("volumeMounts", ()):
            source = volumes[mount["name"]]
            part = mount.get("subPath") or self.expanded(mount.get("subPathExpr", ""), container)
            if part:
                source = source / part
                if not source.exists():
                    source.mkdir(parents=True)
            place = mount["mountPath"].rstrip("/") or "/"
            if mount.get("readOnly") or mount["name"] in readable:
                found.read_only[place] = source
            else:
                found.writable[place] = source
        return found

    def environment(self, container: Object) -> dict[str, str]:
        """Raises NotYet as CreateContainerConfigError."""
        self._refuse_root(container)
        found: dict[str, str] = {}
        for source in container.get("envFrom", ()):
            kind, key = (
                ("secretRef", SECRETS) if "secretRef" in source else ("configMapRef", CONFIGS)
            )
            entry = self._referred(key, source[kind])
            for name, value in (content(key, entry) if entry else {}).items():
                found[source.get("prefix", "") + name] = value.decode()
        for one in container.get("env", ()):
            value = one.get("value", "")
            if "valueFrom" in one:
                told = self._value_from(one["valueFrom"], container)
                if told is None:
                    continue
                value = told
            else:
                value = expand(value, found)
            found[one["name"]] = value
        return found

    def _refuse_root(self, container: Object) -> None:
        """Every image is one of root's."""
        pod, own = self._pod["spec"].get("securityContext") or {}, container.get("securityContext")
        context = {**pod, **(own or {})}
        if context.get("runAsNonRoot") and not context.get("runAsUser"):
            metadata = self._pod["metadata"]
            place = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
            why = "container has runAsNonRoot and image will run as root"
            message = f'{why} (pod: "{place}", container: {container["name"]})'
            raise NotYet("CreateContainerConfigError", message)

    def _referred(self, key: tuple[str, str], reference: Object) -> Object | None:
        entry = self._store.get(key, self._namespace, reference["name"])
        if entry is None:
            if reference.get("optional"):
                return None
            what = "secret" if key == SECRETS else "configmap"
            message = f'{what} "{reference["name"]}" not found'
            raise NotYet("CreateContainerConfigError", message)
        return entry.object

    def _value_from(self, source: Object, container: Object) -> str | None:
        for kind, key in (("secretKeyRef", SECRETS), ("configMapKeyRef", CONFIGS)):
            if kind not in source:
                continue
            reference = source[kind]
            entry = self._referred(key, reference)
            found = content(key, entry).get(reference["key"]) if entry else None
            if found is None:
                if reference.get("optional"):
                    return None
                what = "Secret" if key == SECRETS else "ConfigMap"
                where = f"{self._namespace}/{reference['name']}"
                message = f"couldn't find key {reference['key']} in {what} {where}"
                raise NotYet("CreateContainerConfigError", message)
            return found.decode()
        if "resourceFieldRef" in source:
            kind, _, name = source["resourceFieldRef"]["resource"].partition(".")
            return str(container.get("resources", {}).get(kind, {}).get(name, "0"))
        return self.field(source["fieldRef"]["fieldPath"])

    def field(self, path: str) -> str:
        """Of the downward API."""
        if found := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
            return str((self._pod["metadata"].get(found[1]) or {}).get(found[2], ""))
        value: Any = self._pod
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        return "" if value is None else str(value)

    def expanded(self, text: str, container: Object) -> str:
        return expand(text, self.environment(container)) if text else ""


def content(key: tuple[str, str], stored: Object) -> dict[str, bytes]:
    data = stored.get("data") or {}
    if key == SECRETS:
        return {k: base64.b64decode(v or "") for k, v in data.items()}
    binary = stored.get("binaryData") or {}
    return {k: v.encode() for k, v in data.items()} | {
        k: base64.b64decode(v) for k, v in binary.items()
    }


def expand(text: str, variables: dict[str, str]) -> str:
    """$(NAME) of what is known; $$ is a dollar."""

    def one(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)", one, text)

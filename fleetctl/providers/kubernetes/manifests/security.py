"""Chooses the user of pods, and where they may write, so that namespaces of Pod Security
`restricted` take them. Pure.

A plain Python runs as an arbitrary user. An image of a registry runs as the user that it names,
since only its maker knows that user's rights; all else of `restricted` holds for it too.
"""

from __future__ import annotations

from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.manifests.pod_images import PodImage
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.template import Template

USER = 65532  # called `nonroot` by images without a root
WORK = "/work"  # where the work begins, and its home
_TEMPORARY = "/tmp/"  # in the pod, where anybody may write
# Volumes belong to one group, so that the next image may change the files of the one before.
_SHARED: Object = {
    "seccompProfile": {"type": "RuntimeDefault"},
    "fsGroup": USER,
    "fsGroupChangePolicy": "OnRootMismatch",
}
_NOBODY = {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER}
CONTAINER: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


def is_nobody(
    template: Template,
    image: PodImage,
    settings: ClusterSettings,
) -> bool:
    """Returns whether the pod runs as USER: all that it writes has to be its own."""
    cache = settings.package_cache
    of_node = bool(image.install) and cache is not None and cache.host_path is not None
    return image.plain and not of_node and not _writes_beside(template)


def _writes_beside(template: Template) -> bool:
    """Returns whether paths outside of the mounts have to be made, which requires root."""
    git = template.source.git if template.source is not None else None
    # A part of a repository is cloned beside its path.
    beside = git is not None and git.path is not None and bool(place_of_source(template))
    return beside or any(mount.links for mount in template.volumes)


def place_of_source(template: Template) -> str:
    """Returns the path of the source, if that is a directory of its own; or ""."""
    path = template.source.mount_path if template.source is not None else None
    within = [it.mount_path.rstrip("/") + "/" for it in template.volumes]
    if path is None or path.startswith((_TEMPORARY, *within)):
        return ""
    return path.rstrip("/")


def pod_context(*, nobody: bool) -> Object:
    """Returns `securityContext` of a pod."""
    return {**_SHARED, **(_NOBODY if nobody else {})}


def home_variables(*, nobody: bool) -> dict[str, str]:
    """Returns the variables of a user without a line in /etc/passwd: programs ask for a home and a
    name.
    """
    if nobody:
        return {"HOME": WORK, "USER": "fleetctl", "LOGNAME": "fleetctl"}
    return {}


def writable_mounts(template: Template, *, nobody: bool) -> list[Object]:
    """Returns the mounts that the pod's own user may write, beside /tmp."""
    if not nobody:
        return []
    place = place_of_source(template)
    found: list[Object] = [{"name": "fleetctl-work", "mountPath": WORK}]
    if place and place != WORK:
        found.append({"name": "fleetctl-source", "mountPath": place})
    return found


def writable_volumes(template: Template, *, nobody: bool) -> list[Object]:
    return [{"name": it["name"], "emptyDir": {}} for it in writable_mounts(template, nobody=nobody)]

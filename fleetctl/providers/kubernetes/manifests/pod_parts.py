"""The parts of a pod: its image and the packages installed at its start, requests and limits, its
user, and what the `kubernetes` blocks describe. Pure.

A plain Python runs as an arbitrary user. An image of a registry runs as the user that it names,
since only its maker knows that user's rights; all else of `restricted` holds for it too.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.common.errors import Refused
from fleetctl.kubernetes.connection import Object
from fleetctl.providers.kubernetes.manifests.gang_manifests import gang_size
from fleetctl.providers.kubernetes.manifests.labels import MANAGED, PREFIX
from fleetctl.providers.remote.recipes import DEFAULT_PYTHON, Recipe, build_recipe
from fleetctl.providers.uv import PASSWORD, index_options, named_options
from fleetctl.specs.blocks.kubernetes import ANY_GPU, ClusterSettings, KeptHere
from fleetctl.specs.blocks.resources import Gpu, Resources
from fleetctl.specs.blocks.template import Image, PipIndex, Template
from fleetctl.specs.values.pod_shape import TEMPLATE, patch_shape

BUILD_HINT = "build an image, push it, and name it in `image.registry`"
_APT = "apt-get update && apt-get install -y --no-install-recommends"

_NAMES = {"disk": "ephemeral-storage"}  # of ours, in requests

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

# Fields of a pod that name an object of its namespace, by its sort; wherever they are.
_NAMED = {
    "secretRef": ("secrets", "name"),
    "secretKeyRef": ("secrets", "name"),
    "nodePublishSecretRef": ("secrets", "name"),
    "azureFile": ("secrets", "secretName"),
    "configMapRef": ("configmaps", "name"),
    "configMapKeyRef": ("configmaps", "name"),
    "configMap": ("configmaps", "name"),
    "persistentVolumeClaim": ("persistentvolumeclaims", "claimName"),
}


@dataclass(frozen=True, slots=True)
class PodImage:
    """A pod's image. name: its reference. guest: which of the two guests it can run. install:
    requirements, for uv; key: the name of their installed set. plain: whether it is a Python of the
    Provider object's, and no image of the user's. login: the namespace's Secret with the index's
    login.
    """

    name: str
    guest: str
    install: tuple[str, ...] = ()
    key: str = ""
    env: tuple[tuple[str, str], ...] = ()
    plain: bool = False
    login: str = ""


def image_of(template: Template, settings: ClusterSettings) -> PodImage:
    """Returns the image of a pod and the packages that it installs at its start. Raises Refused for
    an image that only a build could make.
    """
    made = build_recipe(template)
    version = made.python or DEFAULT_PYTHON
    slim = "" if template.source is not None and template.source.git is not None else "-slim"
    plain = _fill_version(settings.python_image, version, slim)
    what = _needs_a_build(template, made)
    if what:
        raise Refused(
            f"{what}, and provider `kubernetes` builds no images: it installs `image.pip` into a"
            " plain Python alone",
            hint=_build_hint(template, made, made.registry or plain),
        )
    if made.registry is not None:
        # Nodes meet, join a Ray cluster and report about each other in Python.
        guest = "python" if made.must_have_python or gang_size(template) > 1 else "posix"
        return PodImage(made.registry, guest, env=made.env)
    if not made.pip:
        return PodImage(plain, "python", env=made.env, plain=True)
    series = ".".join(version.split(".")[:2])  # images with uv have no patch releases
    name = _fill_version(settings.pip_image, series, slim)
    index, login = _index_options(made.index)
    install = (*index, *made.pip)
    return PodImage(
        name,
        "python",
        install,
        made.key,
        made.env,
        plain=True,
        login=login,
    )


def _index_options(index: PipIndex | None) -> tuple[list[str], str]:
    """(options of uv, the Secret of the namespace with the password). Raises Refused."""
    if index is None or index.secret is None:
        return index_options(index), ""
    if index.login is not None and not index.kept:
        raise Refused(
            f"image.pipIndex.secret is `{index.secret}`, and pods take the password of an index"
            " from a Secret of their namespace alone",
            hint=f"`kubectl create secret generic NAME --from-literal={PASSWORD}=...`, and"
            " `fromProvider: NAME` in the Secret",
        )
    return named_options(index), index.kept


def without_login(image: Image | None) -> Image | None:
    """Returns the image without the Secret of its package index."""
    if image is None or image.pip_index is None:
        return image
    index = image.pip_index.model_copy(update={"secret": None})
    return image.model_copy(update={"pip_index": index})


def _fill_version(
    form: str,
    version: str,
    slim: str,
) -> str:
    return form.replace("{python}", version).replace("{slim}", slim)


def _needs_a_build(template: Template, made: Recipe) -> str:
    """Returns the part of a recipe that a pod cannot install at its start; "" if there is none."""
    asked = template.image
    if asked is not None and asked.apt:
        return f"image.apt is `{asked.apt[0]}`"
    if made.run:
        return "image.run has commands"
    if made.packages:
        return f"image.pip has `{made.packages[0].path}` of this machine"
    if made.registry is not None and made.python:
        return f"image.python is `{made.python}` beside the image `{made.registry}`"
    if made.registry is not None and made.pip:
        return f"image.pip has packages beside the image `{made.registry}`"
    return ""


def _build_hint(
    template: Template,
    made: Recipe,
    base: str,
) -> str:
    """The command that builds it, where one line can."""
    apt = template.image.apt if template.image is not None else ()
    steps = [
        f"FROM {base}",
        *([f"RUN {_APT} {shlex.join(apt)}"] if apt else []),
        *(
            [f"RUN pip install {shlex.join((*index_options(made.index), *made.pip))}"]
            if made.pip
            else []
        ),
        *(f"RUN {command}" for command in made.run),
    ]
    beyond = made.packages or (made.registry is not None and made.python)
    if beyond or any("\n" in step for step in steps):
        return BUILD_HINT
    lines = " ".join(shlex.quote(step) for step in steps)
    return f"{BUILD_HINT}: printf '%s\\n' {lines} | docker build -t REGISTRY/NAME -"


def container_resources(asked: Resources, settings: ClusterSettings) -> Object:
    """Returns the container's resources: it gets as much as it asks for, and may not exceed it,
    where `requests` of the settings do not ask for less.
    """
    amounts: dict[str, str] = {}
    if asked.cpu is not None:
        amounts["cpu"] = f"{math.ceil(asked.cpu * 1000)}m"
    if asked.memory is not None:
        amounts["memory"] = str(asked.memory)
    if asked.disk is not None:
        amounts["ephemeral-storage"] = str(asked.disk)
    if asked.gpu is not None:
        amounts[settings.gpus.resource] = str(asked.gpu.count)
    amounts.update({name: str(it) for name, it in settings.extra_resources.items()})
    less = {_NAMES.get(name, name): str(it) for name, it in settings.requests.items()}
    claims = [{"name": it["name"]} for it in settings.resource_claims]
    made = {"requests": {**amounts, **less}, "limits": amounts, "claims": claims}
    return {name: it for name, it in made.items() if it}


def node_selector(asked: Resources, settings: ClusterSettings) -> dict[str, str]:
    """Returns the labels that the node must have. Raises Refused for a GPU that the settings
    exclude from the cluster.
    """
    wanted = dict(settings.node_selector)
    if asked.gpu is not None and asked.gpu.name.lower() != ANY_GPU:
        wanted[settings.gpus.label] = _sort_of(asked.gpu, settings)
    return wanted


def _sort_of(gpu: Gpu, settings: ClusterSettings) -> str:
    found = settings.gpus.value_of(gpu.name)
    if found is None:
        listed = ", ".join(settings.gpus.names)
        raise Refused(
            f"resources.gpu is `{gpu.name}`, and `kubernetes.gpus.names` of the Provider object has"
            " no such name",
            hint=f"it has {listed}",
        )
    return found


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


def pod_fields(settings: ClusterSettings, uid: str) -> Object:
    """Returns fields of the pod's spec. uid: of the object whose pods a spread counts."""
    own = {"matchLabels": {f"{PREFIX}uid": uid}}
    return {
        "affinity": dict(settings.affinity),
        "topologySpreadConstraints": [
            it if "labelSelector" in it else {**it, "labelSelector": own}
            for it in settings.topology_spread
        ],
        "resourceClaims": list(settings.resource_claims),
        "initContainers": list(settings.init_containers),
    }


def list_kept_variables(settings: ClusterSettings) -> list[Object]:
    """Returns `envFrom` of the work's container."""
    return [
        {
            **({"prefix": it.prefix} if it.prefix is not None else {}),
            field: {"name": it.name, **_optional_mark(it)},
        }
        for field, listed in (
            ("configMapRef", settings.config_maps),
            ("secretRef", settings.secrets),
        )
        for it in listed
        if it.mount_path is None
    ]


def list_kept_mounts(settings: ClusterSettings) -> list[Object]:
    return [
        {"name": name, "mountPath": it.mount_path, "readOnly": True}
        for name, _, it in _file_volumes(settings)
    ]


def list_kept_volumes(settings: ClusterSettings) -> list[Object]:
    found = []
    for name, field, it in _file_volumes(settings):
        called = "name" if field == "configMap" else "secretName"
        found.append({"name": name, field: {called: it.name, **_optional_mark(it)}})
    return found


def _file_volumes(settings: ClusterSettings) -> Iterator[tuple[str, str, KeptHere]]:
    """Returns (the volume's name, its field, the field's content) of volumes of files."""
    for field, listed in (("configMap", settings.config_maps), ("secret", settings.secrets)):
        for number, it in enumerate(listed):
            if it.mount_path is not None:
                yield f"{field.lower()}-{number}", field, it


def _optional_mark(kept: KeptHere) -> Object:
    if kept.optional:
        return {"optional": True}
    return {}


def reshape_template(template: Object, settings: ClusterSettings) -> Object:
    """Returns a pod's template with the patch of `podTemplate`, which cannot change our labels."""
    if not settings.pod_template:
        return template
    made: Object = patch_shape(template, settings.pod_template, TEMPLATE)
    labels = made["metadata"].setdefault("labels", {})
    ours = {key: it for key, it in template["metadata"]["labels"].items() if _is_ours(key)}
    made["metadata"]["labels"] = {**labels, **ours}
    return made


def _is_ours(label: str) -> bool:
    return label.startswith(PREFIX) or label in MANAGED


def list_named(pod: Object) -> set[tuple[str, str]]:
    """Returns (plural, name) of all in its namespace that a pod's spec makes use of."""
    found = set(_inner_fields(pod))
    for it in pod.get("imagePullSecrets") or ():
        found.add(("secrets", str(it.get("name"))))
    # Kubernetes still reads the field's former name where the present one is empty.
    if account := pod.get("serviceAccountName") or pod.get("serviceAccount"):
        found.add(("serviceaccounts", str(account)))
    return found


def _inner_fields(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for one in value:
            yield from _inner_fields(one)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if isinstance(one, Mapping) and key in _NAMED:
                plural, field = _NAMED[key]
                if name := one.get(field):
                    yield plural, str(name)
            # In a volume it is `secretName`, in a projected one `name`.
            if key == "secret" and isinstance(one, Mapping):
                yield "secrets", str(one.get("secretName") or one.get("name"))
            yield from _inner_fields(one)

"""Chooses the image that a pod begins from, and the packages that are installed at its start.
Pure.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from fleetctl.common.errors import Refused
from fleetctl.providers.kubernetes.manifests.gang_manifests import gang_size
from fleetctl.providers.pip_index import PASSWORD, index_options, named_options
from fleetctl.providers.remote.assets.recipes import DEFAULT_PYTHON, Recipe, build_recipe
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.template import Image, PipIndex, Template

BUILD_HINT = "build an image, push it, and name it in `image.registry`"
_APT = "apt-get update && apt-get install -y --no-install-recommends"


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
    """Raises Refused for what only a build could make."""
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

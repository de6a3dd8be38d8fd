"""Which image a pod begins from, and what is installed into it at its start. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from fleetctl.common.errors import Refused
from fleetctl.providers.kubernetes.manifests.gangs import size
from fleetctl.providers.pip_index import options, refuse_secret
from fleetctl.providers.remote.assets.recipes import DEFAULT_PYTHON, Recipe, recipe
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.template import Template

BUILD_HINT = "build an image, push it, and name it in `image.registry`"
_APT = "apt-get update && apt-get install -y --no-install-recommends"


@dataclass(frozen=True, slots=True)
class PodImage:
    """name: its reference. guest: which of the two it can run. install: requirements, for uv; key:
    names what they make.
    """

    name: str
    guest: str
    install: tuple[str, ...] = ()
    key: str = ""
    env: tuple[tuple[str, str], ...] = ()


def image_of(template: Template, settings: ClusterSettings) -> PodImage:
    """Raises Refused for what only a build could make."""
    made = recipe(template)
    version = made.python or DEFAULT_PYTHON
    slim = "" if template.source is not None and template.source.git is not None else "-slim"
    plain = _named(settings.python_image, version, slim)
    what = _needs_a_build(template, made)
    if what:
        raise Refused(
            f"{what}, and provider `kubernetes` builds no images: it installs `image.pip` into a"
            " plain Python alone",
            hint=_build_hint(template, made, made.registry or plain),
        )
    if made.registry is not None:
        # Nodes meet, join a Ray cluster and tell of each other in Python.
        guest = "python" if made.must_have_python or size(template) > 1 else "posix"
        return PodImage(made.registry, guest, env=made.env)
    if not made.pip:
        return PodImage(plain, "python", env=made.env)
    series = ".".join(version.split(".")[:2])  # images with uv have no patch releases
    name = _named(settings.pip_image, series, slim)
    refuse_secret(template.image, "kubernetes")
    return PodImage(name, "python", (*options(made.index), *made.pip), made.key, made.env)


def _named(form: str, version: str, slim: str) -> str:
    return form.replace("{python}", version).replace("{slim}", slim)


def _needs_a_build(template: Template, made: Recipe) -> str:
    """What of it a pod cannot install at its start; or empty."""
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


def _build_hint(template: Template, made: Recipe, base: str) -> str:
    """The command that builds it, where one line can."""
    apt = template.image.apt if template.image is not None else ()
    steps = [
        f"FROM {base}",
        *([f"RUN {_APT} {shlex.join(apt)}"] if apt else []),
        *([f"RUN pip install {shlex.join((*options(made.index), *made.pip))}"] if made.pip else []),
        *(f"RUN {command}" for command in made.run),
    ]
    beyond = made.packages or (made.registry is not None and made.python)
    if beyond or any("\n" in step for step in steps):
        return BUILD_HINT
    lines = " ".join(shlex.quote(step) for step in steps)
    return f"{BUILD_HINT}: printf '%s\\n' {lines} | docker build -t REGISTRY/NAME -"

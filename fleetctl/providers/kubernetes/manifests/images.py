"""Which image a pod begins from, and what is installed into it at its start. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.common.errors import Refused
from fleetctl.providers.kubernetes.manifests.gangs import size
from fleetctl.providers.remote.assets.recipes import DEFAULT_PYTHON, recipe
from fleetctl.specs.blocks.kubernetes import ClusterSettings
from fleetctl.specs.blocks.template import Template

BUILD_HINT = "build an image, and name it in `image.registry`"


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
    asked = template.image
    if asked is not None and asked.apt:
        raise _refused(f"image.apt is `{asked.apt[0]}`")
    if made.run:
        raise _refused("image.run has commands")
    if made.packages:
        raise _refused(f"image.pip has `{made.packages[0].path}` of this machine")
    if made.registry is not None:
        if made.python or made.pip:
            what = f"image.python is `{made.python}`" if made.python else "image.pip has packages"
            raise _refused(f"{what} beside the image `{made.registry}`")
        # Nodes meet, join a Ray cluster and tell of each other in Python.
        guest = "python" if made.must_have_python or size(template) > 1 else "posix"
        return PodImage(made.registry, guest, env=made.env)
    version = made.python or DEFAULT_PYTHON
    slim = "" if template.source is not None and template.source.git is not None else "-slim"
    if not made.pip:
        return PodImage(_named(settings.python_image, version, slim), "python", env=made.env)
    series = ".".join(version.split(".")[:2])  # images with uv have no patch releases
    name = _named(settings.pip_image, series, slim)
    return PodImage(name, "python", made.pip, made.key, made.env)


def _named(form: str, version: str, slim: str) -> str:
    return form.replace("{python}", version).replace("{slim}", slim)


def _refused(what: str) -> Refused:
    return Refused(
        f"{what}, and provider `kubernetes` builds no images: it installs `image.pip` into a plain"
        " Python alone",
        hint=BUILD_HINT,
    )

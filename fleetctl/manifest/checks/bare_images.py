"""Finds work whose image is known to have no Python, where a part beside the program needs it:
`outputs` are kept, `metrics` read and `services` looked after by a Python in the sandbox.

Only official images whose content everybody knows are refused here. Of all others the build says
it, or the first sandbox; and what installs anything may bring a Python.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.common.finding import Finding, Path
from fleetctl.manifest.checks import spec_parts
from fleetctl.specs.blocks.template import Image
from fleetctl.specs.values.scalars import Spec

# Official images of Docker Hub, all tags of them.
_WITHOUT_PYTHON = frozenset({"alpine", "bash", "busybox", "debian", "ubuntu"})
_HUB = ("docker.io/", "index.docker.io/", "registry-1.docker.io/")
_LIBRARY = "library/"
# Fields that need Python, with the way to do without; "": there is none.
_FIELDS = {
    "python": "",
    "outputs": "write the files to a volume",
    "metrics": "leave it out",
    "services": "",
}


def find_problems(spec: Spec) -> Iterator[Finding]:
    for at, image in spec_parts.list_images(spec):
        if not has_no_python(image):
            continue
        for field, instead in _FIELDS.items():
            for path, value in spec_parts.values_of(spec, field):
                if value and path[:-1] == at[:-1]:
                    yield _make_finding(path, image, instead)


def has_no_python(image: Image) -> bool:
    """Returns true for an image of which it is known; false where it may have one."""
    added = image.python or image.apt or image.run or image.pip or image.requirements
    if image.registry is None or added:
        return False
    return _official_name(image.registry) in _WITHOUT_PYTHON


def _official_name(reference: str) -> str:
    """Returns `alpine` of `docker.io/library/alpine:3.20@sha256:...`, and of others all but their
    tag.
    """
    name = reference.partition("@")[0]
    for host in _HUB:
        name = name.removeprefix(host)
    name = name.removeprefix(_LIBRARY)
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def _make_finding(
    path: Path,
    image: Image,
    instead: str,
) -> Finding:
    message = f" needs Python in the sandbox, and the image `{image.registry}` has none"
    ways = ["name one that has it, such as `python:3.12-slim`", "add `apt: [python3]`"]
    hint = ", or ".join([*ways, instead] if instead else ways)
    return Finding(path, message, hint, at_key=True)

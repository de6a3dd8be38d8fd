"""Finds sandboxes that cannot serve their work: requirements that no installer could read, images
without Python where a part needs it, paths that would hide the system.

Only bare official images are refused here, as their content is known. An image that installs
anything may contain Python; of other images the build or the first sandbox reports the fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleetctl.common.finding import Finding, Path, Severity
from fleetctl.common.text import did_you_mean
from fleetctl.manifest.checks import spec_parts
from fleetctl.manifest.problems import shorten_text
from fleetctl.specs.blocks.template import Image
from fleetctl.specs.kinds.batchjob import BatchJobSpec
from fleetctl.specs.values.packages import INDEX_FIELDS, INDEX_OPTION
from fleetctl.specs.values.scalars import Spec

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_ONE_EQUALS = re.compile(rf"({_NAME}(?:\[[^\]]*\])?)\s*=\s*([^=\s].*)")
_CONDA = re.compile(rf"({_NAME})=([0-9][^=]*)=.*")
_SPACED = re.compile(rf"{_NAME}(?:\s+{_NAME})+")
_VERSION = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[^\s,;()<>=!~]+"
# PEP 508, without the grammar of markers.
_REQUIREMENT = re.compile(
    rf"{_NAME}\s*(?:\[[^\]]*\])?\s*\(?\s*(?:{_VERSION}(?:\s*,\s*{_VERSION})*,?)?\s*\)?\s*(?:;.+)?"
)
_APT = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.:~_-]*(?:=\S+|/\S+)?")
_BARE_HOST = re.compile(r"(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}/\S+")
_TRANSPORTS = ("https", "http", "ssh", "git", "git+ssh", "file")
# Import names of packages with another name. As package names these belong to other packages, or
# are not registered.
_OTHERWISE = {
    "sklearn": "scikit-learn",
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "skimage": "scikit-image",
}


# A reference, as registries read it: [HOST[:PORT]/]PATH[:TAG][@DIGEST], the path in lower case.
_PATH = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_HOST = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)(?::[0-9]+)?|[A-Za-z0-9.-]+:[0-9]+"
_REFERENCE = re.compile(
    rf"(?:(?:{_HOST})/)?{_PATH}(?:/{_PATH})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@[a-z0-9]+:[0-9a-fA-F]{32,})?"
)

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

# A mount there hides the programs, libraries or settings that the sandbox itself runs by.
SYSTEM = frozenset(
    f"/{name}"
    for name in (
        *("bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "run", "sbin", "usr", "var"),
        *("usr/bin", "usr/include", "usr/lib", "usr/lib32", "usr/lib64", "usr/libexec"),
        *("usr/local", "usr/local/bin", "usr/local/lib", "usr/sbin", "usr/share"),
        *("var/lib", "var/run"),
    )
)
_WHOLE = ("/bin/", "/boot/", "/lib/", "/lib64/", "/sbin/", "/usr/bin/", "/usr/sbin/")


def find_problems(spec: Spec) -> Iterator[Finding]:
    """Yields references, requirements, packages and URLs that no program could read."""
    for at, image in spec_parts.list_images(spec):
        if image.registry is not None and not _REFERENCE.fullmatch(image.registry):
            yield _check_reference((*at, "registry"), image.registry)
        for number, text in enumerate(image.pip):
            yield from _check_requirement((*at, "pip", number), text)
        for number, text in enumerate(image.apt):
            yield from _check_package((*at, "apt", number), text)
    for at, source in spec_parts.list_sources(spec):
        if source.git is not None:
            yield from _check_repository_url((*at, "git", "url"), source.git.url)


def _check_reference(path: Path, text: str) -> Finding:
    message = f" is `{shorten_text(text)}`, which is no reference of an image"
    name, colon, tag = text.partition(":")
    lower = f"{name.lower()}{colon}{tag}"
    right = lower != text and _REFERENCE.fullmatch(lower)
    hint = f"write `{lower}`" if right else "write `HOST/PATH:TAG`, the path in lower case"
    return Finding(path, message, hint)


def _check_repository_url(path: Path, url: str) -> Iterator[Finding]:
    scheme, separator, rest = url.partition("://")
    if _BARE_HOST.fullmatch(url):
        message = f" is `{shorten_text(url)}`, which is a path on this machine"
        yield Finding(path, message, f"write `https://{shorten_text(url)}`")
    elif separator and scheme.lower() not in _TRANSPORTS:
        near = did_you_mean(scheme, _TRANSPORTS)
        message = f" begins with `{shorten_text(scheme)}://`, which git does not know"
        yield Finding(path, message, near or f"write `https://{shorten_text(rest)}`")
    elif separator and any(it.isspace() for it in url):
        message = f" is `{shorten_text(url)}`, and an address has no spaces"
        yield Finding(path, message, f"write `{shorten_text(''.join(url.split()))}`")


def find_doubts(spec: Spec) -> Iterator[Finding]:
    """Yields requirements that are import names, such as `sklearn`."""
    for at, image in spec_parts.list_images(spec):
        for number, text in enumerate(image.pip):
            name = re.split(r"[\s\[<>=!~;@]", text, maxsplit=1)[0]
            if name in _OTHERWISE:
                path: Path = (*at, "pip", number)
                message = f" is `{name}`, which is what programs import"
                hint = f"`{_OTHERWISE[name]}` is what installs it"
                yield Finding(path, message, hint, Severity.DOUBT)


def _check_requirement(path: Path, text: str) -> Iterator[Finding]:
    if text.startswith("-"):
        yield _describe_option(path, text)
        return
    if "@" in text or "/" in text:
        return  # a URL or a path: pip's own business
    if match := _CONDA.fullmatch(text) or _ONE_EQUALS.fullmatch(text):
        if match[1] == "python":
            message = f" is `{shorten_text(text)}`, which pip does not install"
            yield Finding(path, message, f'write `python: "{match[2].strip()}"` under `image`')
            return
        message = f" is `{shorten_text(text)}`; pip writes a version with `==`"
        yield Finding(path, message, f"write `{shorten_text(f'{match[1]}=={match[2].strip()}')}`")
    elif _SPACED.fullmatch(text):
        words = text.split()
        message = f" is `{shorten_text(text)}`, which is more than one requirement"
        yield Finding(path, message, f"write each as an entry of its own: `{', '.join(words)}`")
    elif not _REQUIREMENT.fullmatch(text.strip()):
        message = f" is `{shorten_text(text)}`, which is not a requirement that pip can read"
        yield Finding(path, message, "write it as `numpy`, `numpy==2.1.*` or `torch>=2,<3`")


def _describe_option(path: Path, text: str) -> Finding:
    """Describes an entry that pip reads as an option; `-r FILE` has been replaced by the file's
    list by now.
    """
    message = f" is `{shorten_text(text)}`, which is an option and no package"
    match = INDEX_OPTION.fullmatch(text)
    if match is None:
        return Finding(path, message, "list the requirements themselves, one an entry")
    field = INDEX_FIELDS[match["option"]]
    value = match["value"] if field == "url" else f"[{match['value']}]"
    return Finding(path, message, f"write `pipIndex: {{{field}: {value}}}` under `image`")


def _check_package(path: Path, text: str) -> Iterator[Finding]:
    if not _APT.fullmatch(text):
        words = text.split()
        message = f" is `{shorten_text(text)}`, which is not the name of a package"
        many = len(words) > 1 and all(map(_APT.fullmatch, words))
        hint = f"write each as an entry of its own: `{', '.join(words)}`" if many else "remove it"
        yield Finding(path, message, hint)


def find_bare_images(spec: Spec) -> Iterator[Finding]:
    """Yields fields that need Python beside an image that has none."""
    for at, image in spec_parts.list_images(spec):
        if not has_no_python(image):
            continue
        for field, instead in _FIELDS.items():
            for path, value in spec_parts.values_of(spec, field):
                if value and path[:-1] == at[:-1]:
                    yield _make_finding(path, image, instead)


def has_no_python(image: Image) -> bool:
    """Returns true for an image that has no Python for certain; false where it may have one."""
    added = image.python or image.apt or image.run or image.pip or image.requirements
    if image.registry is None or added:
        return False
    return _official_name(image.registry) in _WITHOUT_PYTHON


def _official_name(reference: str) -> str:
    """Returns `alpine` for `docker.io/library/alpine:3.20@sha256:...`; other references without tag
    and digest.
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


def find_mount_problems(spec: Spec) -> Iterator[Finding]:
    """Yields mount paths and links that would hide the system's own files."""
    for at, mount in spec_parts.list_volume_mounts(spec):
        yield from _check_hides_system((*at, "mountPath"), mount.mount_path)
        for number, link in enumerate(mount.links):
            yield from _check_hides_system((*at, "links", number), link)
    for at, source in spec_parts.list_sources(spec):
        if source.mount_path is not None:
            yield from _check_hides_system((*at, "mountPath"), source.mount_path)


def find_missing_volume(spec: BatchJobSpec) -> Iterator[Finding]:
    """Yields a finding where tasks are files of a volume that their sandboxes do not have."""
    files = spec.tasks.files if spec.tasks is not None else None
    volume = files.volume if files is not None else None
    mounts = spec.template.volumes
    if volume is None or spec.template.function is not None:  # a Function has volumes of its own
        return
    if not any(it.name == volume for it in mounts):
        at: Path = ("spec", "tasks", "fromFiles", "volume")
        message = f" is `{volume}`, which the template does not mount"
        hint = f"add `volumes: [{{name: {volume}, mountPath: /{volume}, readOnly: true}}]` to it"
        yield Finding(at, message, hint)


def _check_hides_system(path: Path, directory: str) -> Iterator[Finding]:
    if directory in SYSTEM or directory.startswith(_WHOLE):
        message = f" is `{directory}`, which would hide the system's own files there"
        name = directory.strip("/").partition("/")[0]
        yield Finding(path, message, f"use a path of its own, such as `/data` or `/mnt/{name}`")

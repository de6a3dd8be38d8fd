"""What `image.pip` may hold beside names: a file of requirements that its source has, and packages
of this machine among the entries of `image.pip`, and the digest by which an apply tells
one from the next that lies at the same path: `/a/b.whl#sha256=HEX`, as pip writes it. Pure.

A file of its own: the manifest writes the digest, and each provider reads it.
"""

from __future__ import annotations

import re

_MARK = "#sha256="
# `/a/b.whl`, `/a/b[extra]`, `file:///a/b` and `name @ file:///a/b`, each with or without a digest.
LOCAL = re.compile(
    r"(?:[A-Za-z0-9._-]+(?:\[[^\]]*\])?\s*@\s*)?(?:file://)?(?P<path>/[^\[\]]*?)"
    rf"(?P<extras>\[[^\]]*\])?(?:{_MARK}(?P<digest>[0-9a-f]{{64}}))?"
)


OUTSIDE = "must be a file inside the source, named from its top; any other is `pip: [-r FILE]`"


def is_inside(path: str) -> bool:
    """Whether a path stays below the directory that it begins in."""
    return not path.startswith(("/", "~")) and ".." not in path.split("/")


def with_digest(entry: str, digest: str) -> str:
    """digest: 64 hex digits of SHA-256."""
    return f"{entry}{_MARK}{digest}"


def without_digest(entry: str) -> str:
    """What installs the package; other entries as they are."""
    match = LOCAL.fullmatch(entry)
    return entry[: match.start("digest") - len(_MARK)] if match and match["digest"] else entry

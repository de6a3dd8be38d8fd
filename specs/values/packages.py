"""Entries of `image.pip` that are not names: a file of requirements that its source has, and
packages of this machine, with the digest by which an apply distinguishes one from the next at the
same path: `/a/b.whl#sha256=HEX`, as pip writes it. Pure.

A file of its own: the manifest writes the digest, and each provider reads it.
"""

from __future__ import annotations

import re
from typing import Any

_MARK = "#sha256="
# `/a/b.whl`, `/a/b[extra]`, `file:///a/b` and `name @ file:///a/b`, each with or without a digest.
LOCAL = re.compile(
    r"(?:[A-Za-z0-9._-]+(?:\[[^\]]*\])?\s*@\s*)?(?:file://)?(?P<path>/[^\[\]]*?)"
    rf"(?P<extras>\[[^\]]*\])?(?:{_MARK}(?P<digest>[0-9a-f]{{64}}))?"
)


# `--index-url URL` and its like, with the field of `image.pipIndex` that means the same.
INDEX_FIELDS = {
    "-i": "url",
    "--index-url": "url",
    "--extra-index-url": "extra",
    "-f": "findLinks",
    "--find-links": "findLinks",
}
INDEX_OPTION = re.compile(
    rf"(?P<option>{'|'.join(sorted(INDEX_FIELDS, key=len, reverse=True))})(?:\s+|=)(?P<value>\S+)"
)

OUTSIDE = "must be a file inside the source, named from its top; any other is `pip: [-r FILE]`"


def split_options(entries: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Returns (packages, fields of `image.pipIndex`) from the entries of a requirements file."""
    packages: list[str] = []
    index: dict[str, Any] = {}
    for entry in entries:
        match = INDEX_OPTION.fullmatch(entry)
        if match is None:
            packages.append(entry)
        elif (field := INDEX_FIELDS[match["option"]]) == "url":
            index[field] = match["value"]
        else:
            index.setdefault(field, []).append(match["value"])
    return packages, index


def with_options(index: Any, found: dict[str, Any]) -> Any:
    """Merges `image.pipIndex` of a manifest with the additions of files. Leaves a value that is not
    a mapping for the model to refuse.
    """
    if not found or not isinstance(index, dict | None):
        return index
    whole = {**found, **(index or {})}
    for field in ("extra", "findLinks"):
        own = whole.get(field, [])
        if field in found and isinstance(own, list):
            whole[field] = [*own, *(it for it in found[field] if it not in own)]
    return whole


def is_inside(path: str) -> bool:
    """Returns True if a path stays below the directory that it begins in."""
    return not path.startswith(("/", "~")) and ".." not in path.split("/")


def with_digest(entry: str, digest: str) -> str:
    """Returns the entry with its digest. digest: 64 hex digits of SHA-256."""
    return f"{entry}{_MARK}{digest}"


def without_digest(entry: str) -> str:
    """Returns the entry that installs the package; other entries as they are."""
    match = LOCAL.fullmatch(entry)
    if match and match["digest"]:
        return entry[: match.start("digest") - len(_MARK)]
    return entry

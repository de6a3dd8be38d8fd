"""Bare texts with two meanings, each with both. Called by document/short.py; pure.

A bare text stands for a mapping with one field only where a text has one reading. The texts here
look like another field's as well, and users meant that one as often.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fleetctl.manifest.problems import quoted_text, shorten_text


class Readings(NamedTuple):
    """Both meanings of a text, and how each is written."""

    meanings: str
    ways: str


_HOST = re.compile(r"^(?:[\w-]+\.)+[a-z]{2,}(?::\d+)?/[\w./~-]+$")
_REMOTE = re.compile(r"^(?!git@)[\w.@-]+:(?!//)\S+$")
_PYTHON = re.compile(r"^3(?:\.\d+)*$")
_FILE = re.compile(
    r"(?:^|/)(?:[\w.-]*(?:requirements[\w.-]*\.txt|\.toml)|Dockerfile|Containerfile)$"
)


def read_twice(field: str, text: str) -> Readings | None:
    """Returns both readings of a bare text in a field; None where it has one."""
    rule = _RULES.get(field)
    if rule is not None:
        return rule(text)
    return None


def _of_source(text: str) -> Readings | None:
    shown, quoted = shorten_text(text), quoted_text(text)
    if _HOST.match(text):
        return Readings(
            "a directory or a repository",
            f"write `./{shown}` for the directory, `https://{shown}` for the repository",
        )
    if _REMOTE.match(text):
        return Readings(
            "a directory or a repository",
            f"write `{{path: {quoted}}}` or `{{git: {{url: {quoted}}}}}`",
        )
    return None


def _of_image(text: str) -> Readings | None:
    shown, quoted = shorten_text(text), quoted_text(text)
    if _PYTHON.match(text):
        return Readings(
            "a version of Python or an image of a registry",
            f"write `{{python: {quoted}}}` or `{{registry: {quoted}}}`",
        )
    if _FILE.search(text):
        field = "requirements" if text.endswith(".txt") else "run"
        way = f"`{{{field}: {shown}}}`" if field == "requirements" else "`{apt: [...], run: [...]}`"
        return Readings(
            "a file of what to install or an image of a registry",
            f"write {way} or `{{registry: {quoted}}}`",
        )
    return None


_RULES: Mapping[str, Callable[[str], Readings | None]] = {
    "source": _of_source,
    "image": _of_image,
}

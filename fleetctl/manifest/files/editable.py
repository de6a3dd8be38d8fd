"""Editable packages of `image.pip`: `-e ./lib`, as pip writes them. The image has the package with
all its dependencies; if its directory is part of the source, tasks import the source's own files
before those. Called by includes.py.
"""

from __future__ import annotations

import os
import re
from pathlib import Path as FilePath
from typing import Any

VARIABLE = "PYTHONPATH"
# Where many projects keep their packages, one level below pyproject.toml.
LAYOUT = "src"
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s+|=)(?P<path>[^\[\]]+?)(?:\[[^\]]*\])?")
NO_SOURCE = "there is no `source.path` that brings it to tasks"
OUTSIDE = "it is outside of `source.path`"
ELSEWHERE = "`workdir` is not a directory inside of the source"


def editable_path(entry: object, directory: str) -> str | None:
    """Returns the absolute directory of an editable package; None for any other entry."""
    match = _EDITABLE.fullmatch(entry.strip()) if isinstance(entry, str) else None
    if match is None:
        return None
    return os.path.normpath(os.path.join(directory, os.path.expanduser(match["path"])))


def why_not(
    path: str,
    origin: str,
    workdir: object,
) -> str:
    """Returns the reason why tasks cannot import the files of the source; empty if they can."""
    if not origin:
        return NO_SOURCE
    if path != origin and not path.startswith(os.path.join(origin, "")):
        return OUTSIDE
    if workdir is not None and (not isinstance(workdir, str) or workdir.startswith("/")):
        return ELSEWHERE
    return ""


def put_first(
    holder: dict[str, Any],
    path: str,
    origin: str,
) -> None:
    """Makes programs of this template find the package at `path`, relative to their start
    directory, since the source's path differs between sandboxes.
    """
    code = FilePath(path) / LAYOUT
    start = os.path.join(origin, holder.get("workdir") or "")
    found = os.path.relpath(code if code.is_dir() else path, start)
    env = holder.get("env")
    if env is None:
        env = holder["env"] = {}
    if not isinstance(env, dict):
        return  # the model reports the fault
    parts = str(env[VARIABLE]).split(":") if VARIABLE in env else []
    if found not in parts:
        env[VARIABLE] = ":".join([found, *parts])

"""Finds the command that adds an extra to the running fleetctl: by the way that it was installed,
as a package of its name at a registry may be another project's.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

NAME = "fleetctl"
# Another package's pin brings the older one in, and then all imports of ours fail.
PYDANTIC_MIN = 2


def install_hint(extra: str, *, upgrade: bool = False) -> str:
    """Returns a command such as `pip install '/home/me/fleetctl[bayes]'`."""
    wanted, editable = _find_origin()
    added = f"[{extra}]" if extra else ""
    flags = " --upgrade" * upgrade + " -e" * editable
    return f"{_installer_command()}{flags} '{wanted.format(extra=added)}'"


def old_dependency() -> tuple[str, str]:
    """Returns (a sentence about the pydantic of this environment, what to do); empty where it is
    new enough.
    """
    try:
        there = version("pydantic")
    except PackageNotFoundError:
        return "fleetctl needs pydantic, which is not installed here", install_hint("")
    if int(there.partition(".")[0]) >= PYDANTIC_MIN:
        return "", ""
    return (
        f"fleetctl needs pydantic {PYDANTIC_MIN}, and this environment has {there}",
        f"pip install 'pydantic>={PYDANTIC_MIN}', or install fleetctl into an environment of its"
        " own",
    )


@cache
def _find_origin() -> tuple[str, bool]:
    """Returns the origin of this copy, with a slot for the extra, and if it is that very source."""
    try:
        found = distribution(NAME)
    except PackageNotFoundError:
        return f"{NAME}{{extra}}", False
    record = _direct_url(found)
    url = str(record.get("url") or "")
    if "dir_info" in record:
        path = url2pathname(urlsplit(url).path)
        return path + "{extra}", bool(record["dir_info"].get("editable"))
    if url:
        vcs = record.get("vcs_info", {}).get("vcs")
        return f"{NAME}{{extra}} @ {f'{vcs}+' if vcs else ''}{url}", False
    return f"{NAME}{{extra}}", False


def _direct_url(found: Distribution) -> dict[str, Any]:
    """Returns the origin by PEP 610; empty where it came from a registry."""
    record: dict[str, Any] = json.loads(found.read_text("direct_url.json") or "{}")
    return record


def _installer_command() -> str:
    """Returns `uv tool install` where uv keeps this program apart, and uv's own pip where the
    environment has none: the `pip` on the path is another environment's then.
    """
    parts = PurePath(sys.prefix).parts
    if parts[-3:-1] == ("uv", "tools"):
        return "uv tool install"
    if importlib.util.find_spec("pip") is None:
        own = Path(sys.prefix, "bin", "uv")
        uv = shlex.quote(str(own)) if own.exists() else "uv"
        return f"{uv} pip install --python {shlex.quote(sys.executable)}"
    return "pip install"

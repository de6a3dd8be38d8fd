"""How a person adds one of the extras to the fleetctl that runs: by the way that it was installed,
for a package of its name at a registry may be somebody else's.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

NAME = "fleetctl"


def install_hint(extra: str, *, upgrade: bool = False) -> str:
    """Returns a command such as `pip install '/home/me/fleetctl[bayes]'`."""
    wanted, editable = _origin()
    flags = " --upgrade" * upgrade + " -e" * editable
    return f"{_program()}{flags} '{wanted.format(extra=f'[{extra}]')}'"


@cache
def _origin() -> tuple[str, bool]:
    """Where this copy came from, with a place for the extra, and whether it is that very source."""
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
    """Of PEP 610; empty where it came from a registry."""
    record: dict[str, Any] = json.loads(found.read_text("direct_url.json") or "{}")
    return record


def _program() -> str:
    """`uv tool install` where uv keeps this program apart: its environments have no pip."""
    parts = PurePath(sys.prefix).parts
    return "uv tool install" if parts[-3:-1] == ("uv", "tools") else "pip install"

"""Certificates of public authorities, which no test needs. A module of its own without pytest: each
command of tests/servers/forked.py imports it.
"""

from __future__ import annotations

import os
import ssl
from typing import Any

# A file of authorities that is larger has the public ones: a test's own has one or two.
OWN_BYTES_MAX = 64 * 1024
_load = ssl.SSLContext.load_verify_locations


def forget_authorities() -> None:
    """Nothing on loopback has a certificate that the public authorities know, and every client of
    httpx or an SDK would read all of them: a twentieth of a second each.
    """
    ssl.SSLContext.load_default_certs = _without_authorities  # type: ignore[method-assign]
    ssl.SSLContext.load_verify_locations = _load_others  # type: ignore[method-assign]


def _without_authorities(context: ssl.SSLContext, purpose: object = None) -> None:
    del context, purpose


def _load_others(
    context: ssl.SSLContext, cafile: Any = None, capath: Any = None, cadata: Any = None
) -> None:
    if cafile is None or not _is_public(cafile):
        _load(context, cafile, capath, cadata)


def _is_public(path: str | bytes | os.PathLike[str]) -> bool:
    """Returns whether a file is that of the package certifi or of the system."""
    try:
        return os.stat(path).st_size > OWN_BYTES_MAX
    except OSError:  # as the library reports it
        return False

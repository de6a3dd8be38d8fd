"""Certificates of public authorities, which no test needs. A module of its own without pytest: each
command of tests/servers/forked.py imports it.
"""

from __future__ import annotations

import ssl


def forget_authorities() -> None:
    """Nothing on loopback has a certificate that the public authorities know, and every client of
    an SDK would read all of them: a twentieth of a second each.
    """
    ssl.SSLContext.load_default_certs = _without_authorities  # type: ignore[method-assign]


def _without_authorities(context: ssl.SSLContext, purpose: object = None) -> None:
    del context, purpose

"""Finds the proxy of the environment for a request: `HTTP_PROXY` and `HTTPS_PROXY`, except for the
hosts in `NO_PROXY`, and never for this machine itself.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

# Environment variables, for processes of ours that make requests; each also in small letters.
NAMES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "no_proxy"),
)


def proxy_of(url: str) -> str | None:
    """Returns the proxy's URL; None for a direct request."""
    from urllib.request import getproxies, proxy_bypass  # heavy, and most processes make no request

    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return getproxies().get(parts.scheme)


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""The proxy of the environment that a request goes by: `HTTP_PROXY` and `HTTPS_PROXY`, but for the
hosts in `NO_PROXY`, and never for this machine itself.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

# Of the environment, for processes of ours that ask others; each also in small letters.
NAMES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "no_proxy"),
)


def proxy_of(url: str) -> str | None:
    """The proxy's URL; None where it is asked directly."""
    from urllib.request import getproxies, proxy_bypass  # heavy, and most processes ask nobody

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

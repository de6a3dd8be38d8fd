"""Sends a notice as an HTTP request, to webhooks and Slack, and defines the result of a delivery to
any sink.

No redirect is followed: a signature, and an address that is a secret, go only where a user sent
them. The sink's reply is not read beyond its status, so that none of its text comes to a screen.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import SplitResult, urlsplit

from fleetctl.common.proxies import proxy_of
from fleetctl.common.version import VERSION

TIMEOUT_S = 10.0  # of each step; send.py bounds the whole
RETRY_AFTER_S_MAX = 24 * 3600.0
# Where clouds keep credentials beside link-local addresses: AWS over IPv6, Alibaba, Oracle.
CREDENTIALS_AT = frozenset(
    map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "192.0.0.192"))
)
# Networks whose addresses end with one of IPv4: of NAT64, and the compatible ones of old.
_LAST_32_BITS = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class NoticePost:
    """One request, which another thread may cut off."""

    def __init__(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
    ) -> None:
        self._url = url
        self._body = body
        self._headers = {
            "Content-Type": "application/json",
            "User-Agent": f"fleetctl/{VERSION}",
            **headers,
        }
        self._connection: HTTPConnection | None = None

    def __call__(self) -> SinkOutcome:
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return SinkOutcome("its URL must begin with https:// or http://, and a host")
        try:
            self._connection = _connect_http(parts)
            query = f"?{parts.query}" if parts.query else ""
            path = f"{parts.path or '/'}{query}"
            self._connection.request("POST", path, self._body, self._headers)
            with self._connection.getresponse() as answer:
                return _read_outcome(answer)
        except _LinkLocal:
            return SinkOutcome("its host is a link-local address, where clouds keep credentials")
        except (OSError, HTTPException, ValueError) as error:
            return SinkOutcome(f"no answer: {describe_error(error)}")
        finally:
            if self._connection is not None:
                self._connection.close()

    def cut(self) -> None:
        """Ends the request, wherever it hangs."""
        held = getattr(self._connection, "sock", None)
        if held is not None:
            try:
                held.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has ended by itself


class _LinkLocal(Exception):
    """The address after all names were resolved."""


def _connect_http(parts: SplitResult) -> HTTPConnection:
    """Connects to the sink, by the proxy that the environment names, if any."""
    assert parts.hostname is not None
    host = parts.hostname
    secure = parts.scheme == "https"
    make = HTTPSConnection if secure else HTTPConnection
    if proxy := proxy_of(parts.geturl()):
        return _by_proxy(urlsplit(proxy), parts)
    connection = make(host, parts.port, timeout=TIMEOUT_S)
    connection.connect()
    if connection.sock and keeps_credentials(connection.sock.getpeername()[0]):
        connection.close()
        raise _LinkLocal
    return connection


def keeps_credentials(text: str) -> bool:
    """Returns true if an address, or one that is embedded in it, is one at which clouds keep
    credentials: a link-local one, or one of CREDENTIALS_AT.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    return any(
        it.is_link_local or it in CREDENTIALS_AT for it in (address, *_embedded_addresses(address))
    )


def _embedded_addresses(address: IPAddress) -> Iterator[IPAddress]:
    """Yields the IPv4 addresses that a gateway, or this machine, may use instead of an IPv6 one."""
    if not isinstance(address, ipaddress.IPv6Address):
        return
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in it for it in _LAST_32_BITS):
        yield last
    for other in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())):
        if other is not None:
            yield other


def _by_proxy(proxy: SplitResult, parts: SplitResult) -> HTTPConnection:
    if parts.scheme != "https":
        raise ValueError("a sink behind a proxy needs https")
    if any(map(keeps_credentials, _as_numbers(parts.hostname or ""))):
        raise _LinkLocal  # names are resolved by the proxy
    connection = HTTPSConnection(
        proxy.hostname or "",
        proxy.port or 3128,
        timeout=TIMEOUT_S,
        context=ssl.create_default_context(),
    )
    connection.set_tunnel(parts.hostname or "", parts.port or 443)
    connection.connect()
    return connection


def _as_numbers(host: str) -> list[str]:
    """Returns the addresses that a host denotes without a lookup, such as `2852039166`."""
    try:
        return [socket.inet_ntoa(socket.inet_aton(host))]
    except (OSError, UnicodeError):
        return [host] if ":" in host else []


def _read_outcome(answer: HTTPResponse) -> SinkOutcome:
    status = answer.status
    if 200 <= status < 300:
        return TAKEN
    asked_s = _retry_after_s(answer.headers.get("Retry-After", ""))
    if 300 <= status < 400:
        return SinkOutcome(f"it answers {status}, a redirect, which is not followed", asked_s)
    return SinkOutcome(f"it answers {status}", asked_s, gone=status == 410)


def _retry_after_s(text: str) -> float:
    try:
        return min(max(float(text or 0.0), 0.0), RETRY_AFTER_S_MAX)
    except ValueError:
        return 0.0  # a date: the wait between two tries serves


def describe_error(error: Exception) -> str:
    """Returns the text of a system's or library's error that contains no URL."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return f"nothing within {TIMEOUT_S:g} s"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return type(error).__name__


@dataclass(frozen=True, slots=True)
class SinkOutcome:
    """problem: for users, so it never holds a secret address; empty = the sink took the notice.
    remark: a defect of an accepted one. gone: the sink will never accept another.
    """

    problem: str = ""
    retry_after_s: float = 0.0
    gone: bool = False
    remark: str = ""


TAKEN = SinkOutcome()

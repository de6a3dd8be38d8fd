"""A notice as a request of HTTP: webhooks and Slack.

Blocking; send.py gives it a thread. No redirect is followed: a signature, and an address that is
a secret, go where a person sent them and nowhere else. What the sink answers is not read beyond its
status, so that nothing of it comes to a screen.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import SplitResult, urlsplit

from fleetctl.common.proxies import proxy_of
from fleetctl.common.version import VERSION
from fleetctl.notices.outcome import TAKEN, Outcome

TIMEOUT_S = 10.0  # of each step; send.py bounds the whole
RETRY_AFTER_S_MAX = 24 * 3600.0
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class Post:
    """One request, which another thread may cut off."""

    def __init__(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        self._url, self._body = url, body
        self._headers = {
            "Content-Type": "application/json",
            "User-Agent": f"fleetctl/{VERSION}",
            **headers,
        }
        self._connection: HTTPConnection | None = None

    def __call__(self) -> Outcome:
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return Outcome("its URL must begin with https:// or http://, and a host")
        try:
            self._connection = _connect(parts)
            query = f"?{parts.query}" if parts.query else ""
            path = f"{parts.path or '/'}{query}"
            self._connection.request("POST", path, self._body, self._headers)
            with self._connection.getresponse() as answer:
                return _outcome(answer)
        except _LinkLocal:
            return Outcome("its host is a link-local address, where clouds keep credentials")
        except (OSError, HTTPException, ValueError) as error:
            return Outcome(f"no answer: {why(error)}")
        finally:
            if self._connection is not None:
                self._connection.close()

    def cut(self) -> None:
        """End it, wherever it hangs."""
        held = getattr(self._connection, "sock", None)
        if held is not None:
            try:
                held.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has ended by itself


class _LinkLocal(Exception):
    """The address after all names were resolved."""


def _connect(parts: SplitResult) -> HTTPConnection:
    """To the sink, by the proxy that the environment names, if any."""
    assert parts.hostname is not None
    host, secure = parts.hostname, parts.scheme == "https"
    make = HTTPSConnection if secure else HTTPConnection
    if proxy := proxy_of(parts.geturl()):
        return _by_proxy(urlsplit(proxy), parts)
    connection = make(host, parts.port, timeout=TIMEOUT_S)
    connection.connect()
    if connection.sock and ipaddress.ip_address(connection.sock.getpeername()[0]).is_link_local:
        connection.close()
        raise _LinkLocal
    return connection


def _by_proxy(proxy: SplitResult, parts: SplitResult) -> HTTPConnection:
    if parts.scheme != "https":
        raise ValueError("a sink behind a proxy needs https")
    connection = HTTPSConnection(
        proxy.hostname or "",
        proxy.port or 3128,
        timeout=TIMEOUT_S,
        context=ssl.create_default_context(),
    )
    connection.set_tunnel(parts.hostname or "", parts.port or 443)
    connection.connect()
    return connection


def _outcome(answer: HTTPResponse) -> Outcome:
    status = answer.status
    if 200 <= status < 300:
        return TAKEN
    asked_s = _retry_after_s(answer.headers.get("Retry-After", ""))
    if 300 <= status < 400:
        return Outcome(f"it answers {status}, a redirect, which is not followed", asked_s)
    return Outcome(f"it answers {status}", asked_s, gone=status == 410)


def _retry_after_s(text: str) -> float:
    try:
        return min(max(float(text or 0.0), 0.0), RETRY_AFTER_S_MAX)
    except ValueError:
        return 0.0  # a date: the wait between two tries serves


def why(error: Exception) -> str:
    """Of the system or a library, in which no URL stands."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return f"nothing within {TIMEOUT_S:g} s"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return type(error).__name__

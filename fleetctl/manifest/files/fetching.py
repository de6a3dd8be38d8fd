"""A manifest behind an address: `-f https://...`. Called by documents.py, loaded only then.

Only https, and http to this machine: what is applied runs with this account's money, so nobody on
the way may change it. Bounded in size and time; asks for no credentials and sends none.
"""

from __future__ import annotations

import ipaddress
import time
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPMessage
from typing import IO
from urllib.parse import urlsplit

TIMEOUT_S = 10.0  # of one silence
TOTAL_S = 60.0
PIECE_BYTES = 64 * 1024
RAW = {"github.com": "raw.githubusercontent.com", "gitlab.com": "its `Open raw` button"}


class Unfetched(Exception):
    """Why there is no text behind the address, and what would help."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint


def fetch(address: str, *, bytes_max: int) -> bytes:
    """The body, one byte longer than `bytes_max` where there is more. Raises Unfetched."""
    _check(address)
    opener = urllib.request.build_opener(_Redirects)
    headers = {"User-Agent": "fleetctl", "Accept": "application/yaml, text/plain, */*;q=0.1"}
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 - checked above
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            if "html" in answer.headers.get_content_type():
                raise Unfetched("it is a web page, not a manifest", _raw(address))
            return _body(answer, bytes_max)
    except urllib.error.HTTPError as error:
        raise Unfetched(f"the server answered {error.code} {error.reason}".rstrip()) from None
    except urllib.error.URLError as error:
        raise Unfetched(f"the server cannot be reached: {error.reason}") from None
    except TimeoutError:
        raise Unfetched(f"the server said nothing for {TIMEOUT_S:g} s") from None
    except (OSError, HTTPException, ValueError) as error:
        raise Unfetched(f"the answer broke off: {error}") from None


def _body(answer: IO[bytes], bytes_max: int) -> bytes:
    until_s, pieces, size = time.monotonic() + TOTAL_S, [], 0
    while size <= bytes_max and (piece := answer.read(PIECE_BYTES)):
        pieces.append(piece)
        size += len(piece)
        if time.monotonic() > until_s:
            raise Unfetched(f"it was not read within {TOTAL_S:g} s")
    return b"".join(pieces)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Followed to addresses that could have been named as well."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        _check(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check(address: str) -> None:
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise Unfetched(f"the address cannot be read: {error}") from None
    if parts.username or parts.password:
        raise Unfetched("an address with a password in it would be shown and kept", "leave it out")
    if not host:
        raise Unfetched("the address names no host")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_here(host)):
        raise Unfetched(
            f"`{parts.scheme}` is not safe against changes on the way",
            "write https://, or download the file, look at it and apply that",
        )


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _raw(address: str) -> str:
    raw = RAW.get(urlsplit(address).hostname or "", "")
    return f"name the file itself: {raw}" if raw else "name the address of the file itself"

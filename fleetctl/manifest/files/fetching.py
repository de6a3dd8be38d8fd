"""Fetches a manifest behind an address: `-f https://...`. Called by documents.py, loaded only then.

Only https, and http to this machine: an applied manifest runs with this account's money, so no
server on the way may change it. Bounded in size and time; asks for no credentials and sends none.
"""

from __future__ import annotations

import ipaddress
import time
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPMessage
from typing import IO
from urllib.parse import urlsplit

TIMEOUT_S = 10.0  # longest silence of the server
TOTAL_S = 60.0
PIECE_BYTES = 64 * 1024
RAW = {"github.com": "raw.githubusercontent.com", "gitlab.com": "its `Open raw` button"}


class FetchError(Exception):
    """The reason why the address gives no text, and a hint."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint


def fetch_manifest(address: str, *, bytes_max: int) -> bytes:
    """Returns the body, one byte longer than `bytes_max` where there is more. Raises FetchError."""
    _check_address(address)
    opener = urllib.request.build_opener(_SafeRedirects)
    headers = {"User-Agent": "fleetctl", "Accept": "application/yaml, text/plain, */*;q=0.1"}
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 - checked above
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            if "html" in answer.headers.get_content_type():
                raise FetchError("it is a web page, not a manifest", _suggest_raw_address(address))
            return _read_body(answer, bytes_max)
    except urllib.error.HTTPError as error:
        raise FetchError(f"the server answered {error.code} {error.reason}".rstrip()) from None
    except urllib.error.URLError as error:
        raise FetchError(f"the server cannot be reached: {error.reason}") from None
    except TimeoutError:
        raise FetchError(f"the server sent nothing for {TIMEOUT_S:g} s") from None
    except (OSError, HTTPException, ValueError) as error:
        raise FetchError(f"the answer broke off: {error}") from None


def _read_body(answer: IO[bytes], bytes_max: int) -> bytes:
    until_s = time.monotonic() + TOTAL_S
    pieces = []
    size = 0
    while size <= bytes_max and (piece := answer.read(PIECE_BYTES)):
        pieces.append(piece)
        size += len(piece)
        if time.monotonic() > until_s:
            raise FetchError(f"it was not read within {TOTAL_S:g} s")
    return b"".join(pieces)


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to addresses that could have been named as well."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        _check_address(newurl)
        return super().redirect_request(
            req,
            fp,
            code,
            msg,
            headers,
            newurl,
        )


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError as error:
        raise FetchError(f"the address cannot be read: {error}") from None
    if parts.username or parts.password:
        raise FetchError("an address with a password in it would be shown and kept", "leave it out")
    if not host:
        raise FetchError("the address names no host")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_here(host)):
        raise FetchError(
            f"`{parts.scheme}` is not safe against changes on the way",
            "write https://, or download the file, look at it and apply that",
        )


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _suggest_raw_address(address: str) -> str:
    raw = RAW.get(urlsplit(address).hostname or "", "")
    if raw:
        return f"name the file itself: {raw}"
    return "name the address of the file itself"

"""Serves the probes' port: `/healthz` whether the loop turns, `/readyz` whether this replica does
its part and its problems, `/metrics` in the text form of Prometheus. Called by operator_process.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

ASK_S = 5.0
HEAD_BYTES_MAX = 8192
_OF_PAGES = (b"origin:", b"sec-fetch-")  # headers that browsers send, and no kubelet
TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
_WORDS = {200: "OK", 403: "Forbidden", 404: "Not Found", 503: "Service Unavailable"}


class ProbePage(NamedTuple):
    code: int
    text: str
    sort: str = TEXT


ProbePages = Mapping[str, Callable[[], ProbePage]]


def ready_page(problems: Mapping[str, str]) -> ProbePage:
    """Returns the page of /readyz. problems: by plural, why a kind is not looked at."""
    if not problems:
        return ProbePage(200, "ok")
    lines = [f"{plural}: {why}\n" for plural, why in sorted(problems.items())]
    return ProbePage(503, f"not ready: {len(lines)} of the kinds\n{''.join(lines)}")


async def answer_probes(port: int, pages: ProbePages) -> asyncio.Server:
    """Serves probes on all addresses, as the kubelet connects from outside the pod. pages: by path,
    each made for its request.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                head = await reader.readuntil(b"\r\n")
                by_page = False
                while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
                    by_page = by_page or line.lower().startswith(_OF_PAGES)
            path = head.split(b" ")[1].partition(b"?")[0] if head.count(b" ") == 2 else b""
            make = pages.get(path.decode("ascii", "replace"))
            page = make() if make is not None else ProbePage(404, "not found")
            page = ProbePage(403, "not for pages") if by_page else page
            body = page.text.encode()
            lines = (
                f"HTTP/1.1 {page.code} {_WORDS[page.code]}",
                f"Content-Type: {page.sort}",
                f"Content-Length: {len(body)}",
                "Connection: close",
            )
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            await writer.drain()
        except (
            TimeoutError,
            ConnectionError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            pass  # the client is gone, or sent no request
        finally:
            writer.close()

    return await asyncio.start_server(answer, port=port, limit=HEAD_BYTES_MAX)

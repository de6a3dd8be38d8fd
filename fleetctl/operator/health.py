"""What the kubelet asks: `/healthz` whether the loop turns, `/readyz` whether this replica does its
part. Knows nothing else of HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

ASK_S = 5.0
HEAD_BYTES_MAX = 8192


async def answer_probes(port: int, ready: Callable[[], bool]) -> asyncio.Server:
    """On all addresses, as the kubelet asks from outside the pod. ready: of this moment."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                head = await reader.readuntil(b"\r\n")
                while await reader.readuntil(b"\r\n") != b"\r\n":
                    pass
            path = head.split(b" ")[1] if head.count(b" ") == 2 else b""
            code = {b"/healthz": 200, b"/readyz": 200 if ready() else 503}.get(path, 404)
            text = {200: "ok", 503: "not yet", 404: "not found"}[code]
            lines = f"HTTP/1.1 {code} {text}\r\nContent-Length: {len(text)}\r\nConnection: close"
            writer.write(f"{lines}\r\n\r\n{text}".encode())
            await writer.drain()
        except (
            TimeoutError,
            ConnectionError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            pass  # whoever asked is gone, or did not ask
        finally:
            writer.close()

    return await asyncio.start_server(answer, port=port, limit=HEAD_BYTES_MAX)

"""Checks once whether a service is ready. Runs in a process of its own, whose exit code is the
result: the supervisor of services never waits for it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Mapping, Optional

READY, SILENT, REFUSED = 0, 1, 2  # 1: no program listens there; 2: one does, with another reply
ASK_S = 10.0  # for one reply
HEAD_BYTES_MAX = 256  # of a reply; its status is in the first line
ADDRESSES = ("127.0.0.1", "::1")  # of this sandbox alone


def asked(ready: Mapping[str, Any], port: int) -> int:
    """Returns the exit code. ready: with `path` of an HTTP request, or without for a connection."""
    path = ready.get("path")
    for address in ADDRESSES:
        line = connected(address, port)
        if line is None:
            continue
        try:
            return READY if path is None or _answers_well(line, path, port) else REFUSED
        except OSError:
            return REFUSED
        finally:
            line.close()
    return SILENT


def is_taken(port: int) -> bool:
    """Returns whether a program listens there."""
    for address in ADDRESSES:
        line = connected(address, port)
        if line is not None:
            line.close()
            return True
    return False


def free_port() -> int:
    """Returns a port at which no program listens now."""
    import socket

    with socket.socket() as line:
        line.bind((ADDRESSES[0], 0))
        return int(line.getsockname()[1])


def why(
    code: Optional[int],
    ready: Mapping[str, Any],
    port: int,
) -> str:
    """Explains the last result in a message. code: None before the first."""
    if ready.get("argv"):
        how = "did not end in time" if code in (None, 137) else f"exited with code {code}"
        return f"`{' '.join(ready['argv'])}` {how}"
    if code == SILENT:
        return f"nothing listens at port {port}"
    path = ready.get("path")
    what = f"`http://localhost:{port}{path}`" if path is not None else f"port {port}"
    if code is None:
        return f"{what} does not answer"
    return f"{what} does not answer with 200 to 399"


def connected(address: str, port: int) -> Optional[socket.socket]:
    """Connects; None where no program accepts."""
    import socket  # few runs need it, and every supervisor loads this file

    try:
        return socket.create_connection((address, port), ASK_S)
    except OSError:
        return None


def _answers_well(
    line: socket.socket,
    path: str,
    port: int,
) -> bool:
    """Returns whether the status is a success or a redirect, as in Kubernetes. Raises OSError."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nUser-Agent: fleetctl\r\n"
    line.sendall(f"{request}Accept: */*\r\nConnection: close\r\n\r\n".encode())
    head = b""
    while b"\r\n" not in head and len(head) < HEAD_BYTES_MAX:
        data = line.recv(HEAD_BYTES_MAX)
        if not data:
            break
        head += data
    words = head.split(b" ", 2)
    status = words[1][:3] if len(words) > 1 and words[0].startswith(b"HTTP/") else b""
    return status.isdigit() and 200 <= int(status) < 400

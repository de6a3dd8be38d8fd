"""Asks once whether a service is ready. Runs in a process of its own, which is its exit code: who
looks after services never waits for an answer.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any, Mapping, Optional

READY, SILENT, REFUSED = 0, 1, 2  # nobody listens there; something does, and says another thing
ASK_S = 10.0  # for one answer
HEAD_BYTES_MAX = 256  # of an answer; its status is in the first line
ADDRESSES = ("127.0.0.1", "::1")  # of this sandbox alone


def asked(ready: Mapping[str, Any], port: int) -> int:
    """The exit code. ready: with `path` of an HTTP request, or none for a connection alone."""
    path = ready.get("path")
    for address in ADDRESSES:
        line = connected(address, port)
        if line is None:
            continue
        try:
            return READY if path is None or _answers(line, path, port) else REFUSED
        except OSError:
            return REFUSED
        finally:
            line.close()
    return SILENT


def is_taken(port: int) -> bool:
    """Whether a program listens there."""
    for address in ADDRESSES:
        line = connected(address, port)
        if line is not None:
            line.close()
            return True
    return False


def free_port() -> int:
    """One that nobody listens at now."""
    import socket

    with socket.socket() as line:
        line.bind((ADDRESSES[0], 0))
        return int(line.getsockname()[1])


def why(code: Optional[int], ready: Mapping[str, Any], port: int) -> str:
    """What the last answer says, for people. code: None where none has come."""
    if ready.get("argv"):
        how = "did not end in time" if code in (None, 137) else f"ended with exit code {code}"
        return f"`{' '.join(ready['argv'])}` {how}"
    if code == SILENT:
        return f"nothing listens at port {port}"
    path = ready.get("path")
    what = f"`http://localhost:{port}{path}`" if path is not None else f"port {port}"
    return f"{what} does not answer" if code is None else f"{what} does not answer with 200 to 399"


def connected(address: str, port: int) -> Optional[socket.socket]:
    """None where nobody takes the call."""
    import socket  # few runs need it, and every supervisor loads this file

    try:
        return socket.create_connection((address, port), ASK_S)
    except OSError:
        return None


def _answers(line: socket.socket, path: str, port: int) -> bool:
    """Whether the status is of success or leads on, as in Kubernetes. Raises OSError."""
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

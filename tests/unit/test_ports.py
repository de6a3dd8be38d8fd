"""No page of another site drives a port of ours: each listening port is found in the sources, and
refuses what such a page makes a browser send.
"""

from __future__ import annotations

import ast
import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import fleetctl
from fleetctl.common.program import tree_of
from fleetctl.guest.supervision import fleetctl_server
from fleetctl.operator.metrics import answer_probes, ready_page
from tests.emulators.llm.server import Model
from tests.unit.gateway.hosted import hosting

LISTENING = {"start_server", "create_server", "TCPSite", "SockSite", "HTTPServer", "listen"}
# Where something listens, and how it is held to this.
PORTS = {
    "gateway/serving.py": "here",
    "guest/supervision/fleetctl_server.py": "here",
    "operator/metrics.py": "here",
    "server/api_server.py": "tests/api/test_api_guard.py",
    "guest/remote/relay/keeper.py": "tests/unit/guest/test_relay_listener.py",
}
# Unix sockets, which no browser reaches; and a port that a person opens to a program of a task.
NONE_OF_OURS = {
    *(
        "daemon/serve.py",
        "daemon/api.py",
        "guest/remote/visitors.py",
        "guest/driver/main.py",
        "guest/remote/relay/process.py",
    ),
    *("providers/local/supervisor/starting.py", "cli/access/port_forward.py"),
}
PAGES = [
    {"Host": "evil.example"},
    {"Host": "127.0.0.1", "Origin": "http://evil.example"},
    {"Host": "127.0.0.1", "Origin": "null", "Sec-Fetch-Site": "cross-site"},
]


def test_each_place_that_listens_is_known() -> None:
    top, found = Path(fleetctl.__file__).parent, set()
    for file in top.rglob("*.py"):
        if file.is_relative_to(top / "specs") or file.is_relative_to(top / "controllers"):
            continue
        text = file.read_text(encoding="utf-8")
        if not any(f".{name}(" in text for name in LISTENING):
            continue  # to parse all files takes seconds
        for node in ast.walk(tree_of(text)):
            name = (
                node.func.attr
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                else ""
            )
            if name in LISTENING:
                found.add(file.relative_to(top).as_posix())
    assert found - PORTS.keys() - NONE_OF_OURS == set()
    assert PORTS.keys() <= found


@asynccontextmanager
async def _listening(place: str, home: Path) -> AsyncIterator[int]:
    if place == "gateway/serving.py":
        async with hosting(home, Model()) as gateway:
            yield int(gateway.url.rpartition(":")[2])
    elif place == "operator/metrics.py":
        async with await answer_probes(0, {"/healthz": lambda: ready_page({})}) as server:
            own = next(it for it in server.sockets if it.family is socket.AF_INET)
            yield own.getsockname()[1]
    else:
        order = {
            "key": "secret",
            "port": 1,
            "host": "127.0.0.1",
            "listen": 0,
            "argv": [],
            "startup_s": 1.0,
            "idle_s": 60.0,
        }
        guard = fleetctl_server.Guard(json.loads(json.dumps(order)), {})
        handler = guard._handle
        async with await asyncio.start_server(handler, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("headers", PAGES, ids=["name", "origin", "opaque"])
@pytest.mark.parametrize("place", [it for it, held in PORTS.items() if held == "here"])
def test_no_port_answers_a_page_of_a_browser(
    tmp_path: Path, place: str, headers: dict[str, str]
) -> None:
    if place == "operator/metrics.py":  # the kubelet asks by any name: what a page sends too tells
        headers = {"Sec-Fetch-Site": "cross-site", **headers}

    async def ask() -> bytes:
        async with _listening(place, tmp_path) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            lines = [f"{name}: {value}" for name, value in headers.items()]
            writer.write("\r\n".join(["GET /healthz HTTP/1.1", *lines, "", ""]).encode())
            answer = await reader.read(4096)
            writer.close()
            return answer

    status = asyncio.run(ask()).split(b" ")[1]
    assert status in (b"401", b"403")

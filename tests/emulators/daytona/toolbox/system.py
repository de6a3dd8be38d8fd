"""The calls about the sandbox as a whole: its directories, environment, ports and load."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from aiohttp import web

from .calls import Call, Route
from .errors import bad_request, reply, timestamp

VERSION = "v0.226.1-emulated"
GIB = 1024**3
PORTS = range(3000, 10000)  # those that the daemon looks at when it lists them
_LISTENING = "0A"  # in /proc/net/tcp


async def home(call: Call) -> web.Response:
    return reply({"dir": call.toolbox.home})


async def work(call: Call) -> web.Response:
    return reply({"dir": call.toolbox.cwd})


async def version(_call: Call) -> web.Response:
    return reply({"version": VERSION})


async def initialize(call: Call) -> web.Response:
    await call.body()
    return reply({"message": "Auth token set and telemetry initialized successfully"})


async def update_env(call: Call) -> web.Response:
    """Of processes that start from now on; what is unset goes first."""
    body, env = await call.body(), call.toolbox.box.env
    wanted = body.mapping("set")
    for name in body.texts("unset"):
        env.pop(name, None)
    if prefix := body.text("unsetValuePrefix"):
        for name in [one for one, value in env.items() if value.startswith(prefix)]:
            if name not in wanted:
                del env[name]
    env.update(wanted)
    return reply({"message": "Environment updated"})


async def metrics(call: Call) -> web.Response:
    resources, host = call.sandbox.resources, call.toolbox.box.root
    disk = resources.disk * GIB
    whole = shutil.disk_usage(host)
    used = disk * whole.used // whole.total  # as full as the disk that it really has
    return reply(
        {
            "cpuCount": resources.cpu,
            "cpuUsedPct": round(min(100.0, os.getloadavg()[0] * 100 / (os.cpu_count() or 1)), 2),
            "memTotal": resources.memory * GIB,
            "memUsed": _resident_bytes(call),
            "memCache": 0,
            "diskTotal": disk,
            "diskUsed": used,
            "diskFree": disk - used,
            "timestamp": timestamp(),
            "timestampUnix": int(time.time()),
        }
    )


async def ports(_call: Call) -> web.Response:
    return reply({"ports": sorted(port for port in _listening() if port in PORTS)})


async def port_in_use(call: Call) -> web.Response:
    text = call.variable("port")
    if not text.isdigit() or int(text) not in PORTS:
        raise bad_request(f"port must be between {PORTS.start} and {PORTS.stop - 1}")
    return reply({"isInUse": int(text) in _listening()})


async def no_language_server(_call: Call) -> web.Response:
    raise bad_request("there are no language servers here")


def _listening() -> set[int]:
    """Boxes share the host's network, so these are the host's."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _number, local, _remote, state, *_ = line.split()
            if state == _LISTENING:
                found.add(int(local.rpartition(":")[2], 16))
    return found


def _resident_bytes(call: Call) -> int:
    pages = 0
    for process in call.toolbox.box.processes.values():
        try:
            pages += int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        except FileNotFoundError:
            continue  # it ended meanwhile
    return pages * os.sysconf("SC_PAGE_SIZE")


_LSP = ("completions", "did-close", "did-open", "start", "stop")
ROUTES: list[Route] = [
    ("GET", "/user-home-dir", home),
    ("GET", "/work-dir", work),
    ("GET", "/version", version),
    ("POST", "/init", initialize),
    ("POST", "/env", update_env),
    ("GET", "/system/metrics", metrics),
    ("GET", "/port", ports),
    ("GET", "/port/{port}/in-use", port_in_use),
    *(("POST", f"/lsp/{verb}", no_language_server) for verb in _LSP),
    ("GET", "/lsp/document-symbols", no_language_server),
    ("GET", "/lsp/workspacesymbols", no_language_server),
]

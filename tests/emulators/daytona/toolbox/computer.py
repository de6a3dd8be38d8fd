"""Computer use, as far as it can be had without a display: what a client can ask is answered from a
made-up desktop that remembers the pointer; pictures are one colour, recordings are small files."""

from __future__ import annotations

import base64
import functools
import struct
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from ..state import new_id
from .calls import Call, Route
from .errors import ToolboxError, bad_request, reply, timestamp

WIDTH, HEIGHT = 1024, 768
PROGRAMS = ("xvfb", "xfce4", "x11vnc", "novnc")  # by the order in which they start
COLOUR = bytes((0x2B, 0x2B, 0x2B))


@dataclass(slots=True)
class Recording:
    id: str
    host: Path
    path: str
    label: str
    started_at_s: float
    start_time: str
    end_time: str = ""
    duration_s: float = 0.0

    def body(self) -> dict[str, object]:
        running = {"status": "recording"}
        ended = {
            "status": "completed",
            "endTime": self.end_time,
            "durationSeconds": self.duration_s,
            "sizeBytes": self.host.stat().st_size if self.end_time else 0,
        }
        return {
            "id": self.id,
            "fileName": self.host.name,
            "filePath": self.path,
            "startTime": self.start_time,
            **(ended if self.end_time else running),
        }


@dataclass(slots=True)
class Desktop:
    running: bool = False
    x: int = 0
    y: int = 0
    recordings: dict[str, Recording] = field(default_factory=dict)


async def start(call: Call) -> web.Response:
    _desktop(call).running = True
    return reply({"message": "Computer use processes started", "status": _programs(call)})


async def stop(call: Call) -> web.Response:
    _desktop(call).running = False
    return reply({"message": "Computer use processes stopped", "status": _programs(call)})


async def status(call: Call) -> web.Response:
    return reply({"status": "active" if _desktop(call).running else "inactive"})


async def program(call: Call) -> web.Response:
    """Of one program: its status, a restart, or its texts, by the last word of the path."""
    name, verb = call.variable("name"), call.request.path.rpartition("/")[2]
    if name not in PROGRAMS:
        raise ToolboxError(404, f"process {name} not found", code="PROCESS_NOT_FOUND")
    fields: dict[str, dict[str, object]] = {
        "status": {"running": _desktop(call).running},
        "restart": {"message": f"Process {name} restarted"},
        "logs": {"logs": ""},
        "errors": {"errors": ""},
    }
    return reply({"processName": name, **fields[verb]})


async def pointer(call: Call) -> web.Response:
    desktop = _running(call)
    if call.request.method == "POST":
        body = await call.body()
        desktop.x = body.number("endX", body.number("x", desktop.x))
        desktop.y = body.number("endY", body.number("y", desktop.y))
        if call.request.path.endswith("/scroll"):
            return reply({"success": True})
    return reply({"x": desktop.x, "y": desktop.y})


async def keyboard(call: Call) -> web.Response:
    _running(call)
    await call.body()
    return reply({})


async def screenshot(call: Call) -> web.Response:
    desktop, query = _running(call), call.request.query
    try:
        scale = min(1.0, max(0.01, float(query.get("scale", 1.0))))
        width, height = (
            max(1, min(most, int(query.get(side, most))))
            for side, most in (("width", WIDTH), ("height", HEIGHT))
        )
    except ValueError as error:
        raise bad_request(f"not a number: {error}") from error
    picture = png(max(1, int(width * scale)), max(1, int(height * scale)))
    body: dict[str, object] = {
        "screenshot": base64.b64encode(picture).decode(),
        "sizeBytes": len(picture),
    }
    if query.get("showCursor") == "true":
        body["cursorPosition"] = {"x": desktop.x, "y": desktop.y}
    return reply(body)


async def displays(call: Call) -> web.Response:
    _running(call)
    place = {"id": 0, "x": 0, "y": 0, "width": WIDTH, "height": HEIGHT}
    return reply({"displays": [{**place, "isActive": True}]})


async def windows(call: Call) -> web.Response:
    _running(call)
    return reply({"windows": []})


async def accessibility_tree(_call: Call) -> web.Response:
    """Of a desktop without a window."""
    root = {"id": "root", "role": "desktop frame", "name": "main", "children": []}
    return reply({"root": root, "truncated": False})


async def find_nodes(call: Call) -> web.Response:
    await call.body()
    return reply({"matches": [], "truncated": False})


async def no_node(call: Call) -> web.Response:
    await call.body()
    raise ToolboxError(404, "accessibility node not found")


async def start_recording(call: Call) -> web.Response:
    label = (await call.body()).text("label", "recording")
    recording_id = new_id()
    name = f"{label.replace('/', '_')}_{recording_id[:8]}.mp4"
    path = f"{call.toolbox.home}/.daytona/recordings/{name}"
    host = call.toolbox.host(path)
    host.parent.mkdir(parents=True, exist_ok=True)
    host.write_bytes(b"emulated recording\n")
    made = Recording(recording_id, host, path, label, time.monotonic(), timestamp())
    _desktop(call).recordings[recording_id] = made
    return reply(made.body(), status=201)


async def stop_recording(call: Call) -> web.Response:
    body = await call.body("StopRecordingRequest", "id")
    found = _recording(call, body.text("id"))
    if found.end_time:
        raise ToolboxError(400, "recording is not active")
    found.end_time = timestamp()
    found.duration_s = round(time.monotonic() - found.started_at_s, 3)
    return reply(found.body())


async def recordings(call: Call) -> web.Response:
    return reply({"recordings": [one.body() for one in _desktop(call).recordings.values()]})


async def recording(call: Call) -> web.StreamResponse:
    found = _recording(call, call.variable("id"))
    if call.request.path.endswith("/download"):
        return web.FileResponse(found.host, headers={"Content-Type": "application/octet-stream"})
    return reply(found.body())


async def delete_recording(call: Call) -> web.Response:
    found = _recording(call, call.variable("id"))
    if not found.end_time:
        text = "recording is still active"
        raise ToolboxError(409, text, code="RECORDING_STILL_ACTIVE")
    del _desktop(call).recordings[found.id]
    found.host.unlink(missing_ok=True)
    return web.Response(status=204)


@functools.lru_cache(maxsize=16)
def png(width: int, height: int) -> bytes:
    """A picture of one colour."""
    rows = (b"\0" + COLOUR * width) * height
    head = struct.pack("!IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    chunks = (
        struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _desktop(call: Call) -> Desktop:
    if call.toolbox.desktop is None:
        call.toolbox.desktop = Desktop()
    return call.toolbox.desktop


def _running(call: Call) -> Desktop:
    desktop = _desktop(call)
    if not desktop.running:
        raise bad_request("computer use is not running: start it first")
    return desktop


def _programs(call: Call) -> dict[str, object]:
    running = _desktop(call).running
    return {
        name: {"running": running, "autoRestart": True, "priority": 100 * number}
        for number, name in enumerate(PROGRAMS, start=1)
    }


def _recording(call: Call, recording_id: str) -> Recording:
    found = _desktop(call).recordings.get(recording_id)
    if found is None:
        raise ToolboxError(404, "recording not found")
    return found


_MOUSE = ("click", "down", "drag", "move", "scroll", "up")
_KEYS = ("down", "hotkey", "key", "type", "up")
_PICTURES = ("", "/compressed", "/region", "/region/compressed")
_ONE = "/computeruse/process/{name}"
ROUTES: list[Route] = [
    ("POST", "/computeruse/start", start),
    ("POST", "/computeruse/stop", stop),
    ("GET", "/computeruse/status", status),
    ("GET", "/computeruse/process-status", status),
    *(("GET", f"{_ONE}/{verb}", program) for verb in ("status", "logs", "errors")),
    ("POST", _ONE + "/restart", program),
    ("GET", "/computeruse/mouse/position", pointer),
    *(("POST", f"/computeruse/mouse/{verb}", pointer) for verb in _MOUSE),
    *(("POST", f"/computeruse/keyboard/{verb}", keyboard) for verb in _KEYS),
    *(("GET", f"/computeruse/screenshot{kind}", screenshot) for kind in _PICTURES),
    ("GET", "/computeruse/display/info", displays),
    ("GET", "/computeruse/display/windows", windows),
    ("GET", "/computeruse/a11y/tree", accessibility_tree),
    ("POST", "/computeruse/a11y/find", find_nodes),
    *(("POST", f"/computeruse/a11y/node/{verb}", no_node) for verb in ("focus", "invoke", "value")),
    ("POST", "/computeruse/recordings/start", start_recording),
    ("POST", "/computeruse/recordings/stop", stop_recording),
    ("GET", "/computeruse/recordings", recordings),
    ("GET", "/computeruse/recordings/{id}", recording),
    ("GET", "/computeruse/recordings/{id}/download", recording),
    ("DELETE", "/computeruse/recordings/{id}", delete_recording),
]

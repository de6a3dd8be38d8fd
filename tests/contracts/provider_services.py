"""The part of the provider suite about services beside the work."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from fleetctl.guest.supervision.services.names import service_name
from fleetctl.providers.rundir.run_log_reader import RunLogReader
from tests.contracts.provider_worlds import World, python, script, story

SERVES = """
import http.server, os
print("loading", flush=True)
port = int(os.environ["FLEETCTL_PORT_MODEL_SERVER"])
class Model(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{os.environ['GREETING']}, {os.environ['TASK_X']}".encode())
http.server.HTTPServer(("127.0.0.1", port), Model).serve_forever()
"""
ASKS = """
import os, urllib.request
port = os.environ["FLEETCTL_PORT_MODEL_SERVER"]
print("asking", flush=True)
SUBMIT(port=int(port), answer=urllib.request.urlopen(f"http://127.0.0.1:{port}/").read().decode())
"""
SERVER: dict[str, Any] = {
    "name": "model-server",
    "command": ["python3", "-c", SERVES],
    "env": {"GREETING": "hello"},
    "ready": {"http": "/api/tags", "port": "auto"},
}


class ProviderServices:
    """Mixed into ProviderSuite."""

    @story
    async def test_a_service_is_ready_before_the_work_and_gone_after_it(self, world: World) -> None:
        ref = await world.start(python(ASKS, services=[SERVER]), params={"x": "you"})
        seen = await world.ended(ref)
        assert seen.ok, seen
        result = json.loads(seen.result or "")
        assert result["answer"] == "hello, you"
        log = await world.log(ref)
        assert b"asking\n" in log
        assert b"loading" not in log
        (runs,) = (world.directory / "home").glob("*/jobs/uid-1/runs")
        assert _log(runs, ref.run).startswith("loading\n")
        assert '"GET / HTTP/1.1" 200' in _log(runs, ref.run)
        with socket.socket() as line:
            assert line.connect_ex(("127.0.0.1", result["port"])) != 0

    @story
    async def test_the_end_of_a_service_has_the_effect_that_is_given(self, world: World) -> None:
        ends = {"name": "ends", "script": "exit 3", "onExit": "Ignore"}
        work = script("sleep 600", services=[{**ends, "onExit": "Fail"}])
        failed = await world.run(work, run="fails")
        assert (failed.ok, "ends" in failed.message) == (False, True), failed
        ref = await world.start(
            script("sleep 1; echo over", services=[ends]), run="goes-on", template_hash="hash-2"
        )
        seen = await world.ended(ref)
        assert (seen.ok, b"over\n" in await world.log(ref)) == (True, True), seen


def _log(runs: Path, run: str) -> str:
    return RunLogReader(runs, service_name(run, "model-server")).read(0)[0].decode()

"""A stand-in for the job API of a Ray cluster: it carries jobs out as processes of this machine,
and keeps what was submitted and stopped. As Ray does, it refuses a name that it knows with 500.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CUT = "cut"  # in place of a status: half an answer, and the line is closed


@dataclass
class Job:
    process: subprocess.Popen[bytes]
    log: Path
    request: dict[str, Any]
    stopped: bool = False

    def details(self) -> dict[str, Any]:
        code = self.process.poll()
        status = "RUNNING"
        if code is not None:
            status = "STOPPED" if self.stopped else "FAILED" if code else "SUCCEEDED"
        return {
            "type": "SUBMISSION",
            "submission_id": self.request["submission_id"],
            "status": status,
            "entrypoint": self.request["entrypoint"],
            "metadata": self.request.get("metadata"),
            "message": f"Job is {status}",
            "driver_exit_code": None if self.stopped else code,
        }


@dataclass
class RayJobs:
    """jobs: by submission_id. submissions, stops: names, in order, also of those refused. odd: what
    the next requests are answered with once they are carried out. token: that all must bring, if
    any.
    """

    jobs: dict[str, Job] = field(default_factory=dict)
    submissions: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    odd: list[int | str] = field(default_factory=list)
    token: str = ""

    def __post_init__(self) -> None:
        world = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*(self._refusal() or world.get(self._path())))

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = json.loads(data) if data else None
                self._answer(*(self._refusal() or world.post(self._path(), body)))

            def _path(self) -> list[str]:
                return self.path.rstrip("/").split("/")[3:]  # behind /api/jobs

            def _refusal(self) -> tuple[int, Any] | None:
                if not world.token or self.headers["Authorization"] == f"Bearer {world.token}":
                    return None
                return 401, "Unauthorized: Missing authentication token"

            def _answer(self, status: int, reply: Any) -> None:
                asked = world.odd.pop(0) if world.odd else status
                data = json.dumps(reply).encode() if status == 200 else str(reply).encode()
                if asked == CUT:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(data) + 10))
                    self.end_headers()
                    self.wfile.write(data[: len(data) // 2])
                    return
                assert isinstance(asked, int)
                self.send_response(asked)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Nothing on the screen of the tests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self._logs = tempfile.TemporaryDirectory()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def get(self, path: list[str]) -> tuple[int, Any]:
        if not path:
            return 200, [job.details() for job in self.jobs.values()]
        job = self.jobs.get(path[0])
        if job is None:
            return 404, f"Job {path[0]} does not exist"
        if path[1:] == ["logs"]:
            return 200, {"logs": job.log.read_text("utf-8")}
        return 200, job.details()

    def post(self, path: list[str], body: Any) -> tuple[int, Any]:
        if path[1:] == ["stop"]:
            self.stops.append(path[0])
            job = self.jobs[path[0]]
            job.stopped = job.process.poll() is None
            os.killpg(job.process.pid, signal.SIGTERM)
            return 200, {"stopped": True}
        name = body["submission_id"]
        self.submissions.append(name)
        if name in self.jobs:
            return 500, f"Traceback ...\nValueError: Job with submission_id {name} already exists."
        log = Path(self._logs.name) / name
        with log.open("wb") as output:
            process = subprocess.Popen(
                body["entrypoint"],
                shell=True,  # as Ray does
                env={"PATH": os.environ["PATH"], **body["runtime_env"]["env_vars"]},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.jobs[name] = Job(process, log, body)
        return 200, {"job_id": name, "submission_id": name}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for job in self.jobs.values():
            if job.process.poll() is None:
                os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait()
        self._logs.cleanup()

"""A registry of images on loopback, as the OCI distribution protocol has it: one image to pull, one
that is missing, and one that is given to nobody without a login.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import subprocess
import tarfile
import threading
from pathlib import Path
from typing import Self

from tests.machines.container_images import podman_command

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class ImageRegistry:
    """configs_sent: how often the image's own configuration was fetched, once by each pull."""

    def __init__(self, directory: Path, image: str) -> None:
        directory.mkdir()
        archive = directory / "image.tar"
        words = ["save", "--quiet", "--format", "oci-archive", "--output", str(archive), image]
        subprocess.run([*podman_command(), *words], check=True, capture_output=True)
        with tarfile.open(archive) as file:
            file.extractall(directory / "oci", filter="data")
        index = json.loads((directory / "oci" / "index.json").read_text())
        self._files = directory / "oci" / "blobs" / "sha256"
        self._manifest = (
            self._files / index["manifests"][0]["digest"].partition(":")[2]
        ).read_bytes()
        self._config: str = json.loads(self._manifest)["config"]["digest"]
        self.configs_sent = 0
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry._answer(self)

            def do_HEAD(self) -> None:
                registry._answer(self)

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_port}"
        # A name of this registry alone: podman may have pulled one of another test before.
        self.image = f"{self.address}/made:1"
        self.config = directory / "registries.conf"
        self.config.write_text(f'[[registry]]\nlocation = "{self.address}"\ninsecure = true\n')

    def _answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        path = request.path
        if path.startswith("/v2/closed/"):
            _send(request, 401, _fault("UNAUTHORIZED", "authentication required"))
        elif path == "/v2/":
            _send(request, 200, b"{}")
        elif path == "/v2/made/manifests/1":
            _send(request, 200, self._manifest, MANIFEST)
        elif path.startswith("/v2/made/blobs/sha256:"):
            self.configs_sent += path.endswith(self._config)
            _send(request, 200, (self._files / path.rpartition(":")[2]).read_bytes())
        else:
            _send(request, 404, _fault("MANIFEST_UNKNOWN", "manifest unknown"))

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _fault(code: str, message: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


def _send(
    request: http.server.BaseHTTPRequestHandler,
    code: int,
    data: bytes,
    kind: str = "application/json",
) -> None:
    request.send_response(code)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(data)))
    digest = hashlib.sha256(data).hexdigest()
    request.send_header("Docker-Content-Digest", f"sha256:{digest}")
    request.end_headers()
    if request.command == "GET":
        request.wfile.write(data)

"""A stand-in for an inference server: answers each request with its rank in its group, and its
attempt.
"""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

group, rank = os.environ["FLEETCTL_GROUP"], os.environ["FLEETCTL_GROUP_RANK"]
attempt = os.environ["FLEETCTL_ATTEMPT"]


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{rank}/{attempt}".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Logs no request."""


server = ThreadingHTTPServer(
    (os.environ["FLEETCTL_GROUP_HOST"], int(os.environ["FLEETCTL_GROUP_PORT"])), Answer
)
with (Path(os.environ.get("FLEETCTL_VOLUME_SHARED", ".")) / "begun").open("a") as file:
    file.write(f"{group} {rank} {attempt}\n")
print(f"{group} {rank} listens as attempt {attempt}", flush=True)
server.serve_forever()

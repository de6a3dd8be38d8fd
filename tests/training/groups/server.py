"""A stand-in for an inference server: answers each request with its rank in its group."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

shared = Path("/shared") if Path("/shared").exists() else Path(os.environ["FLEETCTL_VOLUME_SHARED"])
group, rank = os.environ["FLEETCTL_GROUP"], os.environ["FLEETCTL_GROUP_RANK"]


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(rank.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Logs no request."""


server = ThreadingHTTPServer(
    (os.environ["FLEETCTL_GROUP_HOST"], int(os.environ["FLEETCTL_GROUP_PORT"])), Answer
)
with (shared / "begun").open("a") as file:
    file.write(f"{group} {rank} {os.environ['FLEETCTL_ATTEMPT']}\n")
print(f"{group} {rank} listens", flush=True)
server.serve_forever()

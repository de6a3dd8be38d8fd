"""Git's own server, `git http-backend`, over TLS on loopback, behind a password."""

from __future__ import annotations

import base64
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trustme


class GitServer:
    """asked: (user, password) of each request; ("", "") without."""

    def __init__(self, root: Path, token: str) -> None:
        self.root, self.token = root, token
        self.asked: list[tuple[str, str]] = []
        self.ca = root / "ca.pem"
        self.down = False
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.thread.join(10)


@contextmanager
def git_server(root: Path, token: str) -> Iterator[GitServer]:
    """root: a directory of bare repositories, which this serves and adds its certificate to."""
    server = GitServer(root, token)
    server.thread.start()
    try:
        yield server
    finally:
        server.close()


def _handler(server: GitServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            word, _, coded = self.headers.get("Authorization", "").partition(" ")
            plain = base64.b64decode(coded).decode() if word == "Basic" else ""
            user, _, password = plain.partition(":")
            server.asked.append((user, password))
            if server.down:
                self.send_error(503)
            elif password != server.token:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self._run()

        def _run(self) -> None:
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            environment = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(server.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CONFIG_GLOBAL": os.devnull,
                "REMOTE_USER": "t",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            done = subprocess.run(
                ["git", "http-backend"],
                input=body,
                env=environment,
                capture_output=True,
                check=True,
            )
            head, _, rest = done.stdout.partition(b"\r\n\r\n")
            lines = [line.split(": ", 1) for line in head.decode().split("\r\n") if line]
            status = next((it[1] for it in lines if it[0] == "Status"), "200 OK")
            self.send_response(int(status.split()[0]))
            for name, value in lines:
                if name not in ("Status", "Content-Length"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest)

    return Handler

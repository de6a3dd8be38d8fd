"""`-f https://...`: what is taken, what is refused, and how that is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fleetctl.manifest import ManifestErrors, load_manifests, read_documents
from fleetctl.manifest.files.documents import FILE_BYTES_MAX
from fleetctl.manifest.files.fetching import FetchError, fetch_manifest

VOLUME = b"apiVersion: fleetctl.dev/v1alpha1\nkind: Volume\nmetadata: {name: data}\n"


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        code, kind, body = {
            "/a.yaml": (200, "text/plain", VOLUME),
            "/page": (200, "text/html; charset=utf-8", b"<html>"),
            "/large": (200, "text/plain", b"#" * (FILE_BYTES_MAX + 10)),
            "/moved": (302, "text/plain", b""),
            "/astray": (302, "text/plain", b""),
        }.get(self.path, (404, "text/plain", b"no"))
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) + 5 * (self.path == "/short")))
        if code == 302:
            to = "/a.yaml" if self.path == "/moved" else "http://example.invalid/a.yaml"
            self.send_header("Location", to)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Tests are silent."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    served = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_address[1]}"
    served.shutdown()
    served.server_close()


def refused(address: str) -> str:
    with pytest.raises(ManifestErrors) as caught:
        load_manifests(read_documents([address]))
    (problem,) = caught.value.problems
    return str(problem)


@pytest.mark.parametrize("path", ["/a.yaml", "/moved"])
def test_a_manifest_behind_an_address_is_read(
    server: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (document,) = read_documents([server + path])
    assert document.text.encode() == VOLUME
    assert document.dir == str(tmp_path)  # paths in it begin where one stands
    assert [it.key for it in load_manifests([document])] == ["volume/data"]


def test_what_is_no_manifest_is_refused_with_the_reason(server: str) -> None:
    assert "the server answered 404" in refused(f"{server}/none.yaml")
    assert "it is a web page, not a manifest" in refused(f"{server}/page")
    assert "larger than 8 MiB" in refused(f"{server}/large")
    assert "`http` is not safe against changes on the way" in refused(f"{server}/astray")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://example.com/a.yaml", "is not safe against changes"),
        ("ftp://example.com/a.yaml", "`ftp` is not safe"),
        ("file:///etc/passwd", "names no host"),
        ("https://user:secret@example.com/a.yaml", "a password"),
        ("https:///a.yaml", "names no host"),
        ("https://example.com:port/a.yaml", "cannot be read"),
        ("http://127.0.0.1:9/a.yaml", "cannot be reached"),
    ],
)
def test_an_address_is_refused_before_anything_is_sent(address: str, why: str) -> None:
    with pytest.raises(FetchError, match=why) as caught:
        fetch_manifest(address, bytes_max=10)
    assert "secret" not in str(caught.value)

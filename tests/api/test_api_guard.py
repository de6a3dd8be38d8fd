"""P9: no web page drives the API, and no slow, large or idle client keeps the others out."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest

from fleetctl.server.callers import PeerUser
from tests.api.served import WAIT_S, ServedFleet, job, until

CANARY = "canary-7f3a91c0"
MARKUP = "<img src=x onerror=alert(1)>\x1b[31m=1+1"
HEADERS = (
    "content-security-policy",
    "x-content-type-options",
    "x-frame-options",
    "referrer-policy",
    "cross-origin-resource-policy",
)


def address(served: ServedFleet) -> tuple[str, int]:
    parts = urlsplit(served.url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def connect(served: ServedFleet) -> socket.socket:
    return socket.create_connection(address(served), timeout=WAIT_S)


def read_all(connection: socket.socket) -> bytes:
    """Returns all that comes until the other end closes, which it must do."""
    data = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:80"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": ""}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
        ({"x-forwarded-for": "1.2.3.4"}, 403),
        ({"forwarded": "for=1.2.3.4"}, 403),
        ({"host": "localhost"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_requests_of_other_sites_reach_no_handler(
    served: ServedFleet, headers: dict[str, str], status: int
) -> None:
    with served.client() as client:
        for path in ("/api/v1/batchjobs", "/metrics"):
            answer = client.get(path, headers=headers)
            assert answer.status_code == status, answer.text
            assert not [it for it in answer.headers if it.startswith("access-control-")]
            for name in HEADERS:
                assert answer.headers[name], name
            policy = answer.headers["content-security-policy"]
            assert "unsafe" not in policy
            assert "default-src 'none'" in policy


def test_no_form_and_no_preflight_of_a_page_changes_anything(served: ServedFleet) -> None:
    body = json.dumps({"manifest": job("forged")})
    with served.client() as client:
        for sort in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            answer = client.post(
                "/api/v1/apply", content=body, headers={"content-type": sort} if sort else {}
            )
            assert answer.status_code == 415, sort
        asked = {
            "origin": "http://evil.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type",
        }
        answer = client.options("/api/v1/apply", headers=asked)
        assert answer.status_code == 403
        assert not [it for it in answer.headers if it.startswith("access-control-")]
    assert served.run("get", "job/forged").code == 4


def test_another_user_of_the_machine_needs_a_token(
    served: ServedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:  # nobody else can be: the kernel's answer for one's own connection
        with connect(served) as connection:
            peer = PeerUser(connection.getpeername(), connection.getsockname())
            assert peer.is_us()
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
            assert not peer.is_us()
        return
    host, port = address(served)
    program = (
        "import encodings.idna, os, socket, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        f"c = socket.create_connection(({host!r}, {port}))\n"
        f"c.sendall(b'GET /api/v1/batchjobs HTTP/1.1\\r\\nHost: {host}\\r\\n"
        "Connection: close\\r\\n\\r\\n')\n"
        "data = b''\n"
        "while piece := c.recv(65536): data += piece\n"
        "sys.stdout.write(data.decode())"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("HTTP/1.1 401"), done.stdout + done.stderr
    assert "another user of this machine needs a token" in done.stdout


def test_a_body_of_10_gb_is_refused_by_its_announcement(served: ServedFleet) -> None:
    host, _ = address(served)
    with connect(served) as connection:
        connection.sendall(
            f"POST /api/v1/apply HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {10 * 1024**3}\r\n\r\n".encode()
        )
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 413"), answer
    assert b"larger than 16 MiB" in answer


def test_a_body_that_never_ends_is_cut_at_its_limit(served: ServedFleet) -> None:
    host, _ = address(served)
    sent = 0
    piece = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    with connect(served) as connection:
        connection.sendall(
            f"POST /api/v1/apply HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        try:
            while sent < 64:
                connection.sendall(piece)
                sent += 1
        except OSError:
            pass  # the server has closed, as it must
        assert sent < 64
    assert served.get("whoami")["user"]


def test_a_head_that_trickles_in_is_given_up(served: ServedFleet) -> None:
    began_s = time.monotonic()
    host, _ = address(served)
    with connect(served) as slow:
        slow.sendall(f"GET /api/v1/batchjobs HTTP/1.1\r\nHost: {host}\r\n".encode())
        for number in range(10_000):
            try:
                slow.sendall(f"X-{number}: a\r\n".encode())
            except OSError:
                break
            slow.settimeout(0.5)
            try:
                assert slow.recv(1) == b""
                break
            except TimeoutError:
                assert time.monotonic() < began_s + WAIT_S
            except ConnectionResetError:
                break
    assert served.get("whoami")["user"]


@contextmanager
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_thousands_of_idle_connections_keep_no_user_out(served: ServedFleet) -> None:
    with many_files(), ExitStack() as idle:
        for _ in range(4000):
            idle.enter_context(connect(served))
        for _ in range(5):
            assert served.get("whoami")["user"]
        with served.client() as client:
            assert client.get("/healthz").text == "ok\n"


def test_many_wrong_tokens_are_stopped_and_good_ones_of_elsewhere_are_not(
    served: ServedFleet,
) -> None:
    other = served.start("--behind-proxy")
    assert other.stdout is not None
    url = other.stdout.readline().decode().strip()
    token = served.token("late", "viewer", "-A")
    try:
        with served.client() as client:
            for number in range(60):
                headers = {
                    "authorization": f"Bearer flt_{number:08x}_a",
                    "x-forwarded-for": "9.9.9.9",
                }
                status = client.get(f"{url}/api/v1/whoami", headers=headers).status_code
                if status == 429:
                    break
                assert status == 401
            assert status == 429
            headers = {"authorization": f"Bearer {token}", "x-forwarded-for": "8.8.8.8"}
            assert client.get(f"{url}/api/v1/whoami", headers=headers).status_code == 200
    finally:
        other.terminate()
        other.wait(60)
        other.stdout.close()


def test_markup_is_data_and_secrets_are_in_no_answer(served: ServedFleet) -> None:
    secret = {"kind": "Secret", "metadata": {"name": "hidden"}, "spec": {"fromEnv": ["HIDDEN"]}}
    manifest = json.loads(job("odd", f"print({MARKUP!r})\nSUBMIT(text={MARKUP!r})"))
    manifest["spec"]["tasks"] = {"items": [{"a": MARKUP}]}
    manifest["metadata"]["annotations"] = {"note": MARKUP}
    manifest["spec"]["template"]["secrets"] = ["hidden"]
    texts = f"{json.dumps(secret)}\n---\n{json.dumps(manifest)}"
    answer = served.post("apply", {"manifest": texts, "env": {"HIDDEN": CANARY}})
    assert answer.status_code == 200, answer.text
    until(lambda: served.get("batchjobs", phase="Succeeded,Failed", filter="odd")["items"])
    one = served.get("batchjobs/odd")
    assert one["status"]["phase"] == "Succeeded"
    assert one["metadata"]["annotations"]["note"] == MARKUP
    assert served.get("batchjobs/odd/results")["items"][0]["result"] == {"text": MARKUP}
    assert MARKUP.encode() in log_of(served)
    paths = served.get("openapi.json")["paths"]
    with served.client() as client:
        for plural, name in (("batchjobs", "odd"), ("secrets", "hidden")):
            values = {"plural": plural, "name": name, "query": "resources"}
            values |= {"run": "x", "volume": "x"}
            for path in (it for it in paths if "get" in paths[it]):
                answer = client.get(path.format(**values), params={"specs": "true"})
                assert CANARY not in answer.text, path
                assert "html" not in answer.headers["content-type"], path
        for verb in ("apply", "plan"):
            body = {"manifest": texts, "env": {"HIDDEN": CANARY}}
            assert CANARY not in client.post(f"/api/v1/{verb}", json=body).text
    assert CANARY not in served.ok("audit", "-A", "-o", "json")
    assert CANARY not in served.server_log()


def log_of(served: ServedFleet) -> bytes:
    with served.client() as client:
        answer = client.get("/api/v1/batchjobs/odd/logs")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    return answer.content

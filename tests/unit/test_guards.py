"""The guards of all tests: each is tried by a test that does what it forbids, and takes no notice
when it fails, as code under test may not.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from pathlib import Path

import certifi

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    "a connection": "socket.create_connection(('192.0.2.1', 80), 1)",
    "a name": "socket.getaddrinfo('example.org', 80)",
    "a datagram": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))",
    "IPv6": "socket.socket(socket.AF_INET6).connect(('2001:db8::1', 80))",
    "a variable": "os.environ['NEW'] = 'x'",
    "a variable less": "del os.environ['PATH']",
    "a directory": "os.chdir('/')",
    "descriptors": "[os.dup(0) for _ in range(200)]",
}
ALLOWED = {
    "a service here": "socket.create_server(('127.0.0.1', 0)).getsockname()",
    "its name": "socket.getaddrinfo('localhost', 80)",
    "IPv6 here": "socket.getaddrinfo('::1', 80)",
    "a socket file": "socket.socket(socket.AF_UNIX).connect('/no/such/socket')",
    "a descriptor": "os.dup(0)",
    "the changes of a fixture": "monkeypatch.setenv('NEW', 'x'), monkeypatch.chdir('/')",
}
TEST = """
import contextlib, os, socket, sys
import pytest

@pytest.mark.parametrize("name", LINES)
def test_it(name, monkeypatch):
    assert "NEW" not in os.environ and "PATH" in os.environ
    assert os.getcwd() == HERE
    with contextlib.suppress(Exception):
        exec(LINES[name])

HERE = os.getcwd()
"""


def failed(directory: Path, lines: dict[str, str]) -> tuple[int, set[str]]:
    """How many of these tests failed under the conftest of all tests, and which."""
    conftest = ROOT / "tests" / "conftest.py"
    (directory / "conftest.py").write_text(conftest.read_text("utf-8"))
    (directory / "test_it.py").write_text(f"LINES = {lines!r}\n{TEST}")
    words = ["-qrE", "-p", "no:cacheprovider", f"--rootdir={directory}", str(directory)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True
    )
    parts = [line for line in done.stdout.splitlines() if line.startswith("ERROR ")]
    assert f"{len(lines)} passed" in done.stdout, done.stdout + done.stderr
    return len(parts), {line.partition("[")[2].partition("]")[0] for line in parts}


def test_what_no_test_may_do_fails_it_and_touches_no_other(tmp_path: Path) -> None:
    (tmp_path / "play").mkdir()
    assert failed(tmp_path / "play", ALLOWED | FORBIDDEN) == (len(FORBIDDEN), {*FORBIDDEN})


def test_programs_of_tests_find_no_service_of_their_own_accord() -> None:
    for name in ("MODAL_SERVER_URL", "DAYTONA_API_URL"):
        assert os.environ[name].startswith("http://127.0.0.1:")


def test_public_authorities_are_not_read_and_those_of_a_test_are(tmp_path: Path) -> None:
    everyone, own = Path(certifi.where()), tmp_path / "own.pem"
    begins, ends = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    first = everyone.read_text("utf-8").partition(begins)[2].partition(ends)[0]
    own.write_text(f"{begins}{first}{ends}\n")
    assert ssl.create_default_context(cafile=str(everyone)).get_ca_certs() == []
    assert len(ssl.create_default_context(cafile=str(own)).get_ca_certs()) == 1

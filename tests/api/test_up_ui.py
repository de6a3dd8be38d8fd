"""`fleetctl up --ui`: the controller and the page's server, which begin and end together."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.api.served import WAIT_S, job, until
from tests.docs.fleet import Fleet


def test_the_page_is_served_beside_the_controller_and_ends_with_it(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "home")
    words = [sys.executable, "-P", "-m", "fleetctl", "up", "--ui", "127.0.0.1:0"]
    with subprocess.Popen(words, env=fleet.env, stdout=subprocess.PIPE) as controller:
        try:
            assert controller.stdout is not None
            address = controller.stdout.readline().decode().strip()
            assert address.startswith("http://127.0.0.1:")
            until(lambda: fleet.json("status")["pid"] == controller.pid, "the controller")
            fleet.ok("apply", "-f", "-", "--wait", stdin=job("shown"))
            with httpx.Client(base_url=address, timeout=WAIT_S, trust_env=False) as client:
                assert "fleetctl" in client.get("/").text
                shown = client.get("/api/v1/batchjobs/shown").json()
                assert shown["status"]["phase"] == "Succeeded"
                controller.send_signal(signal.SIGTERM)
                assert controller.wait(WAIT_S) == 0
                with pytest.raises(httpx.ConnectError):
                    httpx.get(f"{address}/healthz", trust_env=False)
        finally:
            controller.terminate()
    fleet.close()


def test_a_port_in_use_is_an_error_before_the_controller_runs(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path / "home")
    refused = fleet.run("up", "--ui", "192.0.2.1:80")
    assert refused.code == 1
    assert "the server did not come up at `192.0.2.1:80`" in refused.talk
    assert "not run" in fleet.run("status").out
    fleet.close()

"""`fleetctl port-forward`: what a task serves is reached from this machine, at every provider."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.controllers.model import RunState
from tests.contracts.provider_worlds import command, eventually
from tests.inside import show_checkout
from tests.servers.verb_worlds import ON_TWO, PROVIDERS, VerbWorld, play, service
from tests.training.test_ray_local import DRIVER, ray_job

pytestmark = ON_TWO

BODY_BYTES = 300_000


@pytest.fixture(scope="module", params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Iterator[str]:
    with service(request.param):
        yield request.param


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEETCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


# On a port of the kernel's choice, as one that was free before may be another's by now.
SERVES = f"""
import http.server
open("body", "wb").write(bytes({BODY_BYTES}))
server = http.server.ThreadingHTTPServer(
    ("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler
)
print("port", server.server_port, flush=True)
server.serve_forever()
"""


async def serving(world: VerbWorld) -> int:
    """A task that serves one file over HTTP; its port. Sandboxes here share our network."""
    ref = await world.start(command("python3", "-c", SERVES), run="run-0")
    world.record(ref)
    found: list[str] = []

    async def told() -> bool:
        found[:] = re.findall(r"^port (\d+)\n", (await world.log(ref)).decode(), re.MULTILINE)
        return bool(found)

    await eventually(told, "the task served")
    return int(found[0])


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def test_what_a_task_serves_is_reached(home: Path, provider: str) -> None:
    async def tale(world: VerbWorld) -> None:
        port = await serving(world)
        words = ["port-forward", "job/job", f"0:{port}"]
        forward = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fleetctl.cli.main", *words, stdout=asyncio.subprocess.PIPE
        )
        assert forward.stdout is not None
        address = (await asyncio.wait_for(forward.stdout.readline(), 300)).decode().strip()
        if "://" not in address:
            assert address != f"127.0.0.1:{port}"
            address = f"http://{address}"
        for _ in range(2):
            body = await asyncio.to_thread(fetched, f"{address}/body")
            assert body == bytes(BODY_BYTES)
        if provider == "daytona":
            assert await forward.wait() == 0
        else:
            forward.send_signal(signal.SIGINT)
            assert await forward.wait() == 130

    play(home, provider, tale)


def test_the_dashboard_of_a_ray_cluster_is_called_by_its_name(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show_checkout(monkeypatch)  # where the stand-in of Ray is

    async def tale(world: VerbWorld) -> None:
        ref = await world.start(ray_job(DRIVER + "sleep 600", 1, ray={"dashboard": True}))
        world.record(ref)
        await world.log_holds(ref, b"token")
        code, out, _ = await world.fleetctl("port-forward", "job/job", "ray")
        assert code == 0
        page = await asyncio.to_thread(fetched, f"http://{out.strip()}/")
        head = (await world.log(ref)).decode().split()[1].rpartition(":")[2]
        assert page == f"the dashboard of {head}".encode()

    play(home, "local", tale)


def test_on_this_machine_the_port_is_open_already(home: Path) -> None:
    async def tale(world: VerbWorld) -> None:
        port = await serving(world)
        code, out, said = await world.fleetctl("port-forward", "job/job", str(port))
        assert (code, out) == (0, f"127.0.0.1:{port}\n")
        assert "open there already" in said
        for wrong in ("0", "70000", "a", "80:", "80:0"):
            assert (await world.fleetctl("port-forward", "job/job", wrong))[0] == 2
        taken = socket.create_server(("127.0.0.1", 0))
        with taken:
            words = f"{taken.getsockname()[1]}:{port}"
            assert (await world.fleetctl("port-forward", "job/job", words))[0] == 3

    play(home, "local", tale)


@pytest.mark.parametrize("ends", ["task", "object", "home"])
def test_it_ends_with_what_it_leads_to(home: Path, ends: str) -> None:
    async def tale(world: VerbWorld) -> None:
        port = await serving(world)
        forward = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fleetctl.cli.main", "port-forward", "job/job", f"0:{port}",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            assert forward.stdout is not None
            await asyncio.wait_for(forward.stdout.readline(), 300)
            assert forward.returncode is None
            (run,) = [it for it, _ in world.store.runs.of(world.refs["run-0"].uid)]
            if ends == "task":
                with world.store.transaction():
                    ended = replace(run, state=RunState.FAILED, ended_at_s=9.0, reason="x")
                    assert world.store.runs.advance(ended)
            elif ends == "object":
                with world.store.transaction():
                    world.store.resources.delete(run.uid)
            else:
                (home / "store").rename(home / "moved")
            _, said = await asyncio.wait_for(forward.communicate(), 120)
            if ends == "home":
                (home / "moved").rename(home / "store")
            assert forward.returncode == (3 if ends != "home" else 1), said
            assert b"has ended" in said or ends == "home"
        finally:
            if forward.returncode is None:
                forward.kill()
                await forward.wait()

    play(home, "local", tale)

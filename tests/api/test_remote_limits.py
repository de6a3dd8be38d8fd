"""Over TLS, many at once and beyond a limit: commands beside tasks, and files that are sent."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from fleetctl.cli.team.remote_entering import ExecLine
from fleetctl.common.errors import FleetctlError
from fleetctl.providers.contract.sandbox_access import ExecStreams
from fleetctl.server.exec_socket import EXECS_MAX, EXECS_OF_USER_MAX
from tests.api.served import ServedFleet, job, until
from tests.api.test_remote_files import far_fleet, write_job
from tests.docs.fleet import Fleet

SENT_BYTES_MAX = 100_000
PROGRAM = f"""
import sys
from fleetctl.providers.sources import upload_store
upload_store.STORED_BYTES_MAX = {SENT_BYTES_MAX}
from fleetctl.cli.main import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFleet]:
    """A server that keeps little of what a namespace sends."""
    fleet = ServedFleet(tmp_path_factory.mktemp("limits") / "home", program=PROGRAM)
    yield fleet
    fleet.close()


@pytest.fixture(scope="module")
def far(served: ServedFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = far_fleet(served, tmp_path_factory.mktemp("far"), "ana", "editor", "-n", "team")
    fleet.ok("apply", "-f", "-", stdin=job("lives", "import time; time.sleep(3600)"))
    until(lambda: "Running" in fleet.ok("get", "tasks", "job/lives"), "the task")
    yield fleet
    fleet.ok("delete", "job/lives", "--yes")


@contextmanager
def over_tls(served: ServedFleet, place: Path) -> Iterator[tuple[str, Path]]:
    """A second server of the fleet: its address, and the certificate of who issued its own."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key, trusted = place / "cert.pem", place / "key.pem", place / "trusted.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(trusted)
    other = served.start("--tls-cert", str(cert), "--tls-key", str(key))
    assert other.stdout is not None
    try:
        yield other.stdout.readline().decode().strip(), trusted
    finally:
        other.terminate()
        other.wait(60)
        other.stdout.close()


def test_a_command_runs_over_tls_and_only_at_a_server_that_is_trusted(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    words = ("exec", "job/lives", "-i", "--", "sh", "-c", "cat; echo err >&2; exit 7")
    mine = {name: value for name, value in far.env.items() if name.startswith("FLEETCTL_")}
    with over_tls(served, tmp_path) as (url, trusted):
        assert url.startswith("https://")
        mine["FLEETCTL_SERVER"] = url
        before = len(served.json("audit", "-A"))
        for more, code in (({"SSL_CERT_FILE": str(trusted)}, 7), ({}, 1)):
            env = Fleet(far.home, mine | more).env
            ran = subprocess.run(
                [sys.executable, "-P", "-m", "fleetctl", *words],
                input="sent", env=env, capture_output=True, text=True,
            )  # fmt: skip
            assert ran.returncode == code, ran.stderr
            if code == 7:
                assert (ran.stdout, ran.stderr) == ("sent", "err\n")
            else:
                assert "certificate verify failed" in ran.stderr
        acts = served.json("audit", "-A")[before:]
        assert [it["action"] for it in acts] == ["exec"]


class RemoteCommand:
    """A command beside a run that waits for a line of input, and prints it."""

    def __init__(self, line: ExecLine, text: str) -> None:
        self._line = line
        self._text = text
        self._out = bytearray()
        self.go = asyncio.Event()

    async def run(self) -> str:
        await self._line.send(json.dumps({"argv": ["cat"], "stdin": True, "tty": None}))
        streams = ExecStreams(stdin=self._input(), out=self._out.extend, err=self._out.extend)
        assert streams.stdin is not None
        sender = asyncio.ensure_future(self._line.send_input(streams.stdin))
        try:
            code = await self._line.follow(streams)
        finally:
            sender.cancel()
            self._line.close()
        assert code == 0
        return self._out.decode()

    async def _input(self) -> AsyncIterator[bytes]:
        await self.go.wait()
        yield self._text.encode()


async def run_many(served: ServedFleet, run: str, tokens: list[str]) -> None:
    """As many commands as the server takes, all at once; one more is refused, for each limit."""

    async def open_line(token: str) -> ExecLine:
        headers = {"Authorization": f"Bearer {token}"}
        return await ExecLine.open(served.url, headers, {"run": run, "node": 0})

    commands = []
    for at in range(EXECS_MAX):
        line = await open_line(tokens[at >= EXECS_OF_USER_MAX])
        commands.append(RemoteCommand(line, f"text {at}\n"))
        if at == EXECS_OF_USER_MAX - 1:
            with pytest.raises(FleetctlError, match="commands of `ana` run"):
                await open_line(tokens[0])
    with pytest.raises(FleetctlError, match="commands run on this server"):
        await open_line(tokens[1])
    running = [asyncio.ensure_future(it.run()) for it in commands]
    for it in commands:
        it.go.set()
    found = await asyncio.gather(*running)
    assert found == [f"text {at}\n" for at in range(EXECS_MAX)]
    again = RemoteCommand(await open_line(tokens[0]), "again")
    again.go.set()
    assert await again.run() == "again"


def test_all_commands_that_a_server_takes_run_at_once_and_no_user_takes_all(
    served: ServedFleet, far: Fleet
) -> None:
    (run,) = far.ok("query", "select run from attempts where name = 'lives'", "-o", "csv").split()[
        1:
    ]
    other = served.token("otto", "editor", "-n", "team")
    tokens = [far.env["FLEETCTL_TOKEN"], other]
    asyncio.run(run_many(served, run, tokens))


def test_what_a_namespace_sends_has_a_limit_that_others_do_not_feel(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    (tmp_path / "proj").mkdir()
    file = write_job(tmp_path, "sends", "SUBMIT(x=1)", source={"path": "proj"})
    for name in ("a.bin", "b.bin"):
        (tmp_path / "proj" / name).write_bytes(name.encode() * (SENT_BYTES_MAX // 8))
    refused = far.run("apply", "-f", str(file))
    assert refused.code == 3
    assert "there is no room for more files" in refused.talk
    assert far.run("get", "job/sends").code == 4
    (tmp_path / "proj" / "b.bin").unlink()
    other = far_fleet(served, tmp_path, "otto", "editor", "-n", "other")
    other.env["FLEETCTL_NAMESPACE"] = "other"
    other.ok("apply", "-f", str(file), "--wait")

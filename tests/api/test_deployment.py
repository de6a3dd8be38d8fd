"""A server on a small machine, by the lines of the page about it: its unit, an upgrade with running
work, and a backup by cron."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.served import WAIT_S, ServedFleet, job, until
from tests.docs.fleet import ROOT, Fleet
from tests.emulators.driving.gates import gate
from tests.servers.forked_program import make_program_directory

UNIT = ROOT / "deploy/systemd/fleetctl-serve.service"
PAGE = (ROOT / "docs/how-to/share-one-server.md").read_text("utf-8")
PROGRAM = "/opt/fleetctl/bin/fleetctl"
STATE = "/var/lib/fleetctl"
BACKUPS = "/var/backups/fleetctl/"
CRON = re.compile(r"^(?P<when>([\d*/,-]+ ){5})(?P<command>FLEETCTL_HOME=.*)$", re.M)


@pytest.fixture(scope="module")
def program() -> str:
    return str(make_program_directory("fleetctl.server.api_server") / "fleetctl")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path / "home")
    yield made
    made.close()


def read_unit() -> dict[str, str]:
    lines = [it for it in UNIT.read_text("utf-8").splitlines() if "=" in it and it[0] != "#"]
    return dict(it.split("=", 1) for it in lines)


@pytest.mark.needs("systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path, program: str) -> None:
    copy = tmp_path / UNIT.name
    text = UNIT.read_text("utf-8").replace(PROGRAM, program)
    copy.write_text(text.replace("User=fleet\n", f"User={os.geteuid()}\n"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=WAIT_S
    )
    mine = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert mine == [], done.stderr
    assert done.returncode == 0, done.stderr


def test_the_units_command_runs_as_it_is_written(
    tmp_path: Path, fleet: Fleet, program: str
) -> None:
    """As the unit has no Type, systemd takes it as started with its process; the first line comes
    once it can be reached. Only the port differs: another server may have that one."""
    unit = read_unit()
    assert "Type" not in unit
    variable, _, home = unit["Environment"].partition("=")
    assert (variable, home) == ("FLEETCTL_HOME", STATE)
    words = shlex.split(unit["ExecStart"].replace(PROGRAM, program))
    words = [it.replace("127.0.0.1:8123", "127.0.0.1:0") for it in words]
    env = {"PATH": "/usr/bin:/bin", variable: str(fleet.home)}
    server = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, cwd="/")
    assert server.stdout is not None
    try:
        address = server.stdout.readline().decode().strip()
        assert httpx.get(f"{address}/healthz", timeout=WAIT_S).text == "ok\n"
        name = words[words.index("--name") + 1]
        token = fleet.ok("token", "create", "ana", "--role", "viewer", "-A").strip()
        about = httpx.get(
            f"{address}/api/v1/whoami",
            headers={"host": name, "authorization": f"Bearer {token}"},
            timeout=WAIT_S,
        )
        assert about.json()["user"] == "ana"
    finally:
        server.terminate()  # as systemd ends it
        server.wait(WAIT_S)
        server.stdout.close()


def test_an_upgrade_lets_running_work_go_on_and_repeats_nothing(tmp_path: Path) -> None:
    """The steps of the page: the server is started again, and `fleetctl down` ends the old
    controller; the next request starts the new one."""
    step = next(line for line in PAGE.splitlines() if "To upgrade" in line)
    assert "restart fleetctl-serve" in step and "`fleetctl down`" in PAGE
    served = ServedFleet(tmp_path / "home")
    try:
        with gate() as door:
            begin = "import os; print('begun', os.getpid(), flush=True)"
            text = f"{begin}\n{door.python()}\nSUBMIT(pid=os.getpid())"
            made = served.post("apply", {"manifest": job("going", text)})
            assert made.status_code == 200, made.text
            until(lambda: "begun" in served.run("logs", "job/going").out, "its task")
            old = served.json("status")["pid"]
            served.again()
            served.ok("down")
            body = {"manifest": job("next")}
            # A busy machine starts it slower than a request waits; the same again is no change.
            until(lambda: served.post("apply", body).status_code == 200, "the new controller")
            assert served.json("status")["pid"] not in (None, old)
            door.open()
            for name in ("going", "next"):
                wait = ("wait", f"job/{name}", "--for", "succeeded", "--timeout", f"{WAIT_S:g}s")
                served.ok(*wait)
        (row,) = served.results("job/going")
        assert row["attempts"] == 1
        words = served.ok("logs", "job/going").split()
        assert words.count("begun") == 1
        assert str(row["result"]["pid"]) in words
    finally:
        served.close()


def test_the_line_of_cron_makes_a_backup_that_is_restored_elsewhere(
    tmp_path: Path, fleet: Fleet, program: str
) -> None:
    found = CRON.search(PAGE)
    assert found is not None
    assert len(found["when"].split()) == 5 and "%" not in found["command"]  # a line feed to cron
    fleet.ok("apply", "-f", "-", "--wait", stdin=job("kept", "SUBMIT(y=a)", tasks=2))
    backups = tmp_path / "backups"
    backups.mkdir()
    line = found["command"].replace(PROGRAM, program).replace(STATE, str(fleet.home))
    line = line.replace(BACKUPS, f"{backups}/")
    bare = {"HOME": str(tmp_path), "LOGNAME": "fleet", "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}
    for _ in range(2):  # of two nights
        done = subprocess.run(
            ["/bin/sh", "-c", line], env=bare, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert list(backups.iterdir())
    other = Fleet(tmp_path / "other")
    other.ok("restore", str(backups), "--yes")
    try:
        assert [it["result"]["y"] for it in other.results("job/kept")] == [0, 1]
    finally:
        other.close()

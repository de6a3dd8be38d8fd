"""Commands beside tasks over a server: the same words, streams and exit codes as on its machine,
and nothing is left behind when the line is cut."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fleetctl.common.remote import EXEC_PATH, WINDOW_BYTES
from tests.api.served import ServedFleet, job, until
from tests.api.test_remote_files import far_fleet
from tests.docs.fleet import Fleet
from tests.servers.forked_program import make_program_directory
from tests.unit.cli.terminals import Terminal

# What terminals and Ctrl-C are about; other commands are forks.
CLI = (sys.executable, "-P", "-m", "fleetctl")


def find_forked_program() -> str:
    return str(make_program_directory() / "fleetctl")


@pytest.fixture(scope="module")
def far(served: ServedFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A command line with a token of an editor, beside a task that runs until the tests end."""
    fleet = far_fleet(served, tmp_path_factory.mktemp("far"), "ana", "editor", "-n", "team")
    work = "import time, pathlib; pathlib.Path('here').write_text('up'); time.sleep(3600)"
    fleet.ok("apply", "-f", "-", stdin=job("lives", work))
    until(lambda: "Running" in fleet.ok("get", "tasks", "job/lives"), "the task")
    yield fleet
    fleet.ok("delete", "job/lives", "--yes")
    assert not fleet.home.exists()


def test_a_command_has_its_streams_and_its_exit_code(served: ServedFleet, far: Fleet) -> None:
    ran = far.run("exec", "job/lives", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (ran.code, ran.out, ran.talk) == (7, "out\n", "err\n")


def test_input_of_any_size_arrives_and_ends(far: Fleet) -> None:
    data = os.urandom(8 * WINDOW_BYTES)
    ran = subprocess.run(
        [find_forked_program(), "exec", "job/lives", "-i", "--", "sha256sum"],
        input=data,
        env=far.env,
        capture_output=True,
        check=True,
    )
    assert ran.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_input_waits_for_a_command_that_does_not_read_it(far: Fleet) -> None:
    data = os.urandom(4 * WINDOW_BYTES)
    ran = subprocess.run(
        [find_forked_program(), "exec", "job/lives", "-i", "--", "sh", "-c", "echo unread; exit 3"],
        input=data,
        env=far.env,
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (3, b"unread\n")


def test_output_waits_for_its_reader(served: ServedFleet, far: Fleet) -> None:
    """The command cannot have ended while most of what it writes was not read: no part between
    holds it."""
    size = 64 * 1024 * 1024
    script = f"head -c {size} /dev/zero; touch written"
    with subprocess.Popen(
        [find_forked_program(), "exec", "job/lives", "--", "sh", "-c", script],
        env=far.env,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"\0"
        assert far.run("exec", "job/lives", "--", "test", "-e", "written").code == 1
        left = size - 1
        while data := process.stdout.read(1024 * 1024):
            left -= len(data)
        assert left == 0
        assert process.wait() == 0
    assert far.run("exec", "job/lives", "--", "test", "-e", "written").code == 0


def test_a_terminal_has_its_size_and_keys(far: Fleet, tmp_path: Path) -> None:
    words = [*CLI, "exec", "job/lives", "-it", "--", "sh"]
    with Terminal(words, far.env, tmp_path, size=(33, 101)) as screen:
        assert "33 101" in screen.types("stty size\n", until="33 101")
        screen.resize(44, 77)
        shown = screen.types(
            "while [ \"$(stty size)\" != '44 77' ]; do :; done; echo s''een\n", until="seen"
        )
        assert "seen" in shown
        catch = 'trap "echo cau""ght; exit 5" INT; echo wait""ing; while :; do sleep 0.1; done'
        screen.types(f"{catch}\n", until="waiting")
        screen.types("\x03", until="caught")
        assert screen.ends()[0] == 5


def find_pids(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words:
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("how", ["client", "server"])
def test_a_cut_line_leaves_no_process_behind(served: ServedFleet, far: Fleet, how: str) -> None:
    mark = f"mark-{how}-{os.getpid()}"
    words = [
        *CLI,
        "exec",
        "job/lives",
        "--",
        "sh",
        "-c",
        "echo up; while :; do sleep 1; done",
        mark,
    ]
    with subprocess.Popen(
        words, env=far.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"up\n"
        until(lambda: [it for it in find_pids(mark) if it != process.pid], "the command")
        if how == "client":
            process.send_signal(signal.SIGKILL)
            process.wait()
        else:
            served.again()
            assert process.wait() == 1
            said = process.stderr.read().decode()
            assert "was cut; the command ends with it" in said
            assert "Traceback" not in said
    until(lambda: not find_pids(mark), "the end of the command")


def test_who_may_enter(served: ServedFleet, far: Fleet, tmp_path: Path) -> None:
    viewer = far_fleet(served, tmp_path, "vera", "viewer", "-n", "team")
    refused = viewer.run("exec", "job/lives", "--", "true")
    assert refused.code == 3
    assert "this needs the role `editor`" in refused.talk
    (run,) = far.ok("query", "select run from attempts where name = 'lives'", "-o", "csv").split()[
        1:
    ]
    key = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }

    def shake(token: str, **more: str) -> httpx.Response:
        with served.client(token) as client:
            return client.get(EXEC_PATH, params={"run": run}, headers={**key, **more})

    editor = served.token("emil", "editor", "-n", "team")
    assert shake(served.token("vera", "viewer", "-n", "team")).status_code == 403
    assert shake(served.token("otto", "editor", "-n", "other")).status_code == 403
    assert shake("flt_00000000_x").status_code == 401
    assert shake(editor, origin="http://evil.example").status_code == 403
    assert shake(editor, host="evil.example").status_code == 421
    with served.client() as client:
        client.cookies.set("fleetctl_token", editor)
        page = client.get(EXEC_PATH, params={"run": run}, headers=key)
    assert page.status_code == 403
    assert shake(editor, **{"sec-fetch-site": "cross-site"}).status_code == 403
    gone = served.token("emil", "editor", "-n", "team")
    with served.client(gone) as client:
        assert client.get(EXEC_PATH, params={"run": "none"}, headers=key).status_code == 404
    acts = [it for it in served.json("audit", "--user", "ana", "-A") if it["action"] == "exec"]
    assert acts


def test_a_port_of_a_task_is_here(served: ServedFleet, far: Fleet) -> None:
    work = (
        "import http.server, pathlib, socketserver\n"
        "pathlib.Path('said.txt').write_text('by a port')\n"
        "server = socketserver.TCPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
        "pathlib.Path('port').write_text(str(server.server_address[1]))\n"
        "server.serve_forever()"
    )
    far.ok("apply", "-f", "-", stdin=job("listens", work))
    read = ("exec", "job/listens", "--", "cat", "port")
    port = until(lambda: (ran := far.run(*read)).code == 0 and ran.out, "the port")
    with subprocess.Popen(
        [*CLI, "port-forward", "job/listens", f"0:{port}"],
        env=far.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        assert address.startswith("127.0.0.1:")
        assert not address.endswith(f":{port}")
        assert httpx.get(f"http://{address}/said.txt").text == "by a port"
        host, _, ours = address.rpartition(":")
        with socket.create_connection((host, int(ours))):
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
    far.ok("delete", "job/listens", "--yes")


def test_files_of_a_task_are_copied_both_ways(far: Fleet, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.bin").write_bytes(data)
    far.ok("cp", str(tmp_path / "in"), "job/lives:taken")
    far.ok("cp", "job/lives:taken/a.bin", str(tmp_path / "back.bin"))
    assert (tmp_path / "back.bin").read_bytes() == data
    missing = far.run("cp", "job/lives:none", str(tmp_path / "none"))
    assert missing.code == 4


def test_outputs_of_an_ended_task_are_listed_and_copied(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    work = (
        "import pathlib; p = pathlib.Path('out'); p.mkdir()\n"
        "(p / 'm.pt').write_bytes(bytes(5_000_000)); (p / 'n').write_text('')"
    )
    manifest = job("ended", work)
    manifest = manifest.replace('"python":', '"outputs": ["out/**"], "python":')
    far.ok("apply", "-f", "-", "--wait", stdin=manifest)
    for words in (("ls", "job/ended:0"), ("get", "artifacts", "job/ended", "-o", "json")):
        here, there = far.run(*words), served.run(*words, "-n", "team")
        assert (here.code, here.talk) == (there.code, there.talk)
        assert here.out.count("out/") == there.out.count("out/") == 2
    far.ok("cp", "job/ended:0/out", str(tmp_path / "got"))
    assert (tmp_path / "got" / "m.pt").read_bytes() == bytes(5_000_000)
    assert (tmp_path / "got" / "n").read_bytes() == b""
    viewer = far_fleet(served, tmp_path, "vera", "viewer", "-n", "team")
    viewer.ok("cp", "job/ended:0/out/m.pt", str(tmp_path / "seen.pt"))
    assert (tmp_path / "seen.pt").stat().st_size == 5_000_000
    assert far.run("ls", "job/ended:7").code == 4


def test_files_of_a_volume_are_copied_listed_and_removed(
    served: ServedFleet, far: Fleet, tmp_path: Path
) -> None:
    volume = {"apiVersion": "fleetctl.dev/v1alpha1", "kind": "Volume", "spec": {}}
    volume["metadata"] = {"name": "held"}
    far.ok("apply", "-f", "-", stdin=json.dumps(volume))
    until(lambda: "Ready" in far.ok("get", "volume/held"), "the volume")
    data = os.urandom(6_000_000)
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "a.bin").write_bytes(data)
    (tmp_path / "data" / "b.txt").write_text("b")
    far.ok("cp", str(tmp_path / "data"), "volume/held:/data")
    assert far.ok("ls", "volume/held", "-R", "-o", "name") == served.ok(
        "ls", "volume/held", "-R", "-o", "name", "-n", "team"
    )
    far.ok("cp", "volume/held:/data", str(tmp_path / "back"))
    assert (tmp_path / "back" / "deep" / "a.bin").read_bytes() == data
    viewer = far_fleet(served, tmp_path, "vera", "viewer", "-n", "team")
    viewer.ok("ls", "volume/held")
    assert viewer.run("rm", "volume/held:/data/b.txt").code == 3
    assert viewer.run("cp", str(tmp_path / "data" / "b.txt"), "volume/held:/c.txt").code == 3
    far.ok("rm", "volume/held:/data/b.txt")
    assert "b.txt" not in far.ok("ls", "volume/held", "-R", "-o", "name")
    assert far.run("rm", "volume/held:/data/b.txt").code == 4
    acts = {it["action"] for it in served.json("audit", "--user", "ana", "-A")}
    assert {"cp", "rm"} <= acts


def test_the_commands_of_the_how_to_work(far: Fleet, tmp_path: Path) -> None:
    page = Path("docs/how-to/share-one-server.md").read_text()
    (block,) = re.findall(r"```sh\n(fleetctl plan -f train.yaml\n.*?)```", page, re.DOTALL)
    (tmp_path / "notes.txt").write_text("of the caller")
    work = "import time; print('begun', flush=True); time.sleep(3600)"
    manifest = json.loads(job("train", work))
    manifest["spec"]["template"]["source"] = {"path": "."}
    volume = {"apiVersion": manifest["apiVersion"], "kind": "Volume", "metadata": {}, "spec": {}}
    volume["metadata"]["name"] = "corpus"
    text = f"{json.dumps(volume)}\n---\n{json.dumps(manifest)}\n"
    (tmp_path / "train.yaml").write_text(text)
    for line in block.splitlines():
        words = [find_forked_program(), *shlex.split(line)[1:]]
        ran = subprocess.run(words, env=far.env, cwd=tmp_path, capture_output=True, check=False)
        assert ran.returncode == 0, (line, ran.stderr.decode())
        if "apply" in words:
            until(lambda: "begun" in far.run("logs", "job/train").out, "the task")
            until(lambda: "Ready" in far.ok("get", "volume/corpus"), "the volume")
    far.ok("delete", "job/train", "--yes")

"""The toolbox over plain HTTP: what the SDK has no method for, and requests that it never sends."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest
from daytona import Sandbox, SessionExecuteRequest

from tests.emulators.suite.daytona_toolbox_world import PATIENCE_S, Place, place, until

JSON = "application/json"
Answer = tuple[int, Any]
Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with place(tmp_path_factory.mktemp("daytona")) as here:
        yield here


@pytest.fixture(scope="module")
def sandbox(emulator: Place) -> Sandbox:
    return emulator.client().create(timeout=60)


@pytest.fixture
def ask(emulator: Place, sandbox: Sandbox) -> Ask:
    """`ask("POST", "/path", {...})` -> status and JSON."""

    def asked(
        method: str, path: str, body: object = None, kind: str = "application/json"
    ) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        key = emulator.config().api_key
        request = urllib.request.Request(
            f"{sandbox.toolbox_proxy_url}/{sandbox.id}{path}",
            method=method,
            data=None if body is None else data,
            headers={"Authorization": f"Bearer {key}", "Content-Type": kind},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        return status, _parsed(text)

    return asked


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_errors_have_the_published_shape(ask: Ask) -> None:
    status, body = ask("GET", "/files/info?path=none")
    assert status == 404
    assert (body["source"], body["code"]) == ("DAYTONA_DAEMON", "FILE_NOT_FOUND")
    assert (body["statusCode"], body["method"]) == (404, "GET")
    assert body["path"].endswith("/files/info")
    assert body["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/process/execute", {"command": 5}),
        ("POST", "/process/execute", {"command": "true", "envs": {"A": 1}}),
        ("POST", "/process/execute", {"command": "true", "timeout": "soon"}),
        ("POST", "/process/execute", {"command": "true\0false"}),
        ("POST", "/process/code-run", {"code": "1", "language": "python", "argv": [1]}),
        ("POST", "/process/session", {"sessionId": "../escape"}),
        ("POST", "/process/session", {}),
        ("POST", "/process/pty", {"id": "big", "cols": 5000}),
        ("POST", "/files/bulk-download", {"paths": []}),
        ("POST", "/files/bulk-download", {"paths": "one"}),
        ("POST", "/files/bulk-upload", {"not": "multipart"}),
        ("GET", "/files/info", None),
        ("GET", "/files?depth=0", None),
        ("GET", "/files?path=%00", None),
        ("POST", "/files/folder?path=x&mode=9", None),
        ("POST", "/git/clone", {"url": "x"}),
        ("POST", "/git/init", {"path": "x", "initial_branch": "not a branch"}),
        ("POST", "/process/execute", b"{"),
        ("POST", "/process/execute", b"[]"),
    ],
)
def test_a_request_that_makes_no_sense_is_a_bad_one(
    ask: Ask, method: str, path: str, body: object
) -> None:
    status, answer = ask(method, path, body)
    assert status == 400
    assert answer["statusCode"] == 400 and answer["message"]


def test_a_lazy_terminal_starts_when_someone_connects(
    ask: Ask, emulator: Place, sandbox: Sandbox
) -> None:
    assert ask("POST", "/process/pty", {"id": "lazy", "lazyStart": True}) == (
        201,
        {"sessionId": "lazy"},
    )
    info = sandbox.process.get_pty_session_info("lazy")
    assert (info.active, info.lazy_start) == (False, True)
    assert emulator.commands(sandbox) == []
    handle = sandbox.process.connect_pty_session("lazy")
    handle.send_input("exit 3\n")
    assert handle.wait(timeout=PATIENCE_S).exit_code == 3
    assert ask("DELETE", "/process/pty/lazy")[0] == 200


@pytest.mark.parametrize("offered", [(), ("X-Daytona-Pty-Exit-Control",)])
def test_a_terminal_says_how_it_ended_in_the_way_that_the_client_knows(
    emulator: Place, sandbox: Sandbox, offered: tuple[str, ...]
) -> None:
    name = f"ending-{len(offered)}"

    async def talk() -> tuple[list[dict[str, Any]], int | None, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {emulator.config().api_key}"}
        url = f"{sandbox.toolbox_proxy_url}/{sandbox.id}/process/pty/create-connect?id={name}"
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.ws_connect(url, protocols=offered) as connection,
        ):
            parts = []
            await connection.send_str("exit 6\n")
            while (message := await connection.receive()).type is not aiohttp.WSMsgType.CLOSE:
                if message.type is aiohttp.WSMsgType.TEXT:
                    parts.append(json.loads(message.data))
            return parts, message.data, json.loads(message.extra or "{}")

    said, code, reason = asyncio.run(talk())
    assert (code, reason) == (1000, {"exitCode": 6})
    assert said[0] == {"type": "control", "status": "connected"}
    ended = {"type": "control", "status": "exited", "exitCode": 6}
    assert said[1:] == ([ended] if offered else [])


def test_history_tells_each_commit(ask: Ask, sandbox: Sandbox) -> None:
    sandbox.git.init("repo")
    hashes = [
        sandbox.git.commit("repo", message, "Ada", "ada@example.org", allow_empty=True).sha
        for message in ("first", "second\n\nwith | a body")
    ]
    status, commits = ask("GET", "/git/history?path=repo")
    assert status == 200
    assert [one["hash"] for one in commits] == hashes[::-1]
    assert [one["message"] for one in commits] == ["second\n\nwith | a body\n", "first\n"]
    assert {(one["author"], one["email"]) for one in commits} == {("Ada", "ada@example.org")}


def test_a_log_can_be_followed_without_a_websocket(ask: Ask, sandbox: Sandbox) -> None:
    sandbox.process.create_session("plain")
    request = SessionExecuteRequest(command="echo a; sleep 0.3; echo b >&2", run_async=True)
    command = sandbox.process.execute_session_command("plain", request).cmd_id
    status, text = ask("GET", f"/process/session/plain/command/{command}/logs?follow=true")
    assert (status, text) == (200, b"\x01\x01\x01a\n\x02\x02\x02b\n")


def test_a_file_may_come_before_its_path(ask: Ask, emulator: Place, sandbox: Sandbox) -> None:
    parts = [
        b'name="files[1].file"; filename="x"\r\n\r\nsecond',
        b'name="files[0].path"\r\n\r\nup/first',
        b'name="files[0].file"; filename="x"\r\n\r\nfirst',
        b'name="files[1].path"\r\n\r\nup/second',
    ]
    head = b"--b\r\nContent-Disposition: form-data; "
    body = b"".join(head + part + b"\r\n" for part in parts) + b"--b--\r\n"
    status, answer = ask("POST", "/files/bulk-upload", body, "multipart/form-data; boundary=b")
    assert status == 200
    assert sorted(one["path"] for one in answer["files"]) == ["up/first", "up/second"]
    assert emulator.host(sandbox, "up/first").read_text() == "first"
    assert emulator.host(sandbox, "up/second").read_text() == "second"
    orphan = head + parts[0] + b"\r\n--b--\r\n"
    status, answer = ask("POST", "/files/bulk-upload", orphan, "multipart/form-data; boundary=b")
    assert (status, answer["errors"]) == (400, ["a file came without its path"])


def test_the_environment_can_lose_variables_by_their_values(ask: Ask, sandbox: Sandbox) -> None:
    sandbox.update_env({"ONE": "secret:1", "TWO": "secret:2", "KEPT": "plain"})
    assert ask("POST", "/env", {"set": {"TWO": "new"}, "unsetValuePrefix": "secret:"})[0] == 200
    shown = sandbox.process.exec('echo "[$ONE] [$TWO] [$KEPT]"').result
    assert shown == "[] [new] [plain]\n"
    assert ask("POST", "/init", {"token": "x"})[0] == 200
    assert sandbox.get_user_home_dir() == "/home/daytona"


def test_a_client_that_leaves_does_not_end_its_command(
    ask: Ask, emulator: Place, sandbox: Sandbox
) -> None:
    file, told = (emulator.host(sandbox, name) for name in ("finished", "told"))
    command = "until [ -e told ]; do sleep 0.02; done; touch finished"
    with pytest.raises(OSError):
        urllib.request.urlopen(
            urllib.request.Request(
                f"{sandbox.toolbox_proxy_url}/{sandbox.id}/process/execute",
                data=json.dumps({"command": command}).encode(),
                headers={"Authorization": f"Bearer {emulator.config().api_key}"},
            ),
            timeout=0.2,
        )
    assert not file.exists()
    told.touch()
    until(file.exists, "the end of the command")

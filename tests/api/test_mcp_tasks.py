"""Waits of agents as tasks of the protocol's extension, over stdio and HTTP: a task follows the
objects, belongs to its caller, outlives client and server, and its end is the end of the waiting
alone. A client without the extension gets a call with an end."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.api.mcp_tasks_client import (
    EXTENSION,
    CreatedTask,
    PolledTask,
    TasksExtension,
    begin,
    cancel_task,
    get_task,
    update_task,
)
from tests.api.served import WAIT_S, job, until
from tests.api.test_mcp import refusal, use, volume, wait_for
from tests.api.test_mcp_http import HEAD, AgentsFleet
from tests.docs.fleet import Fleet

Work = Callable[[Client], Awaitable[Any]]
VERSION = "2026-07-28"


class Gate:
    """A job of three tasks that each end when its file is there."""

    def __init__(self, fleet: Fleet, place: Path, name: str, *flags: str) -> None:
        self.name, self.key = name, f"batchjob/{name}"
        self._files = [place / f"{name}-{at}" for at in range(3)]
        code = (
            f"import pathlib, time\nfile = pathlib.Path({str(place / name)!r} + f'-{{a}}')\n"
            "while not file.exists():\n    time.sleep(0.05)\nSUBMIT(y=a)"
        )
        fleet.ok("apply", *flags, "-f", "-", stdin=job(name, code, tasks=3))

    def open(self, count: int = 3) -> None:
        for file in self._files[:count]:
            file.touch()


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that tasks can see: in their namespaces /tmp is their own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("mcp-tasks") / "home")
    yield made
    if keys := made.ok("get", "all", "-o", "name").split():
        made.ok("delete", "--yes", *keys)
    made.close()


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentsFleet]:
    made = AgentsFleet(tmp_path_factory.mktemp("mcp-tasks-http") / "home")
    yield made
    made.close()


def apply_sleeper(fleet: Fleet) -> None:
    """A job that never ends by itself."""
    fleet.ok("apply", "-f", "-", stdin=job("asleep", tasks=10, suspend=True))
    until(lambda: fleet.status("job/asleep").get("phase") == "Suspended", "its phase")


def use_tasks(fleet: Fleet, work: Work, *flags: str) -> Any:
    """What a client with tasks gets from a server of its own over stdio."""
    return use(fleet, work, *flags, extensions=[TasksExtension()])


def content(found: types.CallToolResult | PolledTask) -> dict[str, Any]:
    result = found.result if isinstance(found, PolledTask) else found
    assert result is not None, found
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def until_ended(client: Client, task_id: str) -> PolledTask:
    while (found := await get_task(client.session, task_id)).status == "working":
        await anyio.sleep(0.05)
    return found


async def refused(polling: Awaitable[Any]) -> MCPError:
    with pytest.raises(MCPError) as error:
        await polling
    return error.value


def test_a_task_ends_with_the_answer_of_the_same_call(fleet: Fleet, place: Path) -> None:
    gate = Gate(fleet, place, "same")
    extension = TasksExtension()

    async def work(client: Client) -> tuple[Any, ...]:
        assert EXTENSION in (client.session.server_capabilities.extensions or {})
        made = await begin(client, "wait", {"keys": [gate.key]})
        gate.open(1)
        while "1/3" not in (seen := await get_task(client.session, made.task_id)).status_message:
            await anyio.sleep(0.05)
        gate.open()
        ended = await until_ended(client, made.task_id)
        return made, seen, ended, await client.call_tool("wait", {"keys": [gate.key]})

    made, seen, ended, called = use(fleet, work, extensions=[extension])
    assert (made.status, made.ttl_ms) == ("working", 7 * 86_400_000)
    assert 0 < made.poll_interval_ms <= 15_000
    assert len(made.task_id) >= 43
    assert seen.status_message.startswith(f"{gate.key}: Running, 1/3 done")
    assert seen.result is None
    assert ended.status == "completed"
    assert ended.last_updated_at >= ended.created_at == made.created_at
    assert ended.result == called.model_copy(update={"meta": None})  # its reply names the server
    assert extension.polled == []  # the goal was met by then
    assert content(called)["code"] == 0
    assert content(called)["message"] == f"{gate.key}: 3/3 done"


def test_a_client_polls_transparently(fleet: Fleet, place: Path) -> None:
    gate = Gate(fleet, place, "opaque")
    extension = TasksExtension()

    async def work(client: Client) -> types.CallToolResult:
        gate.open()
        return await client.call_tool("wait", {"keys": [gate.key], "for": "finished"})

    found = use(fleet, work, extensions=[extension])
    assert not found.is_error
    assert content(found)["items"][0]["outcome"] == "met"


def test_a_handle_outlives_its_client_and_its_server(fleet: Fleet, place: Path) -> None:
    """Each client over stdio has a server process of its own."""
    gate = Gate(fleet, place, "later")
    made: CreatedTask = use_tasks(fleet, lambda it: begin(it, "wait", {"keys": [gate.key]}))
    seen = use_tasks(fleet, lambda it: get_task(it.session, made.task_id))
    assert seen.status == "working"
    gate.open()
    wait_for(fleet, gate.key)
    ended = use_tasks(fleet, lambda it: get_task(it.session, made.task_id))
    assert content(ended)["code"] == 0
    # What has ended stays as it was, also when the object is gone.
    fleet.ok("delete", gate.key, "--yes")
    until(lambda: fleet.run("get", gate.key).code == 4, "its end")
    again = use_tasks(fleet, lambda it: get_task(it.session, made.task_id))
    assert again.result == ended.result


def test_the_end_of_a_task_is_no_end_of_the_work(fleet: Fleet, place: Path) -> None:
    gate = Gate(fleet, place, "goes-on")

    async def work(client: Client) -> PolledTask:
        made = await begin(client, "wait", {"keys": [gate.key]})
        await update_task(client.session, made.task_id)  # it waits for no answer
        assert (await get_task(client.session, made.task_id)).status == "working"
        await cancel_task(client.session, made.task_id)
        await cancel_task(client.session, made.task_id)
        return await get_task(client.session, made.task_id)

    found = use_tasks(fleet, work)
    assert found.status == "cancelled"
    assert f"the work of {gate.key} goes on" in found.status_message
    gate.open()
    wait_for(fleet, gate.key)
    assert fleet.status(gate.key)["succeeded"] == 3
    after = use_tasks(fleet, lambda it: get_task(it.session, found.task_id))
    assert (after.status, after.result) == ("cancelled", None)


def test_the_message_says_why_nothing_moves(fleet: Fleet) -> None:
    apply_sleeper(fleet)

    async def work(client: Client) -> tuple[CreatedTask, PolledTask]:
        made = await begin(client, "wait", {"keys": ["job/asleep"], "timeoutSeconds": 1})
        return made, await until_ended(client, made.task_id)

    made, ended = use_tasks(fleet, work)
    assert made.status_message == (
        "batchjob/asleep: Suspended, 0/10 done (Suspended: spec.suspend is true)"
    )
    found = content(ended)
    assert found["code"] == 124
    assert not ended.result.is_error
    assert found["errors"] == ["timed out: batchjob/asleep has not met `complete`"]
    assert found["items"][0]["fix"] == "fleetctl resume batchjob/asleep"


def test_a_goal_that_cannot_be_met_ends_the_task(fleet: Fleet, place: Path) -> None:
    gate = Gate(fleet, place, "replaced")

    async def work(client: Client) -> list[Any]:
        made = [await begin(client, "wait", {"keys": [gate.key]}) for _ in range(2)]
        made.append(await begin(client, "wait", {"keys": [gate.key], "for": "delete"}))
        fleet.ok("delete", gate.key, "--yes")
        until(lambda: fleet.run("get", gate.key).code == 4, "its end")
        first = await until_ended(client, made[0].task_id)
        Gate(fleet, place, "replaced")
        return [first, *[await until_ended(client, it.task_id) for it in made[1:]]]

    first, second, gone = use_tasks(fleet, work)
    for found in (first, second):
        assert found.status == "completed"  # `failed` is for faults of the protocol
        assert found.result.is_error
        assert "it was deleted" in content(found)["errors"][0]
    assert content(gone)["code"] == 0
    gate.open()


def test_a_wait_is_for_all_its_objects(fleet: Fleet, place: Path) -> None:
    gate = Gate(fleet, place, "slow")
    fleet.ok("apply", "-f", "-", stdin=job("bad", "raise SystemExit(3)"))

    async def work(client: Client) -> tuple[PolledTask, ...]:
        both = {"keys": [gate.key, "job/bad"]}
        finished = await begin(client, "wait", both | {"for": "finished"})
        good = await client.call_tool("wait", both)
        waiting = await get_task(client.session, finished.task_id)
        gate.open()
        return good, waiting, await until_ended(client, finished.task_id)

    good, waiting, ended = use_tasks(fleet, work)
    assert "batchjob/bad can no longer meet `complete`" in content(good)["errors"][0]
    assert content(good)["code"] == 1
    assert waiting.status == "working"
    assert [it["outcome"] for it in content(ended)["items"]] == ["met", "met"]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_without_tasks_gets_a_call_with_an_end(
    fleet: Fleet, place: Path, mode: str
) -> None:
    gate = Gate(fleet, place, f"plain-{mode}")
    reports: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))
        if len(reports) == 1:
            gate.open(2)
        elif progress >= 2.0:
            gate.open()

    async def work(client: Client) -> tuple[Any, ...]:
        short = await client.call_tool("wait", {"keys": [gate.key], "timeoutSeconds": 0.1})
        long = await client.call_tool(
            "wait", {"keys": [gate.key], "timeoutSeconds": 600}, progress_callback=note
        )
        offered = (client.session.server_capabilities.extensions or {}).get(EXTENSION) is not None
        return short, long, offered, await refused(get_task(client.session, "none"))

    short, long, offered, error = use(fleet, work, mode=mode)
    assert not short.is_error
    assert content(short)["code"] == 124
    assert content(long)["code"] == 0
    values = [it[0] for it in reports]
    assert values == sorted(set(values))
    assert {it[1] for it in reports} <= {None, 3.0}  # None before the controller has looked
    assert any("2/3 done" in str(it[2]) for it in reports)
    assert bool(offered) == (mode == "auto")
    if mode == "legacy":
        assert error.code == types.METHOD_NOT_FOUND
    else:
        assert error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
        assert error.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


def test_wrong_waits_are_refused_before_there_is_a_task(fleet: Fleet) -> None:
    volume(fleet, "v")

    async def work(client: Client) -> list[types.CallToolResult]:
        tried: tuple[dict[str, Any], ...] = (
            {"keys": ["job/nowhere"]},
            {"keys": ["volume/v"]},
            {"keys": ["job/asleep"], "for": "complet"},
            {"keys": ["job/asleep"], "timeoutSeconds": -1},
            {"keys": []},
            {"keys": ["job/asleep"], "uids": {"job/asleep": "x"}},
        )
        return [await client.call_tool("wait", it) for it in tried]

    missing, endless, word, *rest = map(refusal, use_tasks(fleet, work))
    assert "nowhere" in missing
    assert "never ends" in endless
    assert "`complet` is not a condition" in word
    assert len(rest) == 3


def test_the_number_of_open_waits_has_a_limit(fleet: Fleet, place: Path) -> None:
    from fleetctl.stores.waits import OWN_WORKING_MAX

    gate = Gate(fleet, place, "many")

    async def work(client: Client) -> tuple[Any, ...]:
        arguments = {"keys": [gate.key]}
        left = OWN_WORKING_MAX - _count_working(fleet)
        made = [await begin(client, "wait", arguments) for _ in range(left)]
        over = await client.call_tool("wait", arguments)
        await cancel_task(client.session, made[0].task_id)
        cancelled = await begin(client, "wait", arguments)
        gate.open()
        await until_ended(client, made[1].task_id)
        # Nobody polled the others; their goals are met, and they are in nobody's way.
        other = Gate(fleet, place, "more")
        freed = await begin(client, "wait", {"keys": [other.key]})
        other.open()
        return over, cancelled, freed, await get_task(client.session, made[2].task_id)

    over, cancelled, freed, unpolled = use_tasks(fleet, work)
    assert f"{OWN_WORKING_MAX} waits of this user have not ended" in refusal(over)
    assert "tasks/cancel" in over.structured_content["hint"]
    assert cancelled.status == freed.status == "working"
    assert content(unpolled)["code"] == 0


def _count_working(fleet: Fleet) -> int:
    path = fleet.home / "access" / "waits.db"
    if not path.exists():
        return 0
    query = "SELECT count(*) FROM waits WHERE state = 'working' AND expires_at_s > ?"
    with sqlite3.connect(path) as database:
        (found,) = database.execute(query, (time.time(),)).fetchone()
    return int(found)


def test_an_expired_handle_is_said_to_be_expired(fleet: Fleet) -> None:
    apply_sleeper(fleet)
    made = use_tasks(fleet, lambda it: begin(it, "wait", {"keys": ["job/asleep"]}))
    with sqlite3.connect(fleet.home / "access" / "waits.db") as database:
        database.execute("UPDATE waits SET expires_at_s = 1 WHERE state = 'working'")

    async def work(client: Client) -> tuple[MCPError, ...]:
        ids = (made.task_id, made.task_id[:-1], "")
        return tuple([await refused(get_task(client.session, it)) for it in ids])

    expired, unknown, empty = use_tasks(fleet, work)
    assert "has expired, 7 days after it began" in expired.message
    assert "no such task" in unknown.message
    assert {expired.code, unknown.code, empty.code} == {types.INVALID_PARAMS}


def test_a_stored_handle_opens_nothing(fleet: Fleet) -> None:
    apply_sleeper(fleet)
    made = use_tasks(fleet, lambda it: begin(it, "wait", {"keys": ["job/asleep"]}))
    path = fleet.home / "access" / "waits.db"
    assert path.stat().st_mode & 0o077 == 0
    for file in path.parent.glob("waits.db*"):
        assert made.task_id.encode() not in file.read_bytes()


class RawClient:
    """Requests as a program without the client sends them."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    def send(
        self,
        method: str,
        *,
        extensions: dict[str, Any] | None = None,
        header: str | None = None,
        **params: Any,
    ) -> httpx2.Response:
        """header: Mcp-Name; default: the name in the request."""
        own = params.get("name") or params.get("taskId") or ""
        about = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {
                "extensions": {EXTENSION: {}} if extensions is None else extensions
            },
        }
        headers = {
            "authorization": f"Bearer {self._token}",
            "mcp-protocol-version": VERSION,
            "mcp-method": method,
            "mcp-name": own if header is None else header,
        }
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": about}}
        return httpx2.post(self._url, json=body, headers=HEAD | headers, timeout=WAIT_S)

    def result(self, method: str, **params: Any) -> dict[str, Any]:
        answer = self.send(method, **params)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()["result"]
        return found

    def error(self, method: str, **params: Any) -> dict[str, Any]:
        answer = self.send(method, **params)
        assert answer.status_code == 400, answer.text
        found: dict[str, Any] = answer.json()["error"]
        return found


def test_a_task_over_http_as_the_specification_has_it(agents: AgentsFleet, place: Path) -> None:
    raw = RawClient(agents.url, agents.token("raw", "viewer", "--namespace", "team"))
    gate = Gate(agents, place, "wire", "-n", "team")
    assert EXTENSION in raw.result("server/discover")["capabilities"]["extensions"]
    called = {"name": "wait", "arguments": {"keys": [gate.key], "for": "finished"}}
    without = {**called, "arguments": {**called["arguments"], "timeoutSeconds": 0}}
    assert raw.result("tools/call", extensions={}, **without)["resultType"] == "complete"
    made = raw.result("tools/call", **called)
    assert made["resultType"] == "task"
    assert {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"} <= made.keys()
    named = {"taskId": made["taskId"]}
    polled = raw.result("tasks/get", **named)
    assert (polled["resultType"], polled["status"]) == ("complete", "working")
    assert "result" not in polled
    assert raw.error("tasks/get", **named, extensions={})["code"] == -32021
    assert raw.error("tasks/get", **named, header="another")["code"] == -32020
    assert raw.error("tasks/get", taskId="unknown")["code"] == -32602
    gate.open()
    wait_for_team(agents, gate.key)
    ended = raw.result("tasks/get", **named)
    assert ended["status"] == "completed"
    assert ended["result"]["resultType"] == "complete"
    assert ended["result"]["structuredContent"]["code"] == 0
    assert raw.result("tasks/cancel", **named)["resultType"] == "complete"
    assert raw.result("tasks/get", **named)["status"] == "completed"


def wait_for_team(fleet: Fleet, key: str) -> None:
    fleet.ok("wait", key, "-n", "team", "--for", "finished", "--timeout", f"{WAIT_S:g}s")


def test_a_task_belongs_to_the_token_that_began_it(agents: AgentsFleet, place: Path) -> None:
    """Neither another user nor another token of the same one sees or ends it."""
    mine = agents.token("ana", "editor", "--namespace", "team")
    others = [agents.token(user, "admin", "-A") for user in ("ana", "root")]
    gate = Gate(agents, place, "mine", "-n", "team")
    made = agents.use(
        lambda it: begin(it, "wait", {"keys": [gate.key]}), mine, extensions=[TasksExtension()]
    )

    async def pry(client: Client) -> list[MCPError]:
        tried = (get_task, cancel_task, update_task)
        return [await refused(it(client.session, made.task_id)) for it in tried]

    async def guess(client: Client) -> MCPError:
        return await refused(get_task(client.session, "x" * 43))

    for token in others:
        errors = agents.use(pry, token, extensions=[TasksExtension()])
        unknown = agents.use(guess, token, extensions=[TasksExtension()])
        assert {(it.code, it.message) for it in errors} == {(unknown.code, unknown.message)}
    gate.open()
    ended = agents.use(
        lambda it: until_ended(it, made.task_id), mine, extensions=[TasksExtension()]
    )
    assert content(ended)["code"] == 0
    agents.ok("token", "revoke", mine.split("_")[1])
    assert RawClient(agents.url, mine).send("tasks/get", taskId=made.task_id).status_code == 401


def test_a_server_that_was_started_again_knows_its_tasks(agents: AgentsFleet, place: Path) -> None:
    raw = RawClient(agents.url, agents.token("bea", "editor", "--namespace", "team"))
    gate = Gate(agents, place, "again", "-n", "team")
    called = {"name": "wait", "arguments": {"keys": [gate.key]}}
    kept, ended = (raw.result("tools/call", **called)["taskId"] for _ in range(2))
    raw.result("tasks/cancel", taskId=ended)
    agents.again()
    assert raw.result("tasks/get", taskId=kept)["status"] == "working"
    assert raw.result("tasks/get", taskId=ended)["status"] == "cancelled"
    gate.open()
    wait_for_team(agents, gate.key)
    # With other flags the objects are beyond this server, and it says so instead of an answer.
    agents.again("-n", "other")
    assert agents.send(raw._token).status_code == 403
    agents.again()
    assert raw.result("tasks/get", taskId=kept)["status"] == "completed"

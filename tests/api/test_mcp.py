"""The server for agents, with the official client over stdio: its tools are those of the API, and
no call goes beyond the limits that the agent was given."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.context import ClientRequestContext
from mcp.client.extension import ClientExtension

from tests.api.served import WAIT_S, job, until
from tests.docs.fleet import Fleet
from tests.servers.forked_program import make_program_directory

PRICED = {"kind": "Provider", "metadata": {"name": "local"}, "spec": {"prices": {"perHour": 36.0}}}
BOUND = {"python": "SUBMIT(x=1)", "timeoutSeconds": 90}  # and 10 s to end: one dollar at most
LONG = "import time; time.sleep(3000)"

Asked = Callable[[types.ElicitRequestFormParams], types.ElicitResult]
Work = Callable[[Client], Awaitable[Any]]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("mcp") / "home")
    yield made
    for namespace in ("default", "other", "agents"):
        if keys := made.ok("get", "all", "-n", namespace, "-o", "name").split():
            made.ok("delete", "-n", namespace, "--yes", *keys)
    made.close()


def use(
    fleet: Fleet,
    work: Work,
    *flags: str,
    answers: Asked | None = None,
    mode: str = "auto",
    extensions: Sequence[ClientExtension] = (),
) -> Any:
    """What a client gets that has the server started with these flags. answers: of the person."""
    program = make_program_directory("fleetctl.agents.mcp_server") / "fleetctl"
    server = StdioServerParameters(command=str(program), args=["mcp", *flags], env=fleet.env)

    async def elicit(
        _: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        assert answers is not None
        assert isinstance(params, types.ElicitRequestFormParams)
        return answers(params)

    async def run() -> Any:
        # The default of `errlog` is the stderr of the module's import, which pytest has closed.
        log = fleet.home.with_name("mcp.log")
        with anyio.fail_after(WAIT_S), log.open("a", encoding="utf-8") as errors:
            async with Client(
                stdio_client(server, errlog=errors),
                mode=mode,
                elicitation_callback=None if answers is None else elicit,
                extensions=extensions,
            ) as client:
                return await work(client)

    return anyio.run(run)


def call(
    fleet: Fleet,
    tool: str,
    arguments: dict[str, Any],
    *flags: str,
    **given: Any,
) -> types.CallToolResult:
    async def work(client: Client) -> types.CallToolResult:
        return await client.call_tool(tool, arguments)

    return use(fleet, work, *flags, **given)


def refusal(found: types.CallToolResult) -> str:
    """The text of a refusal, which is data too."""
    assert found.is_error, found
    assert found.structured_content is not None
    assert found.structured_content["code"] in (2, 3, 4)
    return "\n".join(found.structured_content["errors"])


def bounded(name: str, *, tasks: int = 1, **spec: Any) -> str:
    """A job of a dollar a task at most, where the machine has its price."""
    return job(name, tasks=tasks, template=BOUND, **spec)


def stored(fleet: Fleet, key: str) -> bool:
    return fleet.run("get", key).code == 0


def wait_for(fleet: Fleet, key: str) -> None:
    fleet.ok("wait", key, "--for", "succeeded", "--timeout", f"{WAIT_S:g}s")


def accepts(params: types.ElicitRequestFormParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"yes": True})


def declines(params: types.ElicitRequestFormParams) -> types.ElicitResult:
    return types.ElicitResult(action="decline")


def volume(fleet: Fleet, name: str) -> None:
    """A volume whose data goes with it."""
    spec = {"provider": "local", "deletionPolicy": "Delete"}
    text = json.dumps({"kind": "Volume", "metadata": {"name": name}, "spec": spec})
    fleet.ok("apply", "-f", "-", stdin=text)


def test_each_tool_is_an_operation_of_the_openapi_document(fleet: Fleet) -> None:
    from fleetctl.agents.tools import AGENT_TOOLS, LEFT_OUT, STREAMS
    from fleetctl.server.app import ROUTES
    from fleetctl.server.route_table import build_openapi

    async def work(client: Client) -> types.ListToolsResult:
        return await client.list_tools()

    listed = {it.name: it for it in use(fleet, work).tools}
    paths = build_openapi(ROUTES)["paths"]
    operations = {it["operationId"]: it for each in paths.values() for it in each.values()}
    assert list(listed) == [row.name for row in AGENT_TOOLS]
    for row in AGENT_TOOLS:
        operation = operations[row.operation]
        tool = listed[row.name]
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        in_body = dict(body.get("schema", {}).get("properties", {}))
        in_query = {
            it["name"]
            for it in operation["parameters"]
            if it["in"] == "path" or it["name"] not in STREAMS
        }
        assert set(tool.input_schema["properties"]) == (in_query | set(in_body)) - LEFT_OUT
        for name, schema in in_body.items():
            assert tool.input_schema["properties"].get(name, schema) == schema
        assert tool.description == operation["summary"]
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint == (operation["x-role"] == "viewer")
    changing = {name for name, it in listed.items() if not it.annotations.read_only_hint}
    assert changing == {"apply", "suspend", "resume", "retry", "delete"}
    assert {name for name, it in listed.items() if it.annotations.destructive_hint} == {
        "apply", "suspend", "retry", "delete",
    }  # fmt: skip


def test_an_agent_plans_applies_and_reads_results(fleet: Fleet) -> None:
    async def work(client: Client) -> list[types.CallToolResult]:
        text = job("round", "print('hello agent'); SUBMIT(y=a + 1)", tasks=3)
        made = [await client.call_tool("plan", {"manifest": text})]
        assert not stored(fleet, "job/round")
        made.append(await client.call_tool("apply", {"manifest": text}))
        await anyio.to_thread.run_sync(wait_for, fleet, "job/round")
        named = {"plural": "batchjobs", "name": "round"}
        made.append(await client.call_tool("results", named))
        made.append(await client.call_tool("logs", {**named, "index": 2}))
        made.append(await client.call_tool("get", {"plural": "batchjobs", "phase": "Succeeded"}))
        made.append(await client.call_tool("describe", named))
        return made

    plan, applied, results, logs, listed, described = use(fleet, work)
    assert not any(it.is_error for it in (plan, applied, results, logs, listed, described))
    assert plan.structured_content["plan"]["objects"][0]["action"] == "create"
    assert applied.structured_content["results"][0]["key"] == "batchjob/round"
    assert [it["result"]["y"] for it in results.structured_content["items"]] == [1, 2, 3]
    assert "hello agent" in logs.structured_content["text"]
    assert [it["metadata"]["name"] for it in listed.structured_content["items"]] == ["round"]
    assert described.structured_content["status"]["phase"] == "Succeeded"
    acts = [it for it in fleet.json("audit", "-A") if it["action"] == "apply"]
    assert {it["token"] for it in acts} == {"mcp"}
    (user,) = {it["user"] for it in acts}
    assert user.endswith(" via mcp")
    assert f"created by {user}" in fleet.ok("events", "job/round")


def test_findings_of_a_manifest_come_as_data(fleet: Fleet) -> None:
    wrong = job("wrong", paralelism=3, template={"python": "1", "timeoutSeconds": -1})
    found = call(fleet, "apply", {"manifest": wrong})
    text = refusal(found)
    assert "paralelism" in text
    assert "timeoutSeconds" in text
    assert found.structured_content["code"] == 2
    assert not stored(fleet, "job/wrong")


@pytest.mark.parametrize("name", ["yes", "override", "namespace", "env", "takeOver"])
def test_consent_and_secrets_are_no_arguments(fleet: Fleet, name: str) -> None:
    volume(fleet, "kept")
    value = {"A": "b"} if name == "env" else True
    for tool, given in (
        ("delete", {"keys": ["volume/kept"]}),
        ("apply", {"manifest": job("beyond")}),
    ):
        assert f"'{name}' was unexpected" in refusal(call(fleet, tool, {**given, name: value}))
    assert stored(fleet, "volume/kept")
    assert not stored(fleet, "job/beyond")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_loss_waits_for_the_person(fleet: Fleet, mode: str) -> None:
    name = f"asked-{mode}"
    volume(fleet, name)
    shown = []

    def look_and_decline(params: types.ElicitRequestFormParams) -> types.ElicitResult:
        shown.append(params.message)
        return declines(params)

    arguments = {"keys": [f"volume/{name}"]}
    found = call(fleet, "delete", arguments, mode=mode, answers=look_and_decline)
    assert "deleting it deletes its data" in refusal(found)
    assert found.structured_content["needsConsent"] is True
    assert len(shown) == 1
    assert f"volume/{name}: deleting it deletes its data" in shown[0]
    assert stored(fleet, f"volume/{name}")
    unticked = types.ElicitResult(action="accept", content={"yes": False})
    refusal(call(fleet, "delete", arguments, mode=mode, answers=lambda _: unticked))
    assert stored(fleet, f"volume/{name}")
    done = call(fleet, "delete", arguments, mode=mode, answers=accepts)
    assert not done.is_error, done
    until(lambda: not stored(fleet, f"volume/{name}"), "its end")


def test_a_client_that_cannot_ask_gets_the_refusal(fleet: Fleet) -> None:
    volume(fleet, "unasked")
    found = call(fleet, "delete", {"keys": ["volume/unasked"]})
    assert "deleting it deletes its data" in refusal(found)
    assert "only a person" in found.structured_content["hint"]
    assert stored(fleet, "volume/unasked")


def test_an_answer_that_nobody_asked_for_is_no_consent(fleet: Fleet) -> None:
    volume(fleet, "forged")
    answer = types.ElicitResult(action="accept", content={"yes": True})

    async def work(client: Client) -> tuple[Any, Any]:
        arguments = {"keys": ["volume/forged"]}
        first = await client.session.call_tool(
            "delete", arguments, input_responses={"consent": answer}, allow_input_required=True
        )
        other = {"keys": ["volume/forged", "volume/none"]}
        with pytest.raises(Exception, match="requestState"):
            await client.session.call_tool(
                "delete",
                other,
                input_responses={"consent": answer},
                request_state=first.request_state,
                allow_input_required=True,
            )
        return first, stored(fleet, "volume/forged")

    first, left = use(fleet, work, answers=declines)
    assert isinstance(first, types.InputRequiredResult)
    assert left


def _has_begun(fleet: Fleet) -> bool:
    found = fleet.status("job/live")
    return bool(found.get("active") == 1 and not found.get("starting"))


def test_work_that_runs_is_replaced_after_consent_alone(fleet: Fleet) -> None:
    fleet.ok("apply", "-f", "-", stdin=job("live", LONG))
    until(lambda: _has_begun(fleet), "its task")
    changed = {"manifest": job("live", LONG + "  # changed")}
    found = call(fleet, "apply", changed, answers=declines)
    assert "running task" in refusal(found)
    assert fleet.json("get", "job/live")["metadata"]["generation"] == 1
    assert not call(fleet, "apply", changed, answers=accepts).is_error
    assert fleet.json("get", "job/live")["metadata"]["generation"] == 2
    fleet.ok("delete", "job/live")


def test_read_only_changes_nothing(fleet: Fleet) -> None:
    volume(fleet, "looked-at")

    async def work(client: Client) -> tuple[Any, ...]:
        names = [it.name for it in (await client.list_tools()).tools]
        plan = await client.call_tool("plan", {"manifest": job("looked")})
        tried = [
            await client.call_tool("apply", {"manifest": job("looked")}),
            await client.call_tool("delete", {"keys": ["volume/looked-at"]}),
        ]
        return names, plan, tried

    names, plan, tried = use(fleet, work, "--read-only", answers=accepts)
    assert not {"apply", "delete", "suspend", "resume", "retry"} & set(names)
    assert not plan.is_error
    assert all("--read-only" in refusal(it) for it in tried)
    assert not stored(fleet, "job/looked")
    assert stored(fleet, "volume/looked-at")


def test_an_agent_stays_in_its_namespace(fleet: Fleet) -> None:
    fleet.ok("apply", "-f", "-", stdin=job("theirs", namespace="other"))
    provider = json.dumps({"kind": "Provider", "metadata": {"name": "local"}, "spec": {}})

    async def work(client: Client) -> list[types.CallToolResult]:
        named = {"plural": "batchjobs", "name": "theirs"}
        return [
            await client.call_tool("delete", {"keys": ["batchjob/theirs -n other"]}),
            await client.call_tool("suspend", {"keys": ["batchjob/theirs -n other"]}),
            await client.call_tool("apply", {"manifest": job("mine", namespace="other")}),
            await client.call_tool("apply", {"manifest": provider}),
            await client.call_tool("delete", {"keys": ["provider/local"]}),
            await client.call_tool("describe", named),
        ]

    for found in use(fleet, work, "-n", "agents", answers=accepts):
        refusal(found)
    assert fleet.json("get", "job/theirs", "-n", "other")["metadata"]["generation"] == 1
    assert fleet.run("get", "job/mine", "-n", "other").code == 4
    made = call(fleet, "apply", {"manifest": job("inside")}, "-n", "agents")
    assert not made.is_error, made
    assert fleet.run("get", "job/inside", "-n", "agents").code == 0


def test_an_agent_does_not_lift_its_budget(fleet: Fleet) -> None:
    budget = {"kind": "Budget", "metadata": {"name": "agents"}, "spec": {"maxCost": 1.0}}
    fleet.ok("apply", "-f", "-", stdin=json.dumps(budget))
    more = json.dumps({**budget, "spec": {"maxCost": 1000.0}})
    assert "a person's to change" in refusal(call(fleet, "apply", {"manifest": more}))
    assert "a person's to change" in refusal(call(fleet, "delete", {"keys": ["budget/agents"]}))
    assert fleet.json("get", "budget/agents")["spec"]["maxCost"] == 1.0
    fleet.ok("delete", "budget/agents")


def test_an_agent_reads_no_file_of_the_machine(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("canary")
    manifest = json.loads(job("thief"))
    manifest["spec"]["tasks"] = {"fromFile": str(tmp_path / "secret.txt")}
    found = call(fleet, "plan", {"manifest": json.dumps(manifest)})
    assert "canary" not in refusal(found)


def test_calls_beyond_the_sum_are_refused(fleet: Fleet) -> None:
    fleet.ok("apply", "-f", "-", stdin=json.dumps(PRICED))
    fleet.ok("apply", "-f", "-", stdin=bounded("past"))
    wait_for(fleet, "job/past")  # its few milliseconds bound nothing

    async def work(client: Client) -> list[types.CallToolResult]:
        return [
            await client.call_tool("apply", {"manifest": text})
            for text in (
                bounded("big", tasks=4),
                job("unbounded"),
                bounded("first", tasks=2),
                bounded("second", tasks=2),
                bounded("third"),
            )
        ]

    big, unbounded, first, second, third = use(fleet, work, "--max-cost", "3")
    assert "may cost $4.00, and $3.00 of --max-cost 3 is left" in refusal(big)
    assert "nothing bounds what this may cost" in refusal(unbounded)
    assert not first.is_error, first
    assert "may cost $2.00, and $1.00" in refusal(second)
    assert not third.is_error, third
    known = {name for name in ("big", "unbounded", "first", "second", "third")
             if stored(fleet, f"job/{name}")}  # fmt: skip
    assert known == {"first", "third"}


def test_old_work_costs_when_it_is_taken_up_again(fleet: Fleet) -> None:
    fleet.ok("apply", "-f", "-", stdin=json.dumps(PRICED))
    fleet.ok("apply", "-f", "-", stdin=bounded("asleep", tasks=5, suspend=True))
    nightly = {"kind": "BatchJob", "spec": json.loads(bounded("x"))["spec"]}
    schedule = json.dumps(
        {
            "kind": "Schedule",
            "metadata": {"name": "nightly"},
            "spec": {"schedule": "0 0 1 1 *", "template": nightly},
        }
    )

    async def work(client: Client) -> list[types.CallToolResult]:
        return [
            await client.call_tool("resume", {"keys": ["batchjob/asleep"]}),
            await client.call_tool("retry", {"keys": ["batchjob/asleep"], "which": "all"}),
            await client.call_tool(
                "apply", {"manifest": bounded("asleep", tasks=5, suspend=False)}
            ),
            await client.call_tool("apply", {"manifest": schedule}),
        ]

    resumed, retried, applied, scheduled = use(fleet, work, "--max-cost", "3", answers=accepts)
    assert "may cost $5.00" in refusal(resumed)
    assert "may cost $5.00" in refusal(retried)
    assert "may cost $5.00" in refusal(applied)
    assert "without an end" in refusal(scheduled)
    assert fleet.json("get", "job/asleep")["spec"]["suspend"] is True
    assert not stored(fleet, "schedule/nightly")
    enough = call(fleet, "resume", {"keys": ["batchjob/asleep"]}, "--max-cost", "5")
    assert not enough.is_error, enough

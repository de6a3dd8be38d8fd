"""What a task may ask of the gateway, and what it hears."""

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.common.tokens import gateway_token
from tests.emulators.llm.server import Fault, Model
from tests.unit.gateway.hosted import hosting
from tests.unit.gateway.test_process import LIFE_S, in_loop


@in_loop
async def test_a_task_asks_by_its_token_and_its_usage_is_told(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        assert (await gateway.ask("r1", "one two")).status == 200
        assert (await gateway.ask("stranger")).status == 401
        row = (await gateway.used())["r1"]
        assert [a["model"] for a in model.asked] == ["tiny"]
        assert (row["calls"], row["tries"], row["unpriced"], row["usd"]) == (1, 1, 1, 0)
        assert row["tokens_in"] + row["tokens_out"] == model.tokens
        assert row["reserved_usd"] == 0


@in_loop
async def test_a_call_over_the_limit_is_refused_and_not_worth_a_retry(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], limits={"callsPerTask": 3})
        replies = [await gateway.ask("r1") for _ in range(5)]
        assert [r.status for r in replies] == [200, 200, 200, 429, 429]
        assert replies[-1].headers["x-should-retry"] == "false"
        assert len(model.asked) == 3


@in_loop
async def test_pages_and_foreign_hosts_and_long_bodies_are_refused(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        assert (await gateway.ask("r1", headers={"Origin": "http://x"})).status == 403
        assert (await gateway.ask("r1", headers={"Host": "evil.example"})).status == 403
        assert (await gateway.ask("r1", "x" * (16 * 2**20))).status == 413
        assert model.asked == []


@in_loop
async def test_a_busy_server_is_asked_again_and_each_try_counts(tmp_path: Path) -> None:
    model = Model(faults=deque([Fault(503), Fault(429)]))
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], retry={"backoff": {"initialSeconds": 0.01}})
        assert (await gateway.ask("r1")).status == 200
        row = (await gateway.used())["r1"]
        assert (row["calls"], row["tries"], len(model.asked)) == (1, 3, 3)
        model.faults.append(Fault(429, retry_after="7"))
        await gateway.declare([model], retry={"attempts": 1})
        reply = await gateway.ask("r1")
        # The server's word, which a client may follow: not ours.
        assert (reply.status, reply.headers["Retry-After"]) == (429, "7")
        assert "x-should-retry" not in reply.headers


@in_loop
async def test_no_prompt_key_or_token_is_in_any_file(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        await gateway.ask("r1", "canary-prompt")
        token = gateway_token(gateway.key, "r1").encode()
        for name in os.listdir(tmp_path):
            if (tmp_path / name).is_file():
                text = (tmp_path / name).read_bytes()
                assert b"canary-prompt" not in text and token not in text


@in_loop
async def test_limits_count_over_a_tree_of_runs_and_are_told_before_a_batch(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], limits={"callsPerTask": 3})
        await gateway.grant("r1", "r2", tree="r1")
        assert (await gateway.ask("r1")).status == 200
        limits = await gateway.get("r2", "/limits?model=chat")
        assert limits == {
            "endpoint": "small",
            "price": None,
            "calls_used": 1,
            "calls_allowed": 3,
            "concurrency": 4,
        }
        assert [(await gateway.ask("r2")).status for _ in range(3)] == [200, 200, 429]
        reply = await gateway.post("r2", "/fallbacks", {"endpoint": "small", "count": 2})
        assert reply == {"calls": 2, "fallbacks": 2}
        reply = await gateway.post("r2", "/fallbacks", {"count": 1001})
        assert reply["error"]["code"] == "BadRequest"
        assert (await gateway.used())["r2"]["fallbacks"] == 2


@in_loop
async def test_usage_is_told_when_it_changes_and_only_what_changed(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        await gateway.ask("r1")
        first = await gateway.usage(0)
        waiting = asyncio.create_task(gateway.usage(first["seq"], wait_s=10.0))
        await gateway.grant("r1", "r2")
        await gateway.ask("r2")
        told = await waiting
        assert [row["run"] for row in told["rows"]] == ["r2"]
        if told["rows"][0]["answer_ms_p50"] is None:  # its call was still under way
            told = await gateway.usage(told["seq"], wait_s=10.0)
        assert (told["rows"][0]["uid"], told["rows"][0]["answer_ms_p50"] is None) == ("uid", False)
        assert [r["run"] for r in (await gateway.usage(10**9))["rows"]] == ["r1", "r2"]


@in_loop
async def test_one_that_began_anew_refuses_nobody_before_it_knows_the_endpoints(
    tmp_path: Path,
) -> None:
    async with hosting(tmp_path, model := Model()) as gateway:
        await gateway.stop()
        await gateway.start()
        await gateway.grant("r1")  # a start may be quicker than the word of what is served
        asking = asyncio.create_task(gateway.ask("r1"))
        for _ in range(3):
            await (await gateway.control.get("/ping")).read()
        await gateway.declare([model])
        assert (await asking).status == 200


@in_loop
async def test_before_it_knows_who_may_call_a_task_waits(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        gateway.state.granted.clear()
        gateway.state.grants.clear()
        early = asyncio.create_task(gateway.ask("r1"))
        while not gateway.state.granted._waiters:
            await asyncio.sleep(0)
        await gateway.grant("r1")
        assert (await early).status == 200


@in_loop
async def test_a_changed_endpoint_keeps_who_waits_and_what_is_in_flight(tmp_path: Path) -> None:
    first, second = Model(slots=1, held=asyncio.Event()), Model(slots=1)
    async with hosting(tmp_path, first, second) as gateway:
        await gateway.declare([first])
        streaming = asyncio.create_task(gateway.ask("r1", stream=True))
        await until(lambda: first.asked)
        waiting = [asyncio.create_task(gateway.ask("r1", f"p {n}")) for n in range(4)]
        await until(lambda: len(gateway.endpoint.waiting) == 4)
        await gateway.declare([first, second], timeoutSeconds=599)
        assert [(await it).status for it in waiting] == [200] * 4
        assert (len(first.asked), len(second.asked)) == (1, 4)
        assert [server.in_flight for server in gateway.endpoint.servers] == [1, 0]
        assert first.held is not None
        first.held.set()
        assert (await streaming).status == 200


@in_loop
async def test_an_endpoint_that_is_gone_lets_nobody_wait(tmp_path: Path) -> None:
    model = Model(slots=1, held=asyncio.Event())
    async with hosting(tmp_path, model) as gateway:
        streaming = asyncio.create_task(gateway.ask("r1", stream=True))
        await until(lambda: model.asked)
        waiting = asyncio.create_task(gateway.ask("r1"))
        await until(lambda: gateway.endpoint.waiting)
        await gateway.control.put("/endpoints", json={"endpoints": []})
        assert (await waiting).code == "EndpointUnknown"
        assert model.held is not None
        model.held.set()
        assert (await streaming).status == 200


@in_loop
async def test_a_server_that_has_rested_is_looked_at_before_anybody_is_sent(
    tmp_path: Path,
) -> None:
    model = Model(slots=8)
    async with hosting(tmp_path, model) as gateway:
        server = gateway.endpoint.servers[0]
        await model.stop()
        server.refused(time.monotonic())
        asking = [asyncio.create_task(gateway.ask("r1", f"p {n}")) for n in range(8)]
        await until(lambda: len(gateway.endpoint.waiting) == 8)
        server.resting_until_s = time.monotonic()
        await until(lambda: server.rest_s == 10.0)  # a look has found nobody
        assert len(gateway.endpoint.waiting) == 8
        await model.start()
        server.resting_until_s = time.monotonic()
        assert [(await it).status for it in asking] == [200] * 8
        assert (await gateway.used())["r1"]["tries"] == len(model.asked) == 8


@in_loop
async def test_prompts_that_a_server_cannot_answer_take_it_from_nobody(tmp_path: Path) -> None:
    model = Model(slots=8, poison="poison")
    async with hosting(tmp_path, model) as gateway:
        await gateway.grant("r1", "r2")
        bad = [asyncio.create_task(gateway.ask("r1", f"poison {n}")) for n in range(5)]
        assert [(await it).status for it in bad] == [500] * 5
        began_s = time.monotonic()
        healthy = await asyncio.gather(*(gateway.ask("r2", f"p {n}") for n in range(8)))
        assert [it.status for it in healthy] == [200] * 8
        server = gateway.endpoint.servers[0]
        assert not server.resting and time.monotonic() - began_s < 5.0


@in_loop
async def test_a_server_that_answers_nobody_rests_where_another_answers(tmp_path: Path) -> None:
    broken, well = Model(slots=8, poison="p"), Model(slots=8)
    async with hosting(tmp_path, broken, well) as gateway:
        replies = [await gateway.ask("r1", f"p {n}") for n in range(20)]
        assert [it.status for it in replies] == [200] * 20
        assert [it.resting for it in gateway.endpoint.servers] == [True, False]
        assert len(broken.asked) <= 3


@in_loop
async def test_servers_that_rest_too_long_are_told_as_unreachable(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], timeoutSeconds=0.1)
        gateway.endpoint.servers[0].refused(time.monotonic())
        reply = await gateway.ask("r1")
        assert (reply.status, reply.code) == (503, "ServerUnreachable")
        assert await gateway.used() == {}


NO_ANSWERS = {
    "error": (503, "upstream overloaded"),
    "page": (500, "the server answered with a page `Sign in`, not with JSON"),
    "no-choices": (500, "the server answered without any choice"),
    "wrong-json": (500, "the server's answer is not whole JSON"),
}


@pytest.mark.parametrize("what", sorted(NO_ANSWERS))
def test_what_is_no_answer_is_tried_again_as_the_failure_that_it_is(
    tmp_path: Path, what: str
) -> None:
    async def test() -> None:
        model = Model()
        status, words = NO_ANSWERS[what]
        async with hosting(tmp_path, model) as gateway:
            await gateway.declare(
                [model], retry={"attempts": 2, "backoff": {"initialSeconds": 0.01}}
            )
            model.faults.append(Fault(what))
            assert (await gateway.ask("r1")).status == 200
            model.faults.extend([Fault(what)] * 2)
            reply = await gateway.ask("r1")
            assert reply.status == status
            assert json.loads(reply.raw)["error"]["message"] == words
            assert len(model.asked) == 4

    asyncio.run(test())


@pytest.mark.parametrize("what", ["error", "page", "error-event"])
def test_a_stream_that_begins_with_an_error_has_not_begun(tmp_path: Path, what: str) -> None:
    async def test() -> None:
        model = Model(faults=deque([Fault(what)]))
        async with hosting(tmp_path, model) as gateway:
            reply = await gateway.ask("r1", stream=True)
            assert (reply.status, len(model.asked)) == (200, 2)
            assert b"echo:" in reply.raw and b"error" not in reply.raw

    asyncio.run(test())


@pytest.mark.parametrize("callers", [1, 2])
def test_prompts_that_take_too_long_leave_a_declared_server_its_slots(
    tmp_path: Path, callers: int
) -> None:
    async def test() -> None:
        model = Model(slots=16)
        async with hosting(tmp_path, model) as gateway:
            await gateway.declare([model], timeoutSeconds=1, retry={"attempts": 2})
            await gateway.grant("r1", "r2")
            model.faults.extend([Fault("hang")] * 8)
            runs = [f"r{n % callers + 1}" for n in range(4)]
            replies = await asyncio.gather(*(gateway.ask(run) for run in runs))
            assert [it.status for it in replies] == [504] * 4
            assert gateway.endpoint.servers[0].pace.limit == 16

    asyncio.run(test())


@in_loop
async def test_headers_go_both_ways_but_for_keys_and_accounts(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        for stream in (False, True):
            sent = {
                "X-Title": "mine",
                "OpenAI-Beta": "v2",
                "OpenAI-Organization": "o",
                "Cookie": "c",
            }
            reply = await gateway.ask("r1", headers=sent, stream=stream)
            assert reply.headers["x-request-id"] == f"req-{len(model.asked)}"
            assert reply.headers["x-ratelimit-remaining-requests"] == "7"
            head = model.heads[-1]
            assert (head["x-title"], head["openai-beta"]) == ("mine", "v2")
            assert not head.keys() & {"openai-organization", "cookie", "authorization"}


@in_loop
async def test_what_is_kept_is_not_given_to_a_call_with_another_header(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([model], cache={"policy": "Always"})
        for headers in ({}, {"X-Request-Id": "1"}, {"OpenAI-Beta": "v2"}, {"OpenAI-Beta": "v2"}):
            assert (await gateway.ask("r1", headers=headers)).status == 200
        assert len(model.asked) == 2


@pytest.mark.parametrize(
    "base", ["/v1beta/openai", "/api/paas/v4", "/api/v3", "/serving-endpoints"]
)
def test_a_url_with_a_path_is_what_clients_add_theirs_to(tmp_path: Path, base: str) -> None:
    async def test() -> None:
        model = Model(base=base, key="secret", key_header="api-key", query={"api-version": "1"})
        async with hosting(tmp_path, model) as gateway:
            spec = {
                "servers": [{"url": f"{model.url}{base}/"}],
                "models": {"chat": "tiny"},
                "apiKey": {"secret": "s", "header": "api-key"},
                "headers": {"X-Title": "ours"},
                "query": {"api-version": "1"},
            }
            row = {"name": "small", "namespace": "default", "generation": 1, "spec": spec}
            rows = [{**row, "key": "secret"}]
            await (await gateway.control.put("/endpoints", json={"endpoints": rows})).read()
            health = (await (await gateway.control.get("/health")).json())["endpoints"][0]
            assert (health["ready"], health["reason"]) == (True, "Ready")
            assert (await gateway.ask("r1", headers={"X-Title": "task"})).status == 200
            assert model.heads[-1]["x-title"] == "ours"
            assert await gateway.endpoint._ask(gateway.endpoint, gateway.endpoint.servers[0])

    asyncio.run(test())


@in_loop
async def test_a_server_that_lists_nothing_is_asked_and_its_answer_is_told(tmp_path: Path) -> None:
    model = Model(base="/api/v3")
    async with hosting(tmp_path, model) as gateway:
        await gateway.declare([], servers=[{"url": f"{model.url}/wrong"}])
        row = (await (await gateway.control.get("/health")).json())["endpoints"][0]
        assert (row["ready"], row["reason"]) == (True, "ModelNotListed")
        assert row["message"].startswith(f"{model.url}/wrong/models answers 404")
        assert "`/chat/completions`" in row["hint"]


@in_loop
async def test_paths_of_ollama_go_to_its_servers_alone(tmp_path: Path) -> None:
    plain, llama = Model(), Model()
    async with hosting(tmp_path, plain, llama) as gateway:
        await gateway.declare([plain])
        reply = await gateway.post("r1", "/api/chat", {"model": "chat", "messages": []})
        assert reply["error"]["code"] == "NotServed"
        rows = [{"url": plain.url, "slots": 4}, {"url": llama.url, "api": "ollama"}]
        await gateway.declare([], servers=rows)
        body = {"model": "chat", "prompt": "x", "stream": False}
        for _ in range(3):
            assert (await gateway.post("r1", "/api/generate", body))["response"] == "echo: x"
        assert (len(plain.asked), len(llama.asked)) == (0, 3)


@in_loop
async def test_a_server_with_one_slot_is_told_with_the_setting_to_raise(tmp_path: Path) -> None:
    model = Model()
    async with hosting(tmp_path, model) as gateway:
        burst = gateway.endpoint.servers[0].burst
        for n in range(8):
            burst.begin(n, 0.0)
        for n in range(8):
            burst.end(n, 0.1 * (n + 1), answered=True, idle=n == 7)
        row = (await (await gateway.control.get("/health?max_age=60")).json())["endpoints"][0]
        assert (row["ready"], row["reason"]) == (True, "OneSlot")
        assert "though 8 were asked at once" in row["message"]
        assert "--parallel 4" in row["hint"] and "OLLAMA_NUM_PARALLEL=4" in row["hint"]


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(LIFE_S):
        while not true():
            await asyncio.sleep(0.001)

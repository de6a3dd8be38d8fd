"""Functions with a port: what an apply refuses of them, and of endpoints that name them."""

from __future__ import annotations

from pathlib import Path

from tests.unit.engine.test_engine_api import served
from tests.unit.engine.test_engine_predictions import HEAD, job, refused

ENDPOINT = HEAD.format(kind="Endpoint", name="small") + "spec: {servers: [{function: vllm}]}\n"


def function(spec: str) -> str:
    return HEAD.format(kind="Function", name="vllm") + f"spec: {spec}\n"


SERVES = function("{port: 8000, command: [vllm, serve]}")


async def test_an_endpoint_of_a_function_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await refused(api, ENDPOINT)
        assert "spec.servers[0].function is `vllm`, and there is no Function of that name" in reply


async def test_an_endpoint_of_a_function_without_a_port_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await refused(api, function("{}") + "---\n" + ENDPOINT)
        assert "spec.servers[0].function is `vllm`, which has no `port`" in reply
        assert "hint: give it `port` and `command`" in reply


async def test_a_provider_that_runs_no_servers_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await refused(api, SERVES)
        assert "which runs no Function with a `port`" in reply
        assert "`template.services`" in reply and "`url`" in reply


async def test_a_task_cannot_call_what_serves(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        calls = job("{python: x, function: vllm}")
        reply = await refused(api, f"{SERVES}---\n{calls}")
        assert "spec.template.function is `vllm`, which has a `port`: it runs no task" in reply


async def test_what_only_a_server_has_needs_a_port(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        reply = await refused(api, function("{ready: {http: /health}}"))
        assert "`ready` is of a server, and goes with `port`" in reply
        reply = await refused(api, function("{port: 8000}"))
        assert "`port` needs the `command` of the server" in reply

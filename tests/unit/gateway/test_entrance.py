"""A connection to the tasks' port without a request is closed soon, and delays no other."""

import asyncio
from pathlib import Path

import pytest

from fleetctl.gateway.data import entrance, task_api
from tests.emulators.llm.server import Fault, Model
from tests.unit.gateway.hosted import hosting
from tests.unit.gateway.test_process import Gateway, in_loop, living


async def connect(gateway: Gateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))


@in_loop
async def test_a_thousand_silent_connections_take_a_task_nothing(tmp_path: Path) -> None:
    async with living(tmp_path, Model()) as gateway:
        silent = [await connect(gateway) for _ in range(1000)]
        assert (await gateway.ask("r1")).status == 200
        for reader, _ in silent:
            assert await reader.read() == b""  # after ten seconds
        for _, writer in silent:
            writer.close()


@in_loop
async def test_who_sends_no_head_is_closed_and_who_has_no_token_as_well(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entrance, "HEAD_S", 0.1)
        async with hosting(tmp_path, Model()) as gateway:
            reader, writer = await connect(gateway)
            writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            assert await reader.read() == b""
            writer.close()
            patch.setattr(entrance, "HEAD_S", 600.0)
            reader, writer = await connect(gateway)
            writer.write(b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 401") and b"connection: close" in head.lower()
            writer.close()
            assert (await gateway.ask("r1")).status == 200


@in_loop
async def test_one_task_has_so_many_calls_at_once_and_others_go_on(tmp_path: Path) -> None:
    model = Model(slots=8)
    model.faults.append(Fault("hang"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_api, "CALLS_MAX", 1)
        async with hosting(tmp_path, model) as gateway:
            await gateway.grant("r1", "r2")
            hanging = asyncio.ensure_future(gateway.ask("r1"))
            while not model.asked:
                await asyncio.sleep(0.01)
            assert (await gateway.ask("r1")).status == 429
            assert (await gateway.ask("r2")).status == 200
            hanging.cancel()

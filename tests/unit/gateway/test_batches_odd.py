"""Batches at servers that answer oddly, late, or not at all: no row is lost, none is paid twice."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import deque
from pathlib import Path

import pytest
from aiohttp import web

from fleetctl.gateway import __main__ as program
from fleetctl.gateway import call_ledger
from fleetctl.gateway.batching import batcher, running_batch
from fleetctl.gateway.data import task_api
from tests.emulators.llm.batches import Batches
from tests.emulators.llm.server import Model
from tests.unit.gateway import test_batches
from tests.unit.gateway.hosted import hosting, no_room_for_the_ledger
from tests.unit.gateway.test_batches import PRICED, asking, echoes, ready, spent, told
from tests.unit.gateway.test_gateway_asking import until
from tests.unit.gateway.test_process import in_loop

_quick = test_batches._quick


@in_loop
async def test_half_a_character_is_a_text_like_others(tmp_path: Path) -> None:
    """As of an answer that was cut amid one, which JSON can say and UTF-8 cannot."""
    truth = Batches()
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 2) as rows:
        tasks = [*rows.all(1), asyncio.create_task(rows.ask(1, text="half \ud83d"))]
        assert await told(tasks) == ["echo: row 0", "echo: half \ud83d"]
        assert await spent(rows.gateway) == (truth.tokens / 2, 0)


@in_loop
async def test_half_a_character_that_no_server_counted_is_counted(tmp_path: Path) -> None:
    model = Model(usage=False)
    async with hosting(tmp_path, model) as gateway:
        reply = await gateway.ask("r1", "half \ud83d")
        assert reply.status == 200
        assert (await gateway.used())["r1"]["tokens_out"] > 0


@in_loop
async def test_a_batch_that_is_over_before_it_is_cancelled_is_charged(tmp_path: Path) -> None:
    truth = Batches(held=True)

    def odd(method: str, parts: list[str]) -> web.Response | None:
        if parts[-1] != "cancel":
            return None
        truth.held = False  # it has ended meanwhile
        return web.json_response({"error": {"message": "it is completed"}}, status=409)

    truth.odd = odd
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 2) as rows:
        tasks = rows.all(2)
        await until(lambda: bool(truth.made) and truth.made[0].status == "in_progress")
        await rows.gateway.grant("other")
        await until(lambda: not rows.gateway.state.batches)
        assert await told(tasks) == [502, 502]  # nobody hears it
        assert await spent(rows.gateway) == (truth.tokens / 2, 0) and truth.tokens > 0


@in_loop
async def test_a_batch_that_is_not_shown_for_a_while_is_not_lost(tmp_path: Path) -> None:
    truth = Batches(missing=6)
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 2) as rows:
        assert await told(rows.all(2)) == echoes(2)
        assert await spent(rows.gateway) == (truth.tokens / 2, 0)


def test_a_batch_that_is_never_shown_again_may_have_cost_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_batch, "GONE_S", 0.05)

    async def test() -> None:
        truth = Batches(missing=10**6)
        model = Model(batches=truth)
        async with asking(hosting(tmp_path, model), model, 2) as rows:
            assert await told(rows.all(2)) == [502, 502]
            usd, held = await spent(rows.gateway)
            assert usd > 0 and held == 0 and not rows.gateway.state.batches

    asyncio.run(test())


def test_a_controller_that_is_late_after_a_restart_ends_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_api, "GRANTS_WAIT_S", 0.05)

    async def test() -> None:
        truth = Batches(held=True)
        model = Model(batches=truth)
        async with asking(hosting(tmp_path, model), model, 2) as rows:
            first = rows.all(2)
            await until(lambda: bool(truth.made) and truth.made[0].status == "in_progress")
            await rows.gateway.stop()
            await asyncio.gather(*first, return_exceptions=True)
            await rows.gateway.start()
            assert await told(rows.all(2)) == [401, 401]  # nobody has said who may call
            assert not rows.gateway.state.granted.is_set()
            looks = truth.looks
            await ready(rows.gateway, model, 2)
            await until(lambda: truth.looks > looks + 1)
            assert truth.cancels == []
            truth.held = False
            assert await told(rows.all(2)) == echoes(2) and len(truth.made) == 1

    asyncio.run(test())


@pytest.mark.parametrize("status", [200, 400, 401, 404])
def test_one_odd_answer_to_each_call_ends_nothing(tmp_path: Path, status: int) -> None:
    met: set[object] = set()

    def odd(method: str, parts: list[str]) -> web.Response | None:
        call = method, parts[0], len(parts)
        if call in met:
            return None
        met.add(call)
        return web.json_response({"error": {"message": "odd"}}, status=status)

    async def test() -> None:
        truth = Batches(odd=odd)
        model = Model(batches=truth)
        async with asking(hosting(tmp_path, model), model, 3) as rows:
            assert await told(rows.all(3)) == echoes(3)
            assert len(truth.made) == 1 and len(met) == 5
            assert await spent(rows.gateway) == (truth.tokens / 2, 0)

    asyncio.run(test())


@in_loop
async def test_a_listing_without_rows_does_not_say_that_a_batch_is_absent(tmp_path: Path) -> None:
    odd_ones = [{}, {"data": None}, {"data": "none"}]
    truth = Batches(lost=1)

    def odd(method: str, parts: list[str]) -> web.Response | None:
        lists = (method, parts) == ("GET", ["batches"]) and truth.made
        return web.json_response(odd_ones.pop()) if lists and odd_ones else None

    truth.odd = odd
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 3) as rows:
        assert await told(rows.all(3)) == echoes(3)
        assert odd_ones == [] and len(truth.made) == 1
        assert await spent(rows.gateway) == (truth.tokens / 2, 0)


def test_a_server_that_is_away_when_a_batch_ends_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_batch, "AGAIN_MAX_S", 0.01)
    away = deque([503] * 20)

    def odd(_: str, parts: list[str]) -> web.Response | None:
        return web.Response(status=away.pop()) if parts[-1] == "content" and away else None

    async def test() -> None:
        truth = Batches(odd=odd)
        model = Model(batches=truth)
        async with asking(hosting(tmp_path, model), model, 2) as rows:
            assert await told(rows.all(2)) == echoes(2) and not away
            assert await spent(rows.gateway) == (truth.tokens / 2, 0)

    asyncio.run(test())


@in_loop
async def test_a_batch_that_names_no_files_is_looked_at_again(tmp_path: Path) -> None:
    bare = deque([{"status": "completed", "output_file_id": None}] * 2)

    def odd(method: str, parts: list[str]) -> web.Response | None:
        looks = method == "GET" and parts[0] == "batches" and len(parts) == 2
        return web.json_response(bare.pop()) if looks and bare else None

    truth = Batches(odd=odd)
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 2) as rows:
        assert await told(rows.all(2)) == echoes(2) and not bare
        assert await spent(rows.gateway) == (truth.tokens / 2, 0)


def test_a_batch_that_never_ends_is_cancelled_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_ledger, "WAIT_MAX_S", 0.2)

    async def test() -> None:
        truth = Batches(held=True)
        model = Model(batches=truth)
        async with asking(hosting(tmp_path, model), model, 2) as rows:
            replies = await asyncio.gather(*rows.all(2))
            error = json.loads(replies[0].body)["error"]
            assert error["code"] == "NoAnswer" and "did not end within" in error["message"]
            assert truth.cancels == ["batch_0"]
            assert (await spent(rows.gateway))[1] == 0

    asyncio.run(test())


@in_loop
async def test_a_faulty_line_of_an_earlier_gateway_is_no_other_rows_fault(tmp_path: Path) -> None:
    """Which line a row was is known to who wrote the file alone."""
    truth = Batches(held=True, ends=deque(["failed"] * 2), line=1)
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 11) as rows:
        order = [*range(2, 10), 10]  # not that of their names
        first = [asyncio.create_task(rows.ask(n)) for n in order]
        await until(lambda: bool(truth.made) and truth.made[0].status == "in_progress")
        await rows.gateway.stop()
        await asyncio.gather(*first, return_exceptions=True)
        await rows.gateway.start()
        await ready(rows.gateway, model, 11)
        again = [asyncio.create_task(rows.ask(n)) for n in reversed(order)]
        await until(lambda: len(rows.gateway.state.tasks) == len(order))
        truth.held = False
        found = dict(zip(reversed(order), await told(again), strict=True))
        faulty = [int(it.rows[0]["custom_id"].removeprefix("r").split(".")[0]) for it in truth.made]
        assert [n for n in order if found[n] == 400] == [faulty[1]]
        assert [len(it.rows) for it in truth.made] == [9, 9, 8]


@in_loop
async def test_a_function_is_not_woken_to_ask_whether_it_has_batches(tmp_path: Path) -> None:
    truth = Batches()
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 1) as rows:
        function = {"name": "function/f", "startupSeconds": 9, "scaledownSeconds": 9}
        servers = [{"url": model.url + "/v1", "slots": 4, "function": function}]
        await rows.gateway.declare([model], **PRICED, servers=servers)
        assert json.loads((await rows.ask(0)).body)["error"]["code"] == "NoBatches"
        assert truth.listings == 0


@in_loop
async def test_what_nobody_foresaw_keeps_no_row_waiting(tmp_path: Path) -> None:
    huge = {"custom_id": "r0.1", "response": {"status_code": 10**30, "body": {}}}
    odd = deque([web.Response(body=json.dumps(huge).encode())])
    truth = Batches(odd=lambda _, parts: odd.pop() if odd and parts[-1] == "content" else None)
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 2) as rows:
        assert await told(rows.all(2)) == [502, 502]
        usd, held = await spent(rows.gateway)
        assert usd > truth.tokens / 2 and held == 0 and not rows.gateway.state.batches
        assert await told(rows.all(2)) == echoes(2)  # and the gateway goes on


def test_rows_that_no_batch_begins_are_not_put_into_batches_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batcher, "BATCHES_MAX", 3)

    async def test() -> None:
        truth = Batches(ends=deque(["expired"] * 9))
        model = Model(batches=truth)
        async with asking(hosting(tmp_path, model), model, 2) as rows:
            assert await told(rows.all(2)) == [502, 502]
            assert len(truth.made) == 3 and await spent(rows.gateway) == (0, 0)

    asyncio.run(test())


@in_loop
async def test_what_a_batch_may_cost_is_on_disk_before_its_server_is_asked(
    tmp_path: Path,
) -> None:
    truth = Batches()
    model = Model(batches=truth)
    async with asking(hosting(tmp_path, model), model, 2) as rows:
        with no_room_for_the_ledger(tmp_path):
            replies = await asyncio.gather(*rows.all(2))
        assert ([it.status for it in replies], truth.made) == ([503, 503], [])
        assert {json.loads(it.body)["error"]["code"] for it in replies} == {"NotRecorded"}
        assert await told(rows.all(2)) == echoes(2)


def test_a_full_disk_does_not_end_the_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "LOOK_S", 0.0)

    async def test() -> None:
        async with hosting(tmp_path, Model()) as gateway:
            state, looks = gateway.state, 0

            def clean() -> None:
                nonlocal looks
                looks += 1
                if looks > 2:
                    state.ended.set()
                raise sqlite3.OperationalError("database or disk is full")

            monkeypatch.setattr(state.answers, "clean", clean)
            await program._until_ended(state, lambda: True)
            assert looks == 3

    asyncio.run(test())

"""Batches at servers that answer oddly, late, or not at all: no row is lost, none is paid twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.emulators.llm.batches import Batches
from tests.emulators.llm.server import Model
from tests.unit.gateway import test_batches
from tests.unit.gateway.hosted import hosting
from tests.unit.gateway.test_batches import asking, spent, told
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
